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
            patches = random.integers(0, 256, (len(labels), side, side), dtype=np.uint8)
            build.store(range(len(labels)), patches)
        build.finish(labels, {}, {}, {"source": {"kind": "tests"}})
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two synthetic sets with labels 0, 1, 2, ..., an empty one, and one with gaps, negative labels and a singleton."""
    folder = tmp_path_factory.mktemp("sets")
    build_synthetic(folder / "a", SyntheticSettings(points=6, patches=3, size=16))
    build_synthetic(folder / "b", SyntheticSettings(points=4, patches=2, size=16, seed=1))
    write_set(folder / "c", [], side=16)
    write_set(folder / "d", [-9, 10**12, -9, 10**12, 5, -(2**63)], side=16)
    return [folder / name for name in "abcd"]


@pytest.fixture(scope="module")
def joined(folders):
    """The sets joined, and all their patches."""
    sets = open_sets(folders)
    return TrainingSet(sets), np.concatenate([part.patches for part in sets])


def test_points_of_different_sets_are_different_points(joined, folders):
    """Two patches share a label if they are of the same set and did so there, and only then."""
    together, _ = joined
    assert (len(together), together.side) == (18 + 8 + 6, 16)
    of_set = np.repeat([0, 1, 3], [18, 8, 6])
    own = np.concatenate([part.labels for part in open_sets(folders)])
    is_same = (of_set[:, None] == of_set) & (own[:, None] == own)
    assert np.array_equal(together.labels[:, None] == together.labels, is_same)


@given(st.lists(st.integers(0, 31), max_size=40), st.booleans())
def test_patches_are_gathered_in_any_order_across_sets_and_the_shape_is_kept(joined, index, in_pairs):
    together, patches = joined
    index = np.array(index, np.int64)
    index = index[: len(index) // 2 * 2].reshape(-1, 2).T if in_pairs else index  # anchors and positives
    found = together.gather(index)
    assert found.dtype == np.uint8
    assert np.array_equal(found, patches[index])
    found[:] = 0  # a copy
    assert np.array_equal(together.gather(np.arange(32)), patches)


def test_sets_that_cannot_be_joined_are_refused(folders, tmp_path):
    small = write_set(tmp_path / "small", [1, 1, 2, 2], side=8)
    for chosen in ([folders[0], small], [folders[0], folders[1], folders[0]], []):
        with refuses(ArgumentError):
            TrainingSet(open_sets(chosen))
    with refuses(FileError):
        open_sets([folders[0], tmp_path / "absent"])


def test_identity_is_that_of_patches_and_labels_in_order(folders, tmp_path):
    """Neither the folder nor the recorded source matters."""
    choices = [[0], [1], [0, 1], [1, 0], [0, 1, 3], [0, 3, 1], [0, 0], [0, 0, 1]]
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
