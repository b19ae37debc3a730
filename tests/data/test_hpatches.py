"""Sets in the HPatches layout, and the benchmark's splits."""

import numpy as np
import pytest
from helpers import refuses
from PIL import Image

from matchkernel.data.hpatches import IMAGES, open_hpatches, read_split
from matchkernel.errors import ArgumentError, FileError


def strip(path, count, seed):
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (count * 65, 65)).astype(np.uint8)).save(path)


@pytest.fixture
def root(tmp_path):
    """Two sequences, of 2 and 3 patches, and a folder that is none."""
    for name, count in (("v_b", 3), ("i_a", 2)):
        (tmp_path / name).mkdir()
        for seed, image in enumerate(IMAGES):
            strip(tmp_path / name / f"{image}.png", count, seed)
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_every_patch_of_every_strip_is_read_and_sequences_are_sorted(root):
    found = open_hpatches(str(root))
    assert list(found.counts.items()) == [("i_a", 2), ("v_b", 3)]
    for seed, image in enumerate(IMAGES):
        pixels = np.random.default_rng(seed).integers(0, 256, (3 * 65, 65))
        assert np.array_equal(found.read("v_b", image), pixels.reshape(3, 65, 65))
    assert np.array_equal(found.read("i_a"), found.read("i_a", "ref"))


REFUSED = {
    "no such folder": lambda root: root / "absent",
    "no sequences": lambda root: root / "notes",
    "one sequence": lambda root: root / "i_a",
    "a file": lambda root: root / "i_a" / "ref.png",
    "a sequence without a strip": lambda root: (root / "v_b" / "t5.png").unlink() or root,
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_folders_that_are_not_a_set_are_refused(change, root):
    with refuses(FileError):
        open_hpatches(change(root))


@pytest.mark.parametrize(
    "content",
    [
        np.zeros((4 * 65, 65), np.uint8),
        np.zeros((2 * 64, 64), np.uint8),
        np.zeros((131, 65), np.uint8),
        np.zeros((2 * 65, 65), np.uint16),
        b"",
        b"text",
    ],
)
def test_strips_that_do_not_fit_are_refused(content, root):
    path = root / "i_a" / "e2.png"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        Image.fromarray(content).save(path)
    with refuses(FileError):
        open_hpatches(root).read("i_a", "e2")


@pytest.mark.parametrize("names", [("i_c", "ref"), ("i_a", "e6"), ("../i_a", "ref")])
def test_names_that_are_not_in_the_set_are_refused(names, root):
    with refuses(ArgumentError):
        open_hpatches(root).read(*names)


def test_the_official_layout_of_splits_is_read(golden):
    assert read_split(golden / "tasks", "a") == (["i_ash", "i_birch", "v_cedar", "v_dogwood"], ["v_elm"])
    assert read_split(golden / "tasks", "full") == (["i_ash", "i_birch", "v_cedar", "v_dogwood", "v_elm"], [])


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", '{"a": 3}', '{"a": null}', '{"a": ["test"]}', '{"a": {"test": 3}}', "[" * 100_000),
        *('{"a": {"test": "i_ash"}}', '{"a": {"train": ["i_ash"]}}', '{"a": {"test": [null]}}', b'{"\xe9": {}}', None),
        '{"a": {"test": []}}',
    ],
)
def test_files_without_a_split_to_test_on_are_refused(content, tmp_path):
    path = tmp_path / "splits.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refuses(FileError):
        read_split(tmp_path, "a")


def test_a_split_that_is_not_in_the_file_and_a_missing_folder_are_refused(golden):
    with refuses(ArgumentError):
        read_split(golden / "tasks", "absent")
    with refuses(FileError):
        read_split(golden / "absent", "a")
