"""Patch sets open as they were written; damaged ones are refused."""

import contextlib
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from damage import damaged
from helpers import refuses
from hypothesis import HealthCheck, example, given, settings
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
            build.patches[number] = PATCHES[number]
        build.finish(LABELS, PAIRS, COLUMNS, {"source": {"kind": "tests"}})
    return target


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("packed") / "set")


@pytest.fixture
def folder(whole, tmp_path):
    """A whole set to be damaged."""
    return shutil.copytree(whole, tmp_path / "set")


def test_a_set_opens_as_it_was_written(whole):
    verify(whole)
    for read in (open_patch_set(whole), open_patch_set(str(whole))):
        assert isinstance(read.patches, np.memmap)
        assert np.array_equal(read.patches, PATCHES)
        assert read.labels.dtype == np.int64
        assert np.array_equal(read.labels, LABELS)
        assert read.columns.keys() == COLUMNS.keys()
        assert all(np.array_equal(read.columns[name], COLUMNS[name]) for name in COLUMNS)
        assert read.pairs.keys() == PAIRS.keys()
        assert all(np.array_equal(read.pairs[name], PAIRS[name]) for name in PAIRS)
        assert len(read) == 6


def test_the_manifest_has_the_counts_the_source_and_a_hash_of_every_file(whole):
    manifest = json.loads((whole / "manifest.json").read_text())
    assert manifest == open_patch_set(whole).manifest
    assert manifest["counts"] == {"patches": 6, "points": 3}
    assert manifest["source"] == {"kind": "tests"}
    assert sorted(manifest["sha256"]) == FILES


def test_the_same_work_gives_the_same_bytes(whole, tmp_path):
    again = write_set(tmp_path / "again")
    for name in [*FILES, "manifest.json"]:
        assert (again / name).read_bytes() == (whole / name).read_bytes()


def test_what_is_opened_cannot_be_changed(whole):
    read = open_patch_set(whole)
    for array in (read.patches, read.labels, read.columns["geometric"], read.pairs["m50_2_2_0"]):
        assert not array.flags.writeable


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
                build.patches[number] = number + 1
            build.finish(np.arange(4), {}, {}, {})
    assert seen == ["a", "b", "c", "c", "d"]
    assert open_patch_set(tmp_path / "set").patches[:, 0, 0].tolist() == [1, 2, 3, 4]


def test_groups_with_gaps_and_singletons(whole):
    groups = open_patch_set(whole).groups()
    assert groups.order.tolist() == [1, 4, 0, 2, 5, 3]
    assert groups.starts.tolist() == [0, 2, 5]
    assert groups.sizes.tolist() == [2, 3, 1]
    assert groups.ranks().tolist() == [1, 0, 1, 2, 0, 1]


@given(st.lists(st.one_of(st.integers(-3, 5), st.integers(-(2**63), 2**63 - 1)), max_size=30))
@example([2**63 - 1, -(2**63)])
@example([-(2**62), 5])
def test_groups_are_the_patches_of_each_label(labels):
    wanted = [[k for k, own in enumerate(labels) if own == label] for label in sorted(set(labels))]
    groups = group_by_label(np.array(labels, np.int64))
    assert [members.tolist() for members in groups.members()] == wanted
    assert all(group in groups.members()[rank] for group, rank in enumerate(groups.ranks()))


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_and_a_missing_file_are_noticed(name, folder):
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 4
    (folder / name).write_bytes(content)
    with refuses(FileError):
        verify(folder)
    (folder / name).unlink()
    with refuses(FileError):
        verify(folder)


@pytest.mark.parametrize("name", ["extra.npy", "pairs/extra.npy", "notes.txt", ".hidden", "deep/er/file"])
def test_an_extra_file_is_noticed(name, folder):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".npy"):
        np.save(folder / name, np.zeros((6, 3), np.int64))
    else:
        (folder / name).write_text("mine")
    with refuses(FileError):
        verify(folder)


def test_a_file_of_another_set_opens_but_is_not_verified(folder):
    np.save(folder / "labels.npy", LABELS[::-1].copy())
    assert np.array_equal(open_patch_set(folder).labels, LABELS[::-1])  # opening checks shapes and counts only
    with refuses(FileError):
        verify(folder)


def test_an_unfinished_build_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt), create_patch_set(tmp_path / "set", 6, 4, {}):
        raise KeyboardInterrupt
    for name in ("set", "set.part"):
        with refuses(FileError):
            open_patch_set(tmp_path / name)


@pytest.mark.parametrize(
    "manifest",
    ["", "{", "[" * 100_000, "[]", '"text"', "{}", '{"format": 2, "sha256": {}}', '{"format": 1}', None],
)
def test_a_foreign_manifest_is_refused(manifest, folder):
    (folder / "manifest.json").unlink()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    with refuses(FileError):
        open_patch_set(folder)


@pytest.mark.parametrize("counts", [{"patches": 7, "points": 3}, None])
def test_a_manifest_with_other_counts_is_refused(counts, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["counts"] = counts
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with refuses(FileError):
        open_patch_set(folder)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("labels.npy", LABELS[:5]),
        ("patches.npy", PATCHES[:5]),
        ("patches.npy", PATCHES[:, :3]),
        ("geometric.npy", np.zeros((5, 2))),
        ("labels.npy", LABELS.astype(np.int32)),
        ("labels.npy", LABELS[:, None]),
        ("labels.npy", np.int64(3)),
        ("patches.npy", PATCHES.astype(np.float32)),
        ("patches.npy", PATCHES[:, None]),
        ("geometric.npy", np.float64(3)),
        ("pairs/none.npy", np.array([[0, 1]])),
        ("pairs/none.npy", np.array([[0.0, 1.0, 1.0]])),
        ("pairs/none.npy", np.int64(3)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, array, folder):
    np.save(folder / name, array)
    with refuses(FileError):
        open_patch_set(folder)


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "hpatches" / "i_one").mkdir(parents=True)
    (tmp_path / "hpatches" / "i_one" / "ref.png").touch()
    (tmp_path / "hpatches" / "manifest.json").write_text('{"format": 1, "kind": "homographies", "sha256": {}}')
    for name in ("absent", "file", "hpatches", "hpatches/i_one", "hpatches/i_one/ref.png"):
        with refuses(FileError):
            open_patch_set(tmp_path / name)


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_a_pickle_in_place_of_an_array_is_refused_and_not_run(folder, tmp_path):
    np.save(folder / "labels.npy", np.array([Evil(tmp_path / "ran")]), allow_pickle=True)
    with refuses(FileError):
        open_patch_set(folder)
    (folder / "labels.npy").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    with refuses(FileError):
        open_patch_set(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_manifest_is_read_or_gives_our_error(whole, folder, data):
    (folder / "manifest.json").write_bytes(damaged(data, (whole / "manifest.json").read_bytes()))
    with contextlib.suppress(MatchKernelError):
        verify(folder)
        assert len(open_patch_set(folder)) == 6
