import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import check_homography, warp_frames, warp_points

TILTED = np.array([[1.1, 0.2, 30.0], [-0.1, 0.9, -12.0], [2e-4, -3e-4, 1.0]])


@st.composite
def homographies(draw):
    """As between two photographs of a wall of about 640 x 480 pixels, all of it in front."""

    def number(limit):
        return draw(st.floats(-limit, limit))

    linear = np.eye(2) + np.array([[number(0.3), number(0.3)], [number(0.3), number(0.3)]])
    return np.block([[linear, np.array([[number(200)], [number(200)]])], [number(5e-4), number(5e-4), 1.0]])


def grid_of_points():
    x, y = np.meshgrid(np.linspace(0, 640, 5), np.linspace(0, 480, 4))
    return np.column_stack([x.ravel(), y.ravel()])


def grid_of_frames():
    points = grid_of_points()
    k = len(points)
    frames = Frames.turned_squares(points, np.linspace(3, 40, k), np.linspace(-3, 3, k))
    return Frames(frames.centers, frames.shapes @ np.array([[1.0, 0.3], [0.0, 0.6]]))


def test_points_by_hand():
    H = np.array([[2.0, 0.0, 10.0], [0.0, 3.0, -5.0], [0.01, 0.0, 1.0]])
    mapped, in_front = warp_points(H, np.array([[0.0, 0.0], [100.0, 20.0], [50.0, 5.0]]))
    assert mapped.tolist() == [[10.0, -5.0], [210 / 2, 55 / 2], [pytest.approx(110 / 1.5), pytest.approx(10 / 1.5)]]
    assert in_front.tolist() == [True, True, True]


def test_points_behind_the_plane_are_masked_and_hold_no_number():
    """w = 1 - x / 100: in front up to x = 100, on the horizon there, behind beyond."""
    H = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.01, 0.0, 1.0]])
    points = np.array([[0.0, 7.0], [50.0, 7.0], [99.0, 7.0], [100.0, 7.0], [101.0, 7.0]])
    mapped, in_front = warp_points(H, points)
    assert in_front.tolist() == [True, True, True, False, False]
    assert mapped[:3].tolist() == [pytest.approx([0, 7]), pytest.approx([100, 14]), pytest.approx([9900, 700])]
    assert np.isnan(mapped[3:]).all()


@given(homographies(), st.floats(-10, 3), st.booleans())
def test_a_homography_is_known_up_to_a_factor_of_either_sign(H, exponent, negative):
    """Files hold H with any scale; with w < 0 for most points the plane in front is the other one."""
    points = np.concatenate([grid_of_points(), [[-9e4, -9e4], [9e4, 9e4]]])
    plain, in_front = warp_points(H, points)
    scaled, scaled_in_front = warp_points((-1 if negative else 1) * 10**exponent * H, points)
    assert in_front.tolist() == scaled_in_front.tolist()
    assert scaled[in_front] == pytest.approx(plain[in_front], rel=1e-9, abs=1e-9)


def test_a_far_point_does_not_hide_the_others():
    assert warp_points(np.eye(3), np.array([[1.0, 2.0], [3e9, 0.0]]))[1].tolist() == [True, True]


@given(homographies())
def test_shapes_are_the_derivative_times_the_shape(H):
    """Central differences along both half axes; h = 1e-4 leaves about 1e-8 of curvature and rounding."""
    frames = grid_of_frames()
    warped, in_front = warp_frames(H, frames)
    step = 1e-4
    for axis in range(2):
        moves = step * frames.shapes[:, :, axis]
        ahead, behind = (warp_points(H, frames.centers + sign * moves)[0] for sign in (1, -1))
        numeric = (ahead - behind) / (2 * step)
        assert warped.shapes[in_front, :, axis] == pytest.approx(numeric[in_front], rel=1e-4, abs=1e-4)
    assert warped.centers[in_front].tolist() == warp_points(H, frames.centers)[0][in_front].tolist()


@given(homographies())
def test_frames_there_and_back(H):
    frames = grid_of_frames()
    warped, in_front = warp_frames(H, frames)
    back, _ = warp_frames(np.linalg.inv(H), warped[in_front])
    assert back.centers == pytest.approx(frames.centers[in_front], abs=1e-6)
    assert back.shapes == pytest.approx(frames.shapes[in_front], abs=1e-6)


def test_frames_behind_the_plane_keep_their_place_and_number():
    H = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.01, 0.0, 1.0]])
    frames = Frames.turned_squares(np.array([[0.0, 7.0], [500.0, 9.0], [50.0, 7.0]]), np.full(3, 4.0), np.zeros(3))
    warped, in_front = warp_frames(H, frames)
    assert in_front.tolist() == [True, False, True]
    assert warped.centers[1].tolist() == [500.0, 9.0]
    assert warped.shapes[1].tolist() == frames.shapes[1].tolist()


def test_no_points_and_no_frames():
    mapped, in_front = warp_points(TILTED, np.zeros((0, 2)))
    assert mapped.shape == (0, 2)
    assert in_front.shape == (0,)
    warped, in_front = warp_frames(TILTED, Frames(np.zeros((0, 2)), np.zeros((0, 2, 2))))
    assert len(warped) == len(in_front) == 0


@given(homographies(), st.floats(-8, 8))
def test_a_checked_homography_has_norm_root_three_and_maps_alike(H, exponent):
    checked = check_homography(10**exponent * H)
    assert np.linalg.norm(checked) == pytest.approx(np.sqrt(3))
    assert checked / checked[2, 2] == pytest.approx(H)


def test_far_shifts_are_no_singularities():
    """A shift by 10,000 px has condition 1e8 and is harmless."""
    for shift in (100.0, 1000.0, 10_000.0):
        check_homography(np.array([[1.0, 0.0, shift], [0.0, 1.0, shift], [0.0, 0.0, 1.0]]))


@pytest.mark.parametrize(
    "H",
    [
        np.zeros((3, 3)),
        np.ones((3, 3)),
        np.diag([1.0, 0.0, 1.0]),
        np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 1.0]]),
        np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]),  # rank 2 only up to rounding
        np.eye(2),
        np.eye(4),
        np.ones(9),
        np.diag([1.0, np.nan, 1.0]),
        np.diag([1.0, np.inf, 1]),
    ],
)
def test_what_is_not_a_homography_is_refused(H):
    with refuses(ArgumentError):
        check_homography(H)
