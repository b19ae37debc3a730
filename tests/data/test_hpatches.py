import contextlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from matchkernel.data.hpatches import IMAGES, open_hpatches, read_splits
from matchkernel.data.patch_files import read_patches
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError


def strip(path, count, side=65, seed=0, dtype=np.uint8):
    pixels = np.random.default_rng(seed).integers(0, 256, (count * side, side)).astype(dtype)
    Image.fromarray(pixels).save(path)
    return pixels.reshape(count, side, side)


@pytest.fixture
def root(tmp_path):
    """Two sequences, of 2 and 3 patches, and a folder that is none."""
    for name, count in (("v_b", 3), ("i_a", 2)):
        (tmp_path / name).mkdir()
        for seed, image in enumerate(IMAGES):
            strip(tmp_path / name / f"{image}.png", count, seed=seed)
    (tmp_path / "notes").mkdir()
    return tmp_path


def refused(call, *words):
    with pytest.raises(FileError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_names_of_the_strips():
    assert " ".join(IMAGES) == "ref e1 e2 e3 e4 e5 h1 h2 h3 h4 h5 t1 t2 t3 t4 t5"


def test_a_sequence_has_its_100_patches_in_all_16_strips(hpatches_sample):
    found = open_hpatches(hpatches_sample.parent)
    assert found.counts == {"v_lewis": 100}
    for image in IMAGES:
        patches = found.read("v_lewis", image)
        assert patches.shape == (100, 65, 65)
        assert patches.dtype == np.uint8
        with Image.open(hpatches_sample / f"{image}.png") as strip:
            assert np.array_equal(patches[23], np.asarray(strip)[23 * 65 : 24 * 65])


def test_sequences_are_found_in_the_order_of_their_names(root):
    found = open_hpatches(str(root))
    assert list(found.counts.items()) == [("i_a", 2), ("v_b", 3)]
    pixels = np.random.default_rng(IMAGES.index("h3")).integers(0, 256, (3 * 65, 65))
    assert np.array_equal(found.read("v_b", "h3"), pixels.reshape(3, 65, 65))
    assert np.array_equal(found.read("i_a"), found.read("i_a", "ref"))


def test_folders_without_sequences_are_refused(root):
    refused(lambda: open_hpatches(root / "absent"), str(root / "absent"), "no such folder")
    refused(lambda: open_hpatches(root / "notes"), str(root / "notes"), "contains no sequences")
    refused(lambda: open_hpatches(root / "i_a" / "ref.png"), "ref.png: no such folder")


@pytest.mark.parametrize("image", IMAGES[1:])
def test_a_missing_strip_is_named(image, root):
    (root / "v_b" / f"{image}.png").unlink()
    refused(lambda: open_hpatches(root), str(root / "v_b"), f"{image}.png is missing")


def test_a_strip_of_another_count_is_refused(root):
    strip(root / "v_b" / "t5.png", 4)
    refused(lambda: open_hpatches(root).read("v_b", "t5"), str(root / "v_b" / "t5.png"), "4 patches, ref.png 3")


@pytest.mark.parametrize("image", ["ref", "e2"])
def test_a_strip_of_the_wrong_size_is_refused(image, root):
    path = root / "i_a" / f"{image}.png"

    def read():
        open_hpatches(root).read("i_a", image)

    strip(path, 2, side=64)
    refused(read, str(path), "8-bit patches of 65 px, got uint8 of 64 px")
    Image.fromarray(np.zeros((131, 65), np.uint8)).save(path)
    refused(read, str(path), "65 x 131")
    strip(path, 2, dtype=np.uint16)
    refused(read, str(path), "got uint16 of 65 px")
    path.write_bytes(path.read_bytes()[:-5000])
    refused(read, str(path), "not a whole image")
    path.write_bytes(b"")
    refused(read, str(path), "not a whole image")


def test_names_the_set_does_not_have(root):
    found = open_hpatches(root)
    with pytest.raises(ArgumentError, match="contains no sequence 'i_c'"):
        found.read("i_c")
    with pytest.raises(ArgumentError, match=r"the strips of a sequence are ref, e1, .*; got 'e6'"):
        found.read("i_a", "e6")
    with pytest.raises(ArgumentError, match="contains no sequence"):
        found.read("../i_a")


def test_the_official_layout_of_splits_is_read(golden):
    splits = read_splits(golden / "tasks" / "splits" / "splits.json")
    assert splits == {
        "a": {"test": ["i_ash", "i_birch", "v_cedar", "v_dogwood"], "train": ["v_elm"]},
        "b": {"test": ["i_birch", "v_dogwood", "v_elm"], "train": ["i_ash", "v_cedar"]},
        "full": {"test": ["i_ash", "i_birch", "v_cedar", "v_dogwood", "v_elm"]},
    }


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '{"a": 3}', '{"a": null}', '{"a": ["test"]}', '{"a": {"test": 3}}']
)
def test_files_that_are_no_splits(content, tmp_path):
    path = tmp_path / "splits.json"
    path.write_text(content)
    refused(lambda: read_splits(path), str(path), "not a splits file")


def test_splits_that_cannot_be_read(tmp_path):
    refused(lambda: read_splits(tmp_path / "absent.json"), "absent.json: cannot be read (No such file")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    refused(lambda: read_splits(tmp_path / "deep.json"), "not a splits file")
    (tmp_path / "latin.json").write_bytes(b'{"\xe9": {}}')
    refused(lambda: read_splits(tmp_path / "latin.json"), "not a splits file")


@pytest.mark.parametrize(
    "content", ['{"a": {"test": "i_ash"}}', '{"a": {"train": ["i_ash"]}}', '{"a": {"test": [null]}}']
)
def test_a_split_is_a_list_of_names(content, tmp_path):
    path = tmp_path / "splits.json"
    path.write_text(content)
    refused(lambda: read_splits(path), str(path))


SPLITS = json.dumps({"a": {"test": ["i_ash", "v_elm"], "train": ["v_b"], "name": "a"}, "full": {"test": ["i_ash"]}})
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["test", "train", "x"]), inner),
)


def only_our_error(path):
    with contextlib.suppress(FileError):
        for parts in read_splits(path).values():
            assert parts.keys() <= {"test", "train"}
            assert all(isinstance(name, str) for names in parts.values() for name in names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_splits_are_read_or_give_our_error(tmp_path, data):
    content = bytearray(SPLITS.encode())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "splits.json").write_bytes(content)
    only_our_error(tmp_path / "splits.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=values)
@example({"a": "test"})
def test_any_json_is_read_or_gives_our_error(tmp_path, content):
    (tmp_path / "splits.json").write_text(json.dumps(content))
    only_our_error(tmp_path / "splits.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=100))
def test_random_bytes_give_our_error(tmp_path, content):
    (tmp_path / "splits.json").write_bytes(content)
    only_our_error(tmp_path / "splits.json")


def test_other_kinds_of_sets_are_told_apart(tmp_path):
    """A folder or a file of another kind is called what it is, not a broken array or an empty set."""
    sequence = tmp_path / "hpatches" / "i_one"
    sequence.mkdir(parents=True)
    for image in IMAGES:
        Image.fromarray(np.zeros((2 * 65, 65), np.uint8)).save(sequence / f"{image}.png")
    build_synthetic(tmp_path / "made", SyntheticSettings(points=1, patches=1, size=8))
    for by, path, message in (
        (open_patch_set, tmp_path / "hpatches", "is a set in the HPatches layout, not a patch set"),
        (open_patch_set, sequence, "is an HPatches sequence, not a patch set"),
        (open_patch_set, sequence / "ref.png", "is a file; a patch set is a folder"),
        (read_patches, tmp_path / "hpatches", "is a set in the HPatches layout; give one strip of a sequence"),
        (read_patches, sequence, "is an HPatches sequence; give one of its strips"),
        (read_patches, tmp_path / "made", "is a patch set; give its patches.npy"),
        (read_patches, tmp_path, "is a folder; patches are read from a .npy or .png file"),
        (open_hpatches, tmp_path / "made", "is a patch set, not a set in the HPatches layout"),
        (open_hpatches, sequence, "is one sequence; give its parent folder"),
        (open_hpatches, tmp_path, "contains no sequences"),
    ):
        with pytest.raises(FileError) as caught:
            by(path)
        assert f"{path}: {message}" in str(caught.value)
    (tmp_path / "hpatches" / "manifest.json").write_text('{"format": 1, "kind": "homographies", "sha256": {}}')
    with pytest.raises(FileError, match="hpatches: is a set in the HPatches layout, not a patch set"):
        open_patch_set(tmp_path / "hpatches")
