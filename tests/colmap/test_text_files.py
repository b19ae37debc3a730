"""Keypoints and lists of matches as COLMAP's text."""

import os
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    with pytest.raises(ArgumentError, match="not finite"):
        write_keypoints(tmp_path / "a.txt", Frames(np.array([[np.nan, 1.0]]), np.eye(2)[None]))
    assert not list(tmp_path.iterdir())


ROW = "1 2 3 0.5" + " 0" * 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1"), ("3\n", "line 1"), ("1 64\n" + ROW, "128 bytes"), ("2 128\n" + ROW, "has 1 lines"),
        ("1 128\n1 2 3\n", "line 2"), ("1 128\n1 2 x 4" + " 0" * 128, "line 2"), ("1 128\nnan" + ROW[1:], "not finite"),
        ("999999999999 128\n", "has 0 lines"),
    ],
)  # fmt: skip
def test_keypoint_text_that_is_refused(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(FileError, match=message):
        read_keypoints(tmp_path / "a.txt")


@given(st.binary(max_size=300) | st.text("0123456789 .-e\n", max_size=300).map(str.encode))
def test_anything_else_gives_our_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.txt"
    path.write_bytes(content)
    with suppress(FileError):
        read_keypoints(path)


def test_a_match_list(tmp_path):
    pairs = [("a.png", "d/b.png", np.array([[0, 2], [1, 1]])), ("a.png", "c.png", np.empty((0, 2), int))]
    assert write_match_list(tmp_path / "m.txt", pairs) == 1
    assert (tmp_path / "m.txt").read_text() == "a.png d/b.png\n0 2\n1 1\n\n"
    with pytest.raises(ArgumentError, match="separate names with spaces"):
        write_match_list(tmp_path / "m.txt", [("a b.png", "c.png", np.array([[0, 0]]))])
    with pytest.raises(ArgumentError, match="UTF-8"):
        write_match_list(tmp_path / "m.txt", [("a.png", os.fsdecode(b"caf\xe9.png"), np.array([[0, 0]]))])
