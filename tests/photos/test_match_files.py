"""Files of matches: what is written is read, and everything else is refused in one line."""

import h5py
import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.match_files import PairMatches, read_matches, write_matches


def hloc_get_matches(path, name0, name1):
    """As hloc/utils/io.py reads them, whatever whole number type they have."""
    with h5py.File(path, "r") as file:
        group = file[f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"]
        matches0, scores0 = np.asarray(group["matches0"]), np.asarray(group["matching_scores0"])
    rows = np.where(matches0 != -1)[0]
    return np.stack([rows, matches0[rows]], -1), scores0[rows]


def test_matches_are_read_as_written_and_the_other_way_round(tmp_path):
    path, pairs = tmp_path / "matches.h5", np.array([[0, 5], [3, 1], [4, 4]])
    write_matches(path, [(PairMatches(("db/a.jpg", "b.jpg"), pairs, np.array([0.5, 0.75, 1.0])), 6)])
    indices, scores = hloc_get_matches(path, "db/a.jpg", "b.jpg")
    assert (indices.tolist(), scores.tolist()) == (pairs.tolist(), [0.5, 0.75, 1.0])
    assert read_matches(path, "db/a.jpg", "b.jpg").indices.tolist() == pairs.tolist()
    assert read_matches(path, "b.jpg", "db/a.jpg").indices.tolist() == [[1, 3], [4, 4], [5, 0]]
    write_matches(path, [(PairMatches(("b.jpg", "db/a.jpg"), pairs[:1], np.ones(1)), 2)])  # replaces the pair
    assert read_matches(path, "b.jpg", "db/a.jpg").indices.tolist() == [[0, 5]]
    with h5py.File(path, "r") as file:
        assert file["b.jpg/db-a.jpg/matches0"].dtype == np.int16
        assert "db-a.jpg/b.jpg" not in file
    with refuses(FileError):
        read_matches(path, "a.jpg", "b.jpg")


@pytest.mark.parametrize(("scores", "wanted"), [([0.5, 0.75, 1], [[0, 2], [1, 1]]), ([0.5, 0.5, 1], [[0, 2], [1, 0]])])
def test_matches_that_are_not_mutual_read_the_other_way_round(tmp_path, scores, wanted):
    """Each row of the image named first once, in order, with its best match; of equal ones the first."""
    path, pairs = tmp_path / "matches.h5", np.array([[0, 1], [1, 1], [2, 0]])
    write_matches(path, [(PairMatches(("a", "b"), pairs, np.array(scores)), 3)])
    turned = read_matches(path, "b", "a")
    assert turned.indices.tolist() == wanted
    assert turned.scores.tolist() == [scores[row] for _, row in wanted]
    write_matches(path, [(turned, 2)])
    assert read_matches(path, "b", "a").indices.tolist() == wanted


@pytest.mark.parametrize("pairs", [np.empty((0, 2), int), np.array([[1, 40_000], [32_768, 32_767]])])
def test_no_matches_and_more_keypoints_than_int16_counts(tmp_path, pairs):
    """hloc's writer would make -25,536 of 40,000; int32 passes through its reader unharmed."""
    path = tmp_path / "matches.h5"
    write_matches(path, [(PairMatches(("a", "b"), pairs, np.ones(len(pairs))), 50_000)])
    assert hloc_get_matches(path, "a", "b")[0].tolist() == pairs.tolist()
    found = read_matches(path, "a", "b")
    assert (found.indices.tolist(), found.scores.shape) == (pairs.tolist(), (len(pairs),))


@pytest.mark.parametrize(
    ("indices", "scores"), [([[6, 0]], [1]), ([[-1, 0]], [1]), ([[1, 2], [1, 3]], [1, 1]), ([[1, 2]], [1, 1])]
)
def test_matches_of_keypoints_that_do_not_exist_or_have_two_are_refused(tmp_path, indices, scores):
    with refuses(ArgumentError):
        write_matches(tmp_path / "m.h5", [(PairMatches(("a", "b"), np.array(indices), np.array(scores)), 6)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "values"),
    [("matches0", np.array([-2, 0])), ("matches0", np.array([0.5, 1])), ("matching_scores0", np.ones(3))],
)
def test_wrong_contents_of_matches_are_refused(tmp_path, key, values):
    write_matches(tmp_path / "m.h5", [(PairMatches(("a", "b"), np.array([[0, 1]]), np.ones(1)), 2)])
    with h5py.File(tmp_path / "m.h5", "a") as file:
        del file["a/b"][key]
        file["a/b"].create_dataset(key, data=values)
    with refuses(FileError):
        read_matches(tmp_path / "m.h5", "a", "b")
