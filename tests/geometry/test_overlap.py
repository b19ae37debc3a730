import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.geometry.frames import Frames
from matchkernel.geometry.jitter import overlaps

# 3,200 points in the disc: a boundary of length 2 pi crosses some 200 cells, of which each is wrong by half at most.
TOLERANCE = 0.02

MOVES = st.floats(-1.5, 1.5)
ANGLES = st.floats(-math.pi, math.pi)
RADII = st.floats(0.3, 3.0)


def circle(radius, x=0.0, y=0.0):
    return Frames(np.array([[x, y]]), np.array([[[radius, 0.0], [0.0, radius]]]))


def ellipse(x, y, a, b, angle):
    frames = Frames.turned_squares(np.array([[x, y]]), np.ones(1), np.array([angle]))
    return Frames(frames.centers, frames.shapes * np.array([a, b]))


def lens(d):
    """Intersection over union of two unit circles whose centres are d apart."""
    common = 2 * math.acos(d / 2) - d / 2 * math.sqrt(4 - d * d)
    return common / (2 * math.pi - common)


@given(MOVES, MOVES, RADII, RADII, ANGLES)
def test_a_frame_overlaps_itself_wholly(x, y, a, b, angle):
    frames = ellipse(x, y, a, b, angle)
    assert overlaps(frames, frames)[0] == pytest.approx(1, abs=1e-9)


def test_a_square_and_its_turned_self_have_the_same_circle():
    """Regions are compared by their ellipses: the angle of a square does not count."""
    angles = np.linspace(0, 3, 7)
    upright, turned = (Frames.turned_squares(np.ones((7, 2)), np.full(7, 9.0), a) for a in (0 * angles, angles))
    assert overlaps(upright, turned) == pytest.approx(np.ones(7), abs=1e-9)


def test_disjoint_frames_have_nothing_in_common():
    assert overlaps(circle(1), circle(1, x=2.01)).tolist() == [0.0]
    assert overlaps(circle(1), circle(1, x=1.5, y=1.5)).tolist() == [0.0]  # their squares do meet
    assert overlaps(circle(1e-3), circle(1e-3, x=500)).tolist() == [0.0]


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
def test_concentric_circles_overlap_by_the_ratio_of_areas(radius):
    assert overlaps(circle(1), circle(radius))[0] == pytest.approx(radius**2, abs=TOLERANCE)
    assert overlaps(circle(radius), circle(1))[0] == pytest.approx(radius**2, abs=TOLERANCE)


@pytest.mark.parametrize("d", [0.05, 0.2, 0.5, 1.0, 1.5, 1.9])
@pytest.mark.parametrize("direction", [0.0, 0.6, 2.0])
def test_shifted_circles_share_a_lens(d, direction):
    found = overlaps(circle(1), circle(1, d * math.cos(direction), d * math.sin(direction)))[0]
    assert found == pytest.approx(lens(d), abs=TOLERANCE)


@pytest.mark.parametrize("stretch", [1.5, 2, 4])
def test_crossed_ellipses(stretch):
    """Semi-axes (s, 1) and (1, s): the common part is four sectors of angle atan(1 / s) of an ellipse."""
    common = 4 * stretch * math.atan(1 / stretch)
    expected = common / (2 * math.pi * stretch - common)
    assert overlaps(ellipse(0, 0, stretch, 1, 0), ellipse(0, 0, 1, stretch, 0))[0] == pytest.approx(
        expected, abs=TOLERANCE
    )


@given(MOVES, MOVES, RADII, RADII, ANGLES)
def test_the_order_does_not_matter(x, y, a, b, angle):
    first, second = circle(1.0), ellipse(x, y, a, b, angle)
    there, back = overlaps(first, second)[0], overlaps(second, first)[0]
    assert there == pytest.approx(back, abs=0.03)  # each is sampled on its own disc
    assert 0 <= there <= 1 + 1e-9


@given(MOVES, MOVES, RADII, RADII, ANGLES)
def test_an_affine_change_of_the_image_changes_nothing(x, y, a, b, angle):
    """Both are sampled in the first frame's own coordinates, so only rounding at the boundary is left."""
    first, second = circle(1.0), ellipse(x, y, a, b, angle)
    A, t = np.array([[3.0, 1.0], [-0.5, -2.0]]), np.array([100.0, -7.0])
    moved = [Frames(frames.centers @ A.T + t, A @ frames.shapes) for frames in (first, second)]
    assert overlaps(*moved)[0] == pytest.approx(overlaps(first, second)[0], abs=0.005)


def test_pairs_are_taken_in_order():
    radii = np.array([1.0, 0.5, 0.25])
    first = Frames.turned_squares(np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 90.0]]), np.ones(3), np.zeros(3))
    second = Frames.turned_squares(first.centers, radii, np.zeros(3))
    assert overlaps(first, second) == pytest.approx(radii**2, abs=TOLERANCE)


def test_no_pairs():
    nothing = Frames(np.zeros((0, 2)), np.zeros((0, 2, 2)))
    assert overlaps(nothing, nothing).shape == (0,)


def test_lists_of_different_lengths_give_no_numbers_that_are_no_overlaps():
    """Refused or broadcast rightly, either would do."""
    three = Frames.turned_squares(np.zeros((3, 2)), np.array([1.0, 0.5, 0.25]), np.zeros(3))
    try:
        found = overlaps(three[:1], three)
    except ValueError:
        return
    assert found == pytest.approx([1, 0.25, 0.0625], abs=TOLERANCE)
