import dataclasses
import math

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames

ANGLES = st.floats(-3.1, 3.1)  # short of pi, where -pi and pi are the same direction
PLACES = st.floats(-5e3, 5e3)
HALF_WIDTHS = st.floats(0.1, 1e3)


def one(center, shape):
    return Frames(np.array([center]), np.array([shape]))


def test_a_turn_takes_x_towards_y():
    """A sixth of a circle, by hand: the patch's x axis points right and down, its y axis left and down."""
    frames = Frames.turned_squares(np.array([[10.0, 20.0]]), np.array([4.0]), np.array([math.pi / 3]))
    half_root = math.sqrt(3) / 2
    assert frames.shapes[0].tolist() == [
        pytest.approx([4 * 0.5, -4 * half_root]),
        pytest.approx([4 * half_root, 4 * 0.5]),
    ]
    assert frames.centers.tolist() == [[10.0, 20.0]]


@given(PLACES, PLACES, HALF_WIDTHS, ANGLES)
def test_half_width_and_angle_of_a_turned_square_come_back(x, y, half_width, angle):
    frames = Frames.turned_squares(np.array([[x, y]]), np.array([half_width]), np.array([angle]))
    assert frames.half_widths[0] == pytest.approx(half_width, rel=1e-12)
    assert frames.angles[0] == pytest.approx(angle, abs=1e-12)


def test_corners_by_hand_in_the_order_of_the_patch_round():
    frames = one([5.0, 7.0], [[2.0, 1.0], [0.0, 3.0]])
    assert frames.corners()[0].tolist() == [[2.0, 4.0], [6.0, 4.0], [8.0, 10.0], [4.0, 10.0]]


def test_half_width_is_that_of_the_square_of_equal_area_also_for_a_mirrored_shape():
    assert one([0.0, 0.0], [[8.0, 0.0], [0.0, 2.0]]).half_widths[0] == pytest.approx(4.0)
    assert one([0.0, 0.0], [[8.0, 0.0], [0.0, -2.0]]).half_widths[0] == pytest.approx(4.0)
    assert one([0.0, 0.0], [[8.0, 5.0], [0.0, 2.0]]).half_widths[0] == pytest.approx(4.0)  # a shear keeps the area


def test_angle_is_the_direction_of_the_patchs_x_axis():
    assert one([0.0, 0.0], [[0.0, -9.0], [2.0, 5.0]]).angles[0] == pytest.approx(math.pi / 2)


def test_an_image_reaches_half_a_pixel_beyond_the_centres_of_its_pixels():
    """10 x 6 pixels cover -0.5 to 9.5 and -0.5 to 5.5: the largest region inside has its centre at (4.5, 2.5)."""
    whole = one([4.5, 2.5], [[5.0, 0.0], [0.0, 3.0]])
    assert whole.are_inside(10, 6).tolist() == [True]
    for dx, dy in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        assert Frames(whole.centers + np.array([dx, dy]), whole.shapes).are_inside(10, 6).tolist() == [False]
    assert whole.are_inside(6, 10).tolist() == [False]  # width comes first


def test_choosing_keeps_centres_and_shapes_together():
    frames = Frames.turned_squares(np.arange(10.0).reshape(5, 2), np.arange(1.0, 6), np.zeros(5))
    for chosen, kept in (
        (slice(1, 3), [1, 2]),
        ([4, 0], [4, 0]),
        (np.array([True, False, False, True, False]), [0, 3]),
        (np.array([], np.int64), []),
    ):
        part = frames[chosen]
        assert len(part) == len(kept)
        assert part.centers.tolist() == [[2.0 * k, 2.0 * k + 1] for k in kept]
        assert part.half_widths.tolist() == pytest.approx([k + 1.0 for k in kept])


def test_no_frames_are_frames_too():
    frames = Frames(np.zeros((0, 2)), np.zeros((0, 2, 2)))
    assert len(frames) == 0
    assert frames.half_widths.shape == frames.angles.shape == frames.are_inside(5, 5).shape == (0,)
    assert frames.corners().shape == (0, 4, 2)
    assert len(Frames.turned_squares(np.zeros((0, 2)), np.zeros(0), np.zeros(0))) == 0


def test_numbers_become_float64_and_frames_cannot_be_changed():
    frames = Frames(np.zeros((1, 2), np.float32), np.ones((1, 2, 2), np.int32))
    assert frames.centers.dtype == frames.shapes.dtype == np.float64
    with pytest.raises(dataclasses.FrozenInstanceError):
        frames.centers = np.ones((1, 2))


@pytest.mark.parametrize(
    ("centers", "shapes"),
    [((2,), (1, 2, 2)), ((3, 3), (3, 2, 2)), ((3, 2), (2, 2, 2)), ((3, 2), (3, 2, 3)), ((3, 2), (3, 4)), ((0,), (0,))],
)
def test_other_shapes_of_arrays_are_refused(centers, shapes):
    with refuses(ArgumentError):
        Frames(np.zeros(centers), np.zeros(shapes))
