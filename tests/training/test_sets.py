"""matchkernel/training/sets.py: sets joined, and what identifies them."""

import json
import shutil

import numpy as np
import pytest
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


@pytest.fixture
def three(folders):
    return TrainingSet(open_sets(folders))


def test_sets_follow_each_other(three, folders):
    assert len(three) == 18 + 8 + 6
    assert three.side == 16
    patches = np.concatenate([s.patches for s in open_sets(folders)])
    assert np.array_equal(three.gather_all(), patches)
    assert three.gather_all().dtype == np.uint8


def test_a_point_of_one_set_is_never_a_point_of_another(three, folders):
    """Two patches share a label if they are of the same set and did so there, and only then."""
    of_set = np.repeat([0, 1, 2], [18, 8, 6])
    own = np.concatenate([s.labels for s in open_sets(folders)])
    expected = (of_set[:, None] == of_set) & (own[:, None] == own)
    assert np.array_equal(three.labels[:, None] == three.labels, expected)
    assert len(np.unique(three.labels)) == 6 + 4 + 4


def test_the_same_set_twice_is_refused(folders):
    with pytest.raises(ArgumentError, match="contain the same patches"):
        TrainingSet(open_sets([folders[0], folders[1], folders[0]]))


@given(st.lists(st.integers(0, 31), max_size=40))
def test_patches_are_gathered_in_any_order_across_sets(gathered_from, index):
    three, patches = gathered_from
    found = three.gather(np.array(index, np.int64))
    assert found.dtype == np.uint8
    assert np.array_equal(found, patches[index])


@pytest.fixture(scope="module")
def gathered_from(folders):
    sets = open_sets(folders)
    return TrainingSet(sets), np.concatenate([s.patches for s in sets])


def test_the_shape_of_the_index_is_kept(gathered_from):
    three, patches = gathered_from
    index = np.random.default_rng(0).permutation(32)[:30].reshape(2, 15)  # anchors and positives
    assert np.array_equal(three.gather(index), patches[index])
    assert three.gather(index.T).shape == (15, 2, 16, 16)
    assert np.array_equal(three.gather(index.T), patches[index.T])
    assert three.gather(np.zeros((2, 0), np.int64)).shape == (2, 0, 16, 16)


def test_what_is_gathered_is_a_copy(gathered_from):
    """The memory maps are read-only, and what is changed must not be the set."""
    three, patches = gathered_from
    found = three.gather(np.arange(32))
    found[:] = 0
    assert np.array_equal(three.gather(np.arange(32)), patches)


@pytest.mark.parametrize("number", [-1, 32, 10**6])
def test_a_number_that_is_not_there_is_refused(gathered_from, number):
    with pytest.raises(ArgumentError):
        gathered_from[0].gather(np.array([0, number]))


def test_an_empty_set_among_others_changes_nothing(folders, tmp_path):
    empty = write_set(tmp_path / "empty", [], side=16)
    with_it, without = TrainingSet(open_sets([folders[0], empty, folders[1]])), TrainingSet(open_sets(folders[:2]))
    assert np.array_equal(with_it.labels, without.labels)
    index = np.array([20, 3, 17, 18])
    assert np.array_equal(with_it.gather(index), without.gather(index))
    assert np.array_equal(with_it.gather_all(), without.gather_all())


def test_sets_with_patches_of_different_sides_are_refused(folders, tmp_path):
    small = write_set(tmp_path / "small", [1, 1, 2, 2], side=8)
    with pytest.raises(ArgumentError, match=r"the same patch size can be joined, these have \[8, 16\] px"):
        TrainingSet(open_sets([folders[0], small]))
    with pytest.raises(ArgumentError):
        TrainingSet([])


def test_a_set_that_is_not_there_is_named(folders, tmp_path):
    with pytest.raises(FileError) as caught:
        open_sets([folders[0], tmp_path / "absent"])
    assert str(caught.value).startswith(str(tmp_path / "absent"))


def test_identity_does_not_depend_on_where_the_sets_lie(three, folders, tmp_path):
    moved = [shutil.copytree(folder, tmp_path / f"moved {k}") for k, folder in enumerate(folders)]
    assert TrainingSet(open_sets(moved)).identity == three.identity
    assert identity(open_sets(moved)) == three.identity
    assert len(three.identity) == 64


def test_identity_depends_on_the_order_and_number_of_the_sets(folders):
    choices = [[0], [1], [0, 1], [1, 0], [0, 1, 2], [0, 2, 1], [0, 0], [0, 0, 1]]
    identities = {identity(open_sets([folders[k] for k in choice])) for choice in choices}
    assert len(identities) == len(choices)
    assert identity([]) not in identities


def test_identity_depends_on_every_patch_and_every_label(tmp_path):
    base = write_set(tmp_path / "base", [1, 1, 2, 2])
    same = write_set(tmp_path / "same", [1, 1, 2, 2])
    labels = write_set(tmp_path / "labels", [1, 2, 1, 2])
    patches = write_set(tmp_path / "patches", [1, 1, 2, 2], seed=1)
    fewer = write_set(tmp_path / "fewer", [1, 1, 2])
    ours = identity(open_sets([base]))
    assert identity(open_sets([same])) == ours
    assert len({ours, *(identity(open_sets([other])) for other in (labels, patches, fewer))}) == 4


def test_identity_does_not_depend_on_what_is_said_about_the_patches(tmp_path):
    """The source in the manifest may be worded otherwise: the patches are the same."""
    folder = write_set(tmp_path / "set", [1, 1, 2, 2])
    before = identity(open_sets([folder]))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "source": {"kind": "elsewhere"}}))
    assert identity(open_sets([folder])) == before
