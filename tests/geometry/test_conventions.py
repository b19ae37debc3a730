import math

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from matchkernel.errors import ArgumentError
from matchkernel.geometry.conventions import (
    MAGNIFICATION,
    frames_from_colmap,
    frames_from_kornia,
    frames_from_opencv,
    frames_to_colmap,
    frames_to_opencv,
)
from matchkernel.geometry.frames import Frames


@st.composite
def keypoints(draw, largest_angle):
    """(K, 4) x, y, scale or size, and an angle from 0."""
    columns = [(-10.0, 4000.0), (-10.0, 4000.0), (0.5, 200.0), (0.0, largest_angle)]
    k = draw(st.integers(0, 6))
    return np.column_stack([draw(arrays(np.float64, k, elements=st.floats(*limits))) for limits in columns])


def test_the_first_pixel_has_its_centre_at_a_half_in_colmap_and_at_zero_in_opencv():
    assert frames_from_colmap(np.array([[0.5, 0.5, 1.0, 0.0]])).centers.tolist() == [[0.0, 0.0]]
    assert frames_from_opencv(np.array([[0.0, 0.0, 2.0, 0.0]])).centers.tolist() == [[0.0, 0.0]]
    assert frames_to_colmap(Frames(np.zeros((1, 2)), np.eye(2)[None]))[0, :2].tolist() == [0.5, 0.5]
    assert frames_to_opencv(Frames(np.zeros((1, 2)), np.eye(2)[None]))[0, :2].tolist() == [0.0, 0.0]


def test_the_same_point_in_both_programs_gives_the_same_frame():
    """Measured with COLMAP 3.8 and OpenCV 5 on one blob: 0.5 px apart, 8.96 / 2 = 4.48, degrees and radians."""
    opencv = frames_from_opencv(np.array([[100.25, 40.75, 8.96, 30.0]]))
    colmap = frames_from_colmap(np.array([[100.75, 41.25, 4.48, math.pi / 6]]))
    assert opencv.centers == pytest.approx(colmap.centers, abs=1e-12)
    assert opencv.shapes == pytest.approx(colmap.shapes, abs=1e-12)
    assert opencv.half_widths[0] == pytest.approx(6 * 4.48)


def test_the_region_reaches_six_sigma_by_default():
    assert MAGNIFICATION == 6.0
    colmap, opencv = np.array([[5.0, 5.0, 2.0, 1.0]]), np.array([[4.5, 4.5, 4.0, 57.0]])
    assert frames_from_colmap(colmap).half_widths[0] == pytest.approx(12)
    assert frames_from_colmap(colmap, 3.0).half_widths[0] == pytest.approx(6)
    assert frames_from_opencv(opencv).half_widths[0] == pytest.approx(12)
    assert frames_from_opencv(opencv, 3.0).half_widths[0] == pytest.approx(6)


@pytest.mark.parametrize("degrees", [0, 20, 45, 90, 135, 250])
def test_angles_turn_from_x_towards_y_in_both(degrees):
    """The patch's x axis ends at (cos, sin) in an image whose y points down: clockwise on the screen."""
    x_axis = [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]
    opencv = frames_from_opencv(np.array([[0.0, 0.0, 2.0, degrees]]), 1.0)
    colmap = frames_from_colmap(np.array([[0.5, 0.5, 1.0, math.radians(degrees)]]), 1.0)
    for frames in (opencv, colmap):
        assert frames.shapes[0, :, 0].tolist() == pytest.approx(x_axis, abs=1e-12)
        assert frames.shapes[0, :, 1].tolist() == pytest.approx([-x_axis[1], x_axis[0]], abs=1e-12)


@given(keypoints(6.28))
def test_four_and_six_columns_of_colmap_agree(four):
    """COLMAP's own expansion: a11 = s cos, a12 = -s sin, a21 = s sin, a22 = s cos."""
    scale, cos, sin = four[:, 2], np.cos(four[:, 3]), np.sin(four[:, 3])
    six = np.column_stack([four[:, :2], scale * cos, -scale * sin, scale * sin, scale * cos])
    a, b = frames_from_colmap(four), frames_from_colmap(six)
    assert a.centers == pytest.approx(b.centers)
    assert a.shapes == pytest.approx(b.shapes, abs=1e-9)


def test_opencvs_missing_angle_is_upright():
    frames = frames_from_opencv(np.array([[3.0, 4.0, 10.0, -1.0]]))
    assert frames.shapes[0].tolist() == [[30.0, 0.0], [0.0, 30.0]]


@given(keypoints(359.9))
def test_opencv_there_and_back(rows):
    back = frames_to_opencv(frames_from_opencv(rows))
    assert back[:, :3] == pytest.approx(rows[:, :3], rel=1e-12)
    turn = np.abs(back[:, 3] - rows[:, 3])
    assert (np.minimum(turn, 360 - turn) < 1e-9).all()  # 0 may come back as 360 - rounding
    assert ((back[:, 3] >= 0) & (back[:, 3] <= 360)).all()


@given(keypoints(6.28), st.sampled_from([1.0, 6.0, 12.0]))
def test_colmap_there_and_back(rows, magnification):
    """Also for shapes that are no squares. COLMAP stores float32: 2^-24 of each number is lost."""
    squares = frames_from_colmap(rows, magnification)
    frames = Frames(squares.centers, squares.shapes @ np.array([[1.0, 0.4], [0.0, 0.7]]))
    stored = frames_to_colmap(frames, magnification)
    assert stored.dtype == np.float32
    back = frames_from_colmap(stored, magnification)
    assert np.abs(back.centers - frames.centers).max(initial=0) < 4000 * 2**-23
    assert np.abs(back.shapes - frames.shapes).max(initial=0) < 200 * magnification * 1.5 * 2**-23


def test_to_opencv_a_long_region_becomes_the_square_of_its_area():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    row = frames_to_opencv(Frames(np.array([[1.0, 2.0]]), (turn @ np.diag([24.0, 6.0]))[None]))[0]
    assert row.tolist() == pytest.approx([1, 2, 2 * 12 / 6, 90])


def test_no_keypoints():
    for columns in (4, 6):
        assert frames_to_colmap(frames_from_colmap(np.zeros((0, columns), np.float32))).shape == (0, 6)
    for nothing in (np.zeros((0, 4)), []):
        assert frames_to_opencv(frames_from_opencv(nothing)).shape == (0, 4)


@pytest.mark.parametrize(
    ("read", "keypoints"),
    [
        *((frames_from_colmap, np.ones(shape)) for shape in [(3, 2), (3, 3), (3, 5), (3, 7), (0, 2), (4,), (2, 3, 4)]),
        # Four rows x, y, size, angle, response, octave must not turn into six scrambled keypoints.
        *((frames_from_opencv, np.ones(shape)) for shape in [(4, 6), (4, 5), (2, 2), (2, 3, 4)]),
        (frames_from_opencv, np.array([[1.0, 2, 3, 4], [1, 2, -3, 4]])),
        *((frames_from_kornia, np.ones(shape)) for shape in [(3, 3, 2), (1, 3, 2, 3), (2, 3), (3, 2, 2)]),
    ],
)
def test_other_shapes_and_negative_sizes_are_refused(read, keypoints):
    with refuses(ArgumentError):
        read(keypoints)
