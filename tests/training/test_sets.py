"""matchkernel/training/sets.py: joined sets, and their identity."""

import json
import shutil

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.data.patch_set import create_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError
from matchkernel.training.sets import TrainingSet, identity, open_sets


def write_set(folder, labels, side=8, seed=0):
    """A set with these labels and random patches."""
    labels = np.array(labels, np.int64)
    with create_patch_set(folder, len(labels), side, {"of": "the tests"}) as build:
        for _ in build.steps(["all"] if len(labels) else []):
            random = np.random.default_rng(seed)
            build.patches[:] = random.integers(0, 256, (len(labels), side, side), dtype=np.uint8)
        build.finish(labels, {}, {}, {"source": {"kind": "tests"}})
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two synthetic sets whose labels are both 0, 1, 2, ..., and one with gaps, negative labels and a singleton."""
    folder = tmp_path_factory.mktemp("sets")
    build_synthetic(folder / "a", SyntheticSettings(points=6, patches=3, size=16))
    build_synthetic(folder / "b", SyntheticSettings(points=4, patches=2, size=16, seed=1))
    write_set(folder / "c", [-9, 10**12, -9, 10**12, 5, -(2**63)], side=16)
    return [folder / name for name in "abc"]


@pytest.fixture(scope="module")
def joined(folders):
    """The three sets joined, and all their patches."""
    sets = open_sets(folders)
    return TrainingSet(sets), np.concatenate([part.patches for part in sets])


def test_points_of_different_sets_are_different_points(joined, folders):
    """Two patches share a label if they are of the same set and did so there, and only then."""
    three, _ = joined
    assert (len(three), three.side) == (18 + 8 + 6, 16)
    of_set = np.repeat([0, 1, 2], [18, 8, 6])
    own = np.concatenate([part.labels for part in open_sets(folders)])
    assert np.array_equal(three.labels[:, None] == three.labels, (of_set[:, None] == of_set) & (own[:, None] == own))


@given(st.lists(st.integers(0, 31), max_size=40))
def test_patches_are_gathered_in_any_order_across_sets(joined, index):
    three, patches = joined
    found = three.gather(np.array(index, np.int64))
    assert found.dtype == np.uint8
    assert np.array_equal(found, patches[index])
    found[:] = 0  # a copy
    assert np.array_equal(three.gather(np.arange(32)), patches)


def test_the_shape_of_the_index_is_kept(joined):
    three, patches = joined
    index = np.random.default_rng(0).permutation(32)[:30].reshape(15, 2).T  # anchors and positives
    assert np.array_equal(three.gather(index), patches[index])
    assert three.gather(np.zeros((2, 0), np.int64)).shape == (2, 0, 16, 16)


def test_an_empty_set_among_others_changes_nothing(folders, tmp_path):
    empty = write_set(tmp_path / "empty", [], side=16)
    with_it, without = TrainingSet(open_sets([folders[0], empty, folders[1]])), TrainingSet(open_sets(folders[:2]))
    assert np.array_equal(with_it.labels, without.labels)
    index = np.array([20, 3, 17, 18])
    assert np.array_equal(with_it.gather(index), without.gather(index))


def test_sets_that_cannot_be_joined_are_refused(folders, tmp_path):
    small = write_set(tmp_path / "small", [1, 1, 2, 2], side=8)
    for chosen in ([folders[0], small], [folders[0], folders[1], folders[0]], []):
        with refuses(ArgumentError):
            TrainingSet(open_sets(chosen))
    with refuses(FileError):
        open_sets([folders[0], tmp_path / "absent"])


def test_identity_is_that_of_patches_and_labels_in_order(folders, tmp_path):
    """Neither the folder nor the recorded source matters."""
    choices = [[0], [1], [0, 1], [1, 0], [0, 1, 2], [0, 2, 1], [0, 0], [0, 0, 1]]
    identities = {identity(open_sets([folders[k] for k in choice])) for choice in choices}
    assert len(identities | {identity([])}) == len(choices) + 1
    moved = [shutil.copytree(folder, tmp_path / f"moved {k}") for k, folder in enumerate(folders)]
    assert identity(open_sets(moved)) == identity(open_sets(folders))
    made = {"base": [1, 1, 2, 2], "same": [1, 1, 2, 2], "labels": [1, 2, 1, 2], "fewer": [1, 1, 2]}
    parts = {name: write_set(tmp_path / name, labels) for name, labels in made.items()}
    parts["patches"] = write_set(tmp_path / "patches", [1, 1, 2, 2], seed=1)
    manifest = json.loads((parts["same"] / "manifest.json").read_text())
    (parts["same"] / "manifest.json").write_text(json.dumps({**manifest, "source": {"kind": "elsewhere"}}))
    found = {name: identity(open_sets([folder])) for name, folder in parts.items()}
    assert found["same"] == found["base"]
    assert len(set(found.values())) == 4
