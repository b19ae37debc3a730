"""PhotoTourism folders and torchvision's caches: read, packed, or refused with the file and the line."""

import contextlib
import os
import pickle
import re
import shutil

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_phototourism import INTEREST, LABELS, PAIRS, PATCHES, refused, same_set, tree, write_set
from PIL import Image

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import pack_phototourism, read_mosaic, read_phototourism, write_mosaics, write_tables
from matchkernel.data.summary import verify
from matchkernel.errors import FileError, MatchKernelError


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A set of two mosaics as the package writes it."""
    return write_set(tmp_path_factory.mktemp("written") / "liberty")


@pytest.fixture
def source(written, tmp_path):
    """A set to be damaged."""
    return shutil.copytree(written, tmp_path / "source" / "liberty")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "set"


def changed_line(path, line, text):
    """Replace a line, counted from 1."""
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = text + "\n"
    path.write_text("".join(lines))


def test_a_written_set_reads_back(written):
    read = read_phototourism(str(written))
    assert [path.name for path in read.mosaics] == ["patches0000.png", "patches0001.png"]
    assert np.array_equal(read.labels, LABELS)
    assert np.array_equal(read.reference_images, INTEREST[:, 0])
    assert read.pairs.keys() == PAIRS.keys()
    assert all(np.array_equal(read.pairs[name], PAIRS[name]) for name in PAIRS)
    assert np.array_equal(read_mosaic(written / "patches0000.png"), PATCHES[:256])
    assert np.array_equal(read_mosaic(written / "patches0001.png")[:44], PATCHES[256:])
    assert not read_mosaic(written / "patches0001.png")[44:].any()


def test_a_mosaic_is_cut_row_by_row(written):
    with Image.open(written / "patches0000.png") as image:
        assert np.array_equal(np.asarray(image)[64:128, 128:192], PATCHES[18])


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".BMP"])
def test_a_set_packs_to_the_same_patches_labels_and_pairs(suffix, source, target):
    converted(source, suffix)
    told = []
    pack_phototourism(source, target, lambda done, total: told.append((done, total)))
    verify(target)
    same_set(open_patch_set(target))
    assert told == [(256, 300), (300, 300)]
    assert sorted(path.name for path in target.parent.iterdir()) == ["set", "source"]


def converted(folder, suffix, **options):
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            image.load()
        path.unlink()
        image.save(path.with_suffix(suffix), **options)


def test_jpeg_mosaics_pack_to_nearly_the_same_patches(source, target):
    converted(source, ".jpg", quality=95)
    pack_phototourism(source, target)
    verify(target)
    read = open_patch_set(target)
    # Patches fill whole 8 x 8 blocks, so the loss is quantisation of smooth blocks alone: a few gray levels.
    assert np.abs(read.patches.astype(int) - PATCHES).max() <= 4
    same_set(read, read.patches)


def test_colour_mosaics_are_read_as_gray(source, target):
    for path in source.glob("*.png"):
        with Image.open(path) as image:
            colour = image.convert("RGB")
        colour.save(path)
    pack_phototourism(source, target)
    same_set(open_patch_set(target))


def test_labels_with_gaps_and_singletons_are_kept(written, target):
    pack_phototourism(written, target)
    read = open_patch_set(target)
    groups = read.groups()
    sizes = dict(zip(read.labels[groups.order[groups.starts]].tolist(), groups.sizes.tolist(), strict=True))
    assert (sizes[-7], sizes[0], sizes[5], sizes[9000], sizes[2**40]) == (1, 1, 2, 1, 1)
    assert read.manifest["counts"]["points"] == len(sizes) == len(set(LABELS.tolist()))


def test_windows_lines_and_blank_lines_at_the_end_change_nothing(source, target):
    for path in source.glob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n \r\n\r\n")
    pack_phototourism(source, target)
    same_set(open_patch_set(target))


def test_a_set_without_interest_and_pairs(source, target):
    for path in [source / "interest.txt", *source.glob("m50*")]:
        path.unlink()
    pack_phototourism(source, target)
    verify(target)
    read = open_patch_set(target)
    assert np.array_equal(read.patches, PATCHES)
    assert read.columns == read.pairs == {}


def test_a_set_that_fills_its_mosaic_exactly(tmp_path, target):
    (tmp_path / "full").mkdir()
    assert len(write_mosaics(tmp_path / "full", PATCHES[:256])) == 1
    write_tables(tmp_path / "full", LABELS[:256], INTEREST[:256], {})
    pack_phototourism(tmp_path / "full", target)
    assert np.array_equal(open_patch_set(target).patches, PATCHES[:256])


def test_folders_that_are_no_sets(tmp_path, target):
    refused(tmp_path / "absent", target, f"{tmp_path / 'absent'}: no such folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", target, f"{tmp_path / 'empty' / 'info.txt'}: cannot be read (No such file")


@pytest.mark.parametrize("name", ["patches0000.png", "patches0001.png"])
def test_a_missing_mosaic_is_named(name, source, target):
    (source / name).unlink()
    refused(source, target, source, "info.txt has 300 lines, which fill 2 mosaics, but 1 are there", name)


def test_no_mosaics_at_all(source, target):
    for path in source.glob("*.png"):
        path.unlink()
    refused(source, target, source, "but 0 are there", "patches0000.bmp")


def test_a_foreign_picture_does_not_stand_in_for_a_missing_mosaic(source, target):
    (source / "patches0000.png").rename(source / "preview.png")
    refused(source, target, "patches0000.png")


@pytest.mark.parametrize(
    ("shape", "says"), [((1024, 1023), "1023 x 1024"), ((64, 64), "64 x 64"), ((2048, 512), "512 x 2048")]
)
def test_a_mosaic_of_another_size_is_refused(shape, says, source, target):
    Image.fromarray(np.zeros(shape, np.uint8)).save(source / "patches0001.png")
    refused(source, target, source / "patches0001.png", f"1024 x 1024 pixels, got {says}")


def test_info_shorter_or_longer_than_the_mosaics(source, target):
    info = source / "info.txt"
    lines = info.read_text().splitlines(keepends=True)
    for path in source.glob("m50*"):
        path.unlink()
    info.write_text("".join(lines[:256]))
    refused(source, target, f"{info}, line 256: ends early, 256 lines fill 1 of 2 mosaics")
    info.write_text("")
    refused(source, target, info, "ends early")
    info.write_text("".join(lines) + "1 0\n" * 213)
    refused(source, target, source, "info.txt has 513 lines, which fill 3 mosaics", "patches0002.png")
    info.write_text("".join(lines[:299]))  # within the last mosaic only interest.txt can tell
    refused(source, target, source / "interest.txt", "has 300 lines, info.txt 299")


@pytest.mark.parametrize("text", ["point 0", "", "1.5 0", "0x10 0", f"{2**63} 0"])
def test_words_in_info_are_refused_with_their_line(text, source, target):
    changed_line(source / "info.txt", 17, text)
    refused(source, target, f"{source / 'info.txt'}, line 17: expected 1 whole numbers", repr(text))


@pytest.mark.parametrize("text", ["a 0 0 b 0 0 0", "0 5 0 2 5", "", "0 5 0 2 5 x"])
def test_words_in_pairs_are_refused_with_their_line(text, source, target):
    changed_line(source / "m50_4_4_0.txt", 3, text)
    refused(source, target, f"{source / 'm50_4_4_0.txt'}, line 3: expected 6 whole numbers", repr(text))


def test_a_pair_cut_to_its_first_number_is_refused(source, target):
    changed_line(source / "info.txt", 1 + 8, "8 0")  # patch 8 is of point 8: the spread row contradicts nothing
    changed_line(source / "m50_4_4_0.txt", 2, "8")
    refused(source, target, f"{source / 'm50_4_4_0.txt'}, line 2")


@pytest.mark.parametrize(
    ("text", "patch"), [("300 5 0 2 5 0 0", 300), ("-1 5 0 2 5 0 0", -1), (f"0 5 0 {10**15} 5 0 0", 10**15)]
)
def test_indices_out_of_range_are_refused_with_their_line(text, patch, source, target):
    changed_line(source / "m50_4_4_0.txt", 3, text)
    refused(source, target, f"{source / 'm50_4_4_0.txt'}, line 3: patch {patch} is outside 0 .. 299")


@pytest.mark.parametrize(("text", "patch"), [("0 6 0 2 5 0 0", 0), ("0 5 0 2 4 0 0", 2)])
def test_points_that_contradict_info_are_refused_with_their_line(text, patch, source, target):
    changed_line(source / "m50_2_2_0.txt", 2, text)
    refused(source, target, f"{source / 'm50_2_2_0.txt'}, line 2: says patch {patch} is of point", "info.txt says 5")


def test_a_short_interest_is_refused(source, target):
    interest = source / "interest.txt"
    interest.write_text("\n".join(interest.read_text().splitlines()[:299]))
    refused(source, target, f"{interest}: has 299 lines, info.txt 300")
    changed_line(interest, 4, "x 1 2 3 4")
    refused(source, target, f"{interest}, line 4")


def test_an_existing_target_is_refused_and_left_alone(written, target):
    target.mkdir()
    (target / "mine").write_text("kept")
    with pytest.raises(FileError, match="set: already exists"):
        pack_phototourism(written, target)
    assert tree(target) == {"mine": b"kept"}


def cache_of(path, patches=PATCHES, labels=LABELS, matches=PAIRS["m50_4_4_0"]):
    torch.save(tuple(torch.from_numpy(np.asarray(array)) for array in (patches, labels, matches)), path)
    return path


def test_torchvisions_cache_packs_to_the_same_set(tmp_path, target):
    pack_phototourism(cache_of(tmp_path / "liberty.pt"), target)
    verify(target)
    read = open_patch_set(target)
    assert np.array_equal(read.patches, PATCHES)
    assert np.array_equal(read.labels, LABELS)
    assert np.array_equal(read.pairs["matches"], PAIRS["m50_4_4_0"])


def test_the_standard_pairs_of_a_cache_get_their_name(tmp_path, target):
    matches = np.tile(PAIRS["m50_4_4_0"], (25_000, 1))
    pack_phototourism(cache_of(tmp_path / "liberty.pt", matches=matches), target)
    assert np.array_equal(open_patch_set(target).pairs["m50_100000_100000_0"], matches)


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_malicious_cache_is_refused_without_running_it(tmp_path, target):
    evil, path = Evil(tmp_path / "ran"), tmp_path / "liberty.pt"
    torch.save((torch.from_numpy(PATCHES), torch.from_numpy(LABELS), evil), path)
    refused(path, target, path, "not torchvision's cache")
    torch.save(evil, path)
    refused(path, target, path, "not torchvision's cache")
    for protocol in range(6):
        path.write_bytes(pickle.dumps(evil, protocol))
        refused(path, target, path, "not torchvision's cache")
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(evil))
    assert (tmp_path / "ran").exists()  # it would have


def test_caches_that_do_not_fit(tmp_path, target):
    path = tmp_path / "liberty.pt"
    refused(cache_of(path, patches=PATCHES.astype(np.float32)), target, path, "uint8 patches")
    refused(cache_of(path, patches=PATCHES[:, None]), target, path, "uint8 patches")
    refused(cache_of(path, labels=LABELS[:-1]), target, path, "N labels")
    refused(cache_of(path, matches=np.array([[0, 300, 0]])), target, path, "patch 300 is outside 0 .. 299")
    refused(cache_of(path, matches=np.array([[-1, 3, 0]])), target, path, "patch -1 is outside 0 .. 299")
    refused(cache_of(path, matches=np.array([0, 1, 0])), target, path, "(M, 3) matches, got (3,)")
    torch.save({"patches": torch.zeros(3)}, path)
    refused(path, target, path, "not torchvision's cache")
    path.write_bytes(b"")
    refused(path, target, path, "not torchvision's cache")
    np.save(tmp_path / "bad.npy", PATCHES[0])
    (tmp_path / "bad.npy").rename(path)
    sentence = "not torchvision's cache (.pt) of patches, labels and matches, nor a PhotoTourism folder"
    with pytest.raises(FileError, match=f"{re.escape(sentence)}$"):  # without torch's text
        pack_phototourism(path, target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["liberty.pt"]


@pytest.mark.parametrize("shape", [(3, 64, 32), (3, 1, 64), (3, 32, 32)])
def test_a_cache_of_other_than_64_px_patches_is_refused(shape, tmp_path, target):
    path = cache_of(tmp_path / "liberty.pt", np.zeros(shape, np.uint8), np.arange(3), np.array([[0, 1, 0]]))
    refused(path, target, path, "(N, 64, 64)")


def mutated(data, content):
    content = bytearray(content)
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    return bytes(content)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Tables of five patches; the mosaic is not looked into by read_phototourism."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tables(folder, LABELS[:5], INTEREST[:5], {"m50_2_2_0": np.array([[0, 2, 1], [3, 4, 0]])})
    (folder / "patches0000.bmp").touch()
    return folder


@pytest.mark.parametrize("kept", [0, 1])
def test_a_list_of_pairs_that_ends_early_is_refused(kept, source, target):
    path = source / "m50_2_2_0.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    refused(source, target, f"{path}: has {kept} pairs, its name says 2: is it whole?")


@pytest.mark.parametrize("name", ["info.txt", "m50_2_2_0.txt", "interest.txt"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_tables_are_read_or_give_our_error(name, tiny, data):
    content = (tiny / name).read_bytes()
    changed = data.draw(st.binary(max_size=60)) if data.draw(st.integers(0, 3)) == 0 else mutated(data, content)
    try:
        (tiny / name).write_bytes(changed)
        with contextlib.suppress(MatchKernelError):
            read = read_phototourism(tiny)
            assert 0 < len(read.labels) <= 256
            assert all(rows[:, :2].max(initial=0) < len(read.labels) for rows in read.pairs.values())
            assert all(rows[:, :2].min(initial=0) >= 0 for rows in read.pairs.values())
    finally:
        (tiny / name).write_bytes(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_cache_packs_or_gives_our_error(data, tmp_path):
    path = cache_of(tmp_path / "liberty.pt", PATCHES[:2], LABELS[:2], np.array([[0, 1, 0]]))
    path.write_bytes(mutated(data, path.read_bytes()))
    with contextlib.suppress(MatchKernelError):
        pack_phototourism(path, tmp_path / "set")
    shutil.rmtree(tmp_path / "set", ignore_errors=True)
    shutil.rmtree(tmp_path / "set.part", ignore_errors=True)
