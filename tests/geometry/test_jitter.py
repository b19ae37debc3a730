"""Random changes of frames stay within their bounds, and the overlap of regions equals the closed forms."""

import math

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.jitter import Jitter, jittered, overlaps

STRONG = Jitter(shift=0.2, octaves=0.5, degrees=25.0, stretch=0.7)


def some_frames(k=500, seed=0):
    """Turned, stretched, some of them mirrored: jitter lives in the patch, whatever the frame."""
    random = np.random.default_rng(seed)
    return Frames(random.uniform(0, 1000, (k, 2)), random.normal(0, 20, (k, 2, 2)) + 30 * np.eye(2))


def changes(before, after):
    """The change of every frame in the coordinates of its patch: a shift and a matrix."""
    back = np.linalg.inv(before.shapes)
    return (back @ (after.centers - before.centers)[..., None])[..., 0], back @ after.shapes


def octaves_of_stretch(matrices):
    values = np.linalg.svd(matrices, compute_uv=False)
    return np.log2(values[:, 0] / values[:, 1])


def test_the_same_seed_gives_the_same_frames_and_another_does_not():
    frames = some_frames()
    a, b, c = (jittered(frames, STRONG, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert a.centers.tobytes() == b.centers.tobytes()
    assert a.shapes.tobytes() == b.shapes.tobytes()
    assert (a.centers != c.centers).any(axis=1).all()
    assert (a.shapes != c.shapes).any(axis=(1, 2)).all()


def test_no_jitter_leaves_frames_where_they_are():
    frames = some_frames()
    same = jittered(frames, Jitter(0, 0, 0, 0), np.random.default_rng(0))
    assert same.centers.tolist() == frames.centers.tolist()
    assert np.abs(same.shapes - frames.shapes).max() < 1e-12  # a turn by the direction of no stretch, and back


@given(st.floats(0, 0.5), st.floats(0, 2), st.floats(0, 90), st.floats(0, 2), st.integers(0, 2**32 - 1))
def test_no_change_is_larger_than_allowed(shift, octaves, degrees, stretch, seed):
    frames = some_frames(20)
    after = jittered(frames, Jitter(shift, octaves, degrees, stretch), np.random.default_rng(seed))
    shifts, matrices = changes(frames, after)
    assert np.abs(shifts).max() <= shift + 1e-9
    assert np.abs(np.log2(after.half_widths / frames.half_widths)).max() <= octaves + 1e-9
    assert octaves_of_stretch(matrices).max() <= stretch + 1e-9
    assert (np.linalg.det(matrices) > 0).all()  # nothing is mirrored


@given(st.floats(0, 170), st.integers(0, 2**32 - 1))
def test_without_stretch_the_change_is_a_turn_within_bounds(degrees, seed):
    frames = some_frames(20)
    after = jittered(frames, Jitter(0.1, 0.0, degrees, 0.0), np.random.default_rng(seed))
    matrices = changes(frames, after)[1]
    assert matrices @ matrices.transpose(0, 2, 1) == pytest.approx(np.broadcast_to(np.eye(2), (20, 2, 2)), abs=1e-9)
    turns = np.rad2deg(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    assert np.abs(turns).max() <= degrees + 1e-9


def test_changes_fill_the_allowed_range_to_both_sides():
    """Of 500 uniform draws the largest is above 0.97 of the bound with probability 1 - 5e-4 (1 - 0.985^500)."""
    frames = some_frames(500)
    shifts, matrices = changes(frames, jittered(frames, STRONG, np.random.default_rng(0)))
    scales = np.log2(np.linalg.det(matrices)) / 2
    for values, bound in ((shifts[:, 0], 0.2), (shifts[:, 1], 0.2), (scales, 0.5)):
        assert values.min() < -0.97 * bound
        assert values.max() > 0.97 * bound
        assert abs(values.mean()) < 0.15 * bound  # 6 standard errors: sqrt(1 / 3 / 500) = 0.026
    assert octaves_of_stretch(matrices).max() > 0.97 * 0.7
    unstretched = Jitter(STRONG.shift, STRONG.octaves, STRONG.degrees, 0.0)
    matrices = changes(frames, jittered(frames, unstretched, np.random.default_rng(0)))[1]
    turns = np.rad2deg(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))
    assert turns.min() < -0.97 * 25
    assert turns.max() > 0.97 * 25


def test_a_shift_is_measured_in_half_sides_along_the_axes_of_the_patch():
    """A frame twice as large and turned by a quarter gets the same draw, twice as long and turned."""
    upright = Frames.turned_squares(np.zeros((1, 2)), np.array([10.0]), np.zeros(1))
    turned = Frames.turned_squares(np.zeros((1, 2)), np.array([20.0]), np.array([np.pi / 2]))
    a, b = (jittered(frames, STRONG, np.random.default_rng(7)) for frames in (upright, turned))
    x, y = a.centers[0]
    assert b.centers[0].tolist() == pytest.approx([-2 * y, 2 * x])
    assert b.shapes[0] == pytest.approx(np.array([[0.0, -2.0], [2.0, 0.0]]) @ a.shapes[0])


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


def test_disjoint_frames_have_nothing_in_common():
    assert overlaps(circle(1), circle(1, x=2.01)).tolist() == [0.0]
    assert overlaps(circle(1), circle(1, x=1.5, y=1.5)).tolist() == [0.0]  # their squares do meet
    assert overlaps(circle(1e-3), circle(1e-3, x=500)).tolist() == [0.0]


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
def test_an_affine_change_of_the_image_changes_nothing(x, y, a, b, angle):
    """Both are sampled in the first frame's own coordinates, so only rounding at the boundary is left."""
    first, second = circle(1.0), ellipse(x, y, a, b, angle)
    A, t = np.array([[3.0, 1.0], [-0.5, -2.0]]), np.array([100.0, -7.0])
    moved = [Frames(frames.centers @ A.T + t, A @ frames.shapes) for frames in (first, second)]
    assert overlaps(*moved)[0] == pytest.approx(overlaps(first, second)[0], abs=0.005)


def test_no_frames_and_lists_of_different_lengths():
    nothing = some_frames(0)
    assert len(jittered(nothing, STRONG, np.random.default_rng(0))) == 0
    assert overlaps(nothing, nothing).shape == (0,)
    with refuses(ArgumentError):
        overlaps(some_frames(1), some_frames(3))
