"""Keypoints and lists of matches as COLMAP's text."""

import os

import numpy as np
import pytest
from helpers import refuses

from matchkernel.colmap.text_files import read_keypoints, write_keypoints, write_match_list
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.frames import Frames


@pytest.mark.parametrize("K", [0, 1, 30])
def test_keypoint_text_there_and_back(tmp_path, K):
    random = np.random.default_rng(K)
    frames = Frames.turned_squares(random.uniform(0, 4000, (K, 2)), random.uniform(5, 99, K), random.uniform(-3, 3, K))
    write_keypoints(tmp_path / "a.txt", frames, 3.0)
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert lines[0] == f"{K} 128"
    assert all(len(line.split()) == 132 for line in lines[1:])
    back = read_keypoints(tmp_path / "a.txt", 3.0)
    assert np.abs(back.centers - frames.centers).max(initial=0) < 3e-4
    assert np.abs(back.shapes - frames.shapes).max(initial=0) < 1e-4


def test_keypoints_that_are_not_finite_are_not_written(tmp_path):
    with refuses(ArgumentError):
        write_keypoints(tmp_path / "a.txt", Frames(np.array([[np.nan, 1.0]]), np.eye(2)[None]))
    assert not list(tmp_path.iterdir())


ROW = "1 2 3 0.5" + " 0" * 128


@pytest.mark.parametrize(
    "text",
    [
        *("", "3\n", "1 64\n" + ROW, "2 128\n" + ROW, "1 128\n1 2 3\n", "1 128\n1 2 x 4" + " 0" * 128),
        *("1 128\nnan" + ROW[1:], "999999999999 128\n"),
    ],
)
def test_keypoint_text_that_is_refused(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with refuses(FileError):
        read_keypoints(tmp_path / "a.txt")


def test_a_match_list(tmp_path):
    pairs = [("a.png", "d/b.png", np.array([[0, 2], [1, 1]])), ("a.png", "c.png", np.empty((0, 2), int))]
    assert write_match_list(tmp_path / "m.txt", pairs) == 1
    assert (tmp_path / "m.txt").read_text() == "a.png d/b.png\n0 2\n1 1\n\n"
    for name in ("a b.png", os.fsdecode(b"caf\xe9.png")):
        with refuses(ArgumentError):
            write_match_list(tmp_path / "m.txt", [(name, "c.png", np.array([[0, 0]]))])
