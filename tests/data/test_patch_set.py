"""Patch sets open as they were written; damaged ones are refused."""

import contextlib
import json
import pickle
import shutil

import numpy as np
import pytest
from damage import Evil, damaged
from helpers import refuses, tree
from hypothesis import example, given
from hypothesis import strategies as st

from matchkernel.data.patch_set import create_patch_set, group_by_label, open_patch_set
from matchkernel.data.summary import verify
from matchkernel.errors import FileError, MatchKernelError

PATCHES = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
LABELS = np.array([7, 2, 7, 1000, 2, 7])  # gaps, and a singleton
PAIRS = {"m50_2_2_0": np.array([[0, 2, 1], [1, 3, 0]]), "none": np.zeros((0, 3), np.int64)}
COLUMNS = {"reference_image": np.arange(6), "geometric": np.arange(12.0).reshape(6, 2)}
FILES = ["geometric.npy", "labels.npy", "pairs/m50_2_2_0.npy", "pairs/none.npy", "patches.npy", "reference_image.npy"]


def write_set(target):
    with create_patch_set(target, len(PATCHES), 4, {"of": "the tests"}) as build:
        for number in build.steps([str(k) for k in range(len(PATCHES))]):
            build.store([number], PATCHES[number][None])
        build.finish(LABELS, PAIRS, COLUMNS, {"source": {"kind": "tests"}})
    return target


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("packed") / "set")


@pytest.fixture
def folder(whole, tmp_path):
    """A whole set to be damaged."""
    return shutil.copytree(whole, tmp_path / "set")


def test_a_set_opens_as_it_was_written(whole, tmp_path):
    verify(whole)
    assert tree(write_set(tmp_path / "again")) == tree(whole)
    read = open_patch_set(str(whole))
    assert len(read) == 6
    assert isinstance(read.patches, np.memmap)
    assert np.array_equal(read.patches, PATCHES)
    assert read.labels.dtype == np.int64
    assert np.array_equal(read.labels, LABELS)
    for found, expected in ((read.columns, COLUMNS), (read.pairs, PAIRS)):
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    arrays = (read.patches, read.labels, *read.columns.values(), *read.pairs.values())
    assert not any(array.flags.writeable for array in arrays)
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest == read.manifest
    assert manifest["counts"] == {"patches": 6, "points": 3}
    assert manifest["source"] == {"kind": "tests"}
    assert sorted(manifest["sha256"]) == FILES


def test_a_set_without_patches(tmp_path):
    with create_patch_set(tmp_path / "set", 0, 64, {}) as build:
        build.finish(np.array([], int), {}, {}, {})
    verify(tmp_path / "set")
    read = open_patch_set(tmp_path / "set")
    assert read.patches.shape == (0, 64, 64)
    assert [part.tolist() for part in read.groups()] == [[], [], []]
    assert read.groups().members() == []


def test_steps_that_are_done_are_not_done_again(tmp_path):
    names = ["a", "b", "c", "d"]
    seen = []
    for stop in ("c", None):
        with contextlib.suppress(KeyboardInterrupt), create_patch_set(tmp_path / "set", 4, 2, {}) as build:
            for number in build.steps(names):
                seen.append(names[number])
                if names[number] == stop:
                    raise KeyboardInterrupt
                build.store([number], np.full((1, 2, 2), number + 1, np.uint8))
            build.finish(np.arange(4), {}, {}, {})
    assert seen == ["a", "b", "c", "c", "d"]
    assert open_patch_set(tmp_path / "set").patches[:, 0, 0].tolist() == [1, 2, 3, 4]


@given(st.lists(st.one_of(st.integers(-3, 5), st.integers(-(2**63), 2**63 - 1)), max_size=30))
@example([2**63 - 1, -(2**63)])
@example([-(2**62), 5])
def test_groups_are_the_patches_of_each_label(labels):
    wanted = [[k for k, own in enumerate(labels) if own == label] for label in sorted(set(labels))]
    groups = group_by_label(np.array(labels, np.int64))
    assert [members.tolist() for members in groups.members()] == wanted
    assert groups.sizes.tolist() == [len(members) for members in wanted]
    assert all(group in groups.members()[rank] for group, rank in enumerate(groups.ranks()))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_noticed(name, folder):
    (folder / name).unlink()
    with refuses(FileError):
        verify(folder)


@pytest.mark.parametrize("name", ["extra.npy", "pairs/extra.npy", "notes.txt", ".hidden", "deep/er/file"])
def test_an_extra_file_is_noticed(name, folder):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    np.save(folder / "extra", np.zeros((6, 3), np.int64))
    (folder / "extra.npy").rename(folder / name)
    with refuses(FileError):
        verify(folder)


def test_unfinished_builds_files_and_missing_folders_are_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt), create_patch_set(tmp_path / "set", 6, 4, {}):
        raise KeyboardInterrupt
    (tmp_path / "file").touch()
    for name in ("set", "set.part", "file", "absent"):
        with refuses(FileError):
            open_patch_set(tmp_path / name)


def with_counts(counts):
    """The manifest of the set with other counts."""
    return lambda folder: json.dumps({**json.loads((folder / "manifest.json").read_text()), "counts": counts})


REFUSED = [
    ("manifest.json", None),
    *(("manifest.json", text) for text in ("", "{", "[" * 100_000, "[]", "3", '"text"', "{}", '{"format": 1}')),
    *(("manifest.json", text) for text in ('{"format": 2, "sha256": {}}', '{"format": 1, "sha256": []}')),
    ("manifest.json", with_counts({"patches": 7, "points": 3})),
    ("manifest.json", with_counts(None)),
    *(("labels.npy", array) for array in (LABELS[:5], LABELS.astype(np.int32), LABELS[:, None], np.int64(3))),
    *(("patches.npy", array) for array in (PATCHES[:5], PATCHES[:, :3], PATCHES.astype(np.float32), PATCHES[:, None])),
    *(("geometric.npy", array) for array in (np.zeros((5, 2)), np.float64(3))),
    *(("pairs/none.npy", array) for array in (np.array([[0, 1]]), np.array([[0.0, 1.0, 1.0]]), np.int64(3))),
    ("ref.png", ""),  # the HPatches layout
    ("i_one/ref.png", ""),
]


@pytest.mark.parametrize(("name", "content"), REFUSED)
def test_sets_with_a_file_that_does_not_fit_are_refused(name, content, folder):
    content = content(folder) if callable(content) else content
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        np.save(path, content)
    with refuses(FileError):
        open_patch_set(folder)


def test_a_pickle_in_place_of_an_array_is_refused_and_not_run(folder, tmp_path):
    np.save(folder / "labels.npy", np.array([Evil(tmp_path / "ran")]), allow_pickle=True)
    with refuses(FileError):
        open_patch_set(folder)
    (folder / "labels.npy").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with refuses(FileError):
        open_patch_set(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_a_damaged_array_opens_or_gives_our_error_and_is_never_verified(name, whole, folder, data):
    content = damaged(data, (whole / name).read_bytes())
    (folder / name).write_bytes(content)
    with contextlib.suppress(MatchKernelError):
        opened = open_patch_set(folder)
        assert len(opened) == len(opened.patches) == len(opened.labels)
        assert opened.groups().sizes.sum() == len(opened)
    if content != (whole / name).read_bytes():
        with pytest.raises(MatchKernelError):
            verify(folder)
