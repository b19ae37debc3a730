"""PhotoTourism folders and torchvision's caches: read, packed or refused."""

import pickle
import shutil

import numpy as np
import pytest
import torch
from damage import Evil
from hypothesis import given
from hypothesis import strategies as st
from made_phototourism import INTEREST, LABELS, PAIRS, PATCHES, refused, same_set, write_cache
from PIL import Image

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import (
    pack_phototourism,
    read_mosaic,
    read_phototourism,
    read_table,
    write_mosaics,
    write_tables,
)
from matchkernel.data.summary import verify


def test_a_mosaic_is_cut_row_by_row_and_the_last_is_padded_with_black(written):
    mosaics = [written / f"patches000{k}.png" for k in (0, 1)]
    assert read_phototourism(str(written)).mosaics == mosaics
    with Image.open(mosaics[0]) as image:
        assert np.array_equal(np.asarray(image)[64:128, 128:192], PATCHES[18])
    assert not read_mosaic(mosaics[1])[44:].any()


@pytest.mark.parametrize(("suffix", "loss"), [(".png", 0), (".bmp", 0), (".BMP", 0), (".jpg", 4)])
def test_a_set_packs_to_the_same_patches_labels_and_pairs(suffix, loss, source, target):
    """JPEG loses a few gray levels: patches fill whole 8 x 8 blocks. Windows' line ends change nothing."""
    for path in source.glob("*.png"):
        with Image.open(path) as image:
            image.load()
        path.unlink()
        image.save(path.with_suffix(suffix), quality=95)
    for path in source.glob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n \r\n\r\n")
    counts = []
    pack_phototourism(source, target, lambda *done_and_total: counts.append(done_and_total))
    verify(target)
    read = open_patch_set(target)
    assert np.abs(read.patches.astype(int) - PATCHES).max() <= loss
    same_set(read, read.patches)
    assert counts == [(256, 300), (300, 300)]
    assert sorted(path.name for path in target.parent.iterdir()) == ["set", "source"]


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


def edit(name, line, text):
    """A change of a source: replace a line, counted from 1."""

    def change(source):
        lines = (source / name).read_text().splitlines(keepends=True)
        lines[line - 1] = text + "\n"
        (source / name).write_text("".join(lines))

    return change


def cut(name, lines):
    """A change of a source: keep the first lines of a file."""

    def change(source):
        content = (source / name).read_text().splitlines(keepends=True)
        (source / name).write_text("".join(content[:lines]))

    return change


def picture(name, *shape):
    """A change of a source: another picture."""
    return lambda source: Image.fromarray(np.zeros(shape, np.uint8)).save(source / name)


REFUSED = {
    "no folder": shutil.rmtree,
    "no tables": lambda source: (source / "info.txt").unlink(),
    "a missing mosaic": lambda source: (source / "patches0000.png").unlink(),
    "a picture of another name": lambda source: (source / "patches0000.png").rename(source / "preview.png"),
    "a mosaic too many": picture("patches0002.png", 1024, 1024),
    "a mosaic of 1023 px": picture("patches0001.png", 1024, 1023),
    "a mosaic of the same area": picture("patches0001.png", 2048, 512),
    "a mosaic that is no image": lambda source: (source / "patches0001.png").write_text("x"),
    "info shorter than the mosaics": cut("info.txt", 256),
    "info shorter than interest": cut("info.txt", 299),
    "an empty info": cut("info.txt", 0),
    "info longer than the mosaics": edit("info.txt", 300, "1 0\n" * 300),
    "interest shorter than info": cut("interest.txt", 299),
    "a word in interest": edit("interest.txt", 4, "x 1 2 3 4"),
    **{f"info {text!r}": edit("info.txt", 17, text) for text in ("point 0", "", "1.5 0", "0x10 0", f"{2**63} 0", "é")},
    **{
        f"pair {text!r}": edit("m50_4_4_0.txt", 3, text)
        for text in (
            *("a 0 0 b 0 0 0", "0 5 0 2 5", "", "0 5 0 2 5 x", "8", "300 5 0 2 5 0 0", "-1 5 0 2 5 0 0"),
            *(f"0 5 0 {10**15} 5 0 0", "0 6 0 2 5 0 0", "0 5 0 2 4 0 0"),
        )
    },
    "no pairs in a list": cut("m50_2_2_0.txt", 0),
    "fewer pairs than the name says": cut("m50_2_2_0.txt", 1),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_broken_sets_are_refused(change, source, target):
    change(source)
    refused(source, target)


@given(rows=st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3), max_size=20))
def test_any_table_reads_back_whatever_the_line_ends_and_further_columns(rows, tmp_path):
    for line in ("{} {} {}\n", "{} {} {}\r\n", " {}\t{}   {} 5.5 words\n"):
        (tmp_path / "t.txt").write_bytes("".join(line.format(*row) for row in rows).encode())
        assert read_table(tmp_path / "t.txt", 3).tolist() == [list(row) for row in rows]


@pytest.mark.parametrize(("times", "name"), [(1, "matches"), (25_000, "m50_100000_100000_0")])
def test_torchvisions_cache_packs_to_the_same_set(times, name, tmp_path, target):
    """The standard number of pairs gives them their name."""
    matches = np.tile(PAIRS["m50_4_4_0"], (times, 1))
    pack_phototourism(write_cache(tmp_path / "liberty.pt", matches=matches), target)
    verify(target)
    read = open_patch_set(target)
    assert np.array_equal(read.patches, PATCHES)
    assert np.array_equal(read.labels, LABELS)
    assert np.array_equal(read.pairs[name], matches)


def test_a_malicious_cache_is_refused_without_running_it(tmp_path, target):
    evil, path = Evil(tmp_path / "ran"), tmp_path / "liberty.pt"
    for content in ((torch.from_numpy(PATCHES), torch.from_numpy(LABELS), evil), evil):
        torch.save(content, path)
        refused(path, target)
    for protocol in range(6):
        path.write_bytes(pickle.dumps(evil, protocol))
        refused(path, target)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(evil))
    assert (tmp_path / "ran").exists()  # it would have


@pytest.mark.parametrize(
    "changed",
    [
        {"patches": PATCHES.astype(np.float32)},
        {"patches": PATCHES[:, None]},
        {"patches": PATCHES[:, :, :32]},
        {"patches": PATCHES[:, :32, :32]},
        {"labels": LABELS[:-1]},
        {"matches": np.array([[0, 300, 0]])},
        {"matches": np.array([[-1, 3, 0]])},
        {"matches": np.array([0, 1, 0])},
        {"matches": np.array([[0, 2, 0]])},  # the same point
        b"",
        b"\x93NUMPY",
    ],
)
def test_caches_that_do_not_fit_are_refused(changed, tmp_path, target):
    path = tmp_path / "liberty.pt"
    path.write_bytes(changed) if isinstance(changed, bytes) else write_cache(path, **changed)
    refused(path, target)
