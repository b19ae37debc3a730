import cv2
import numpy as np
import pytest

from matchkernel.errors import ArgumentError
from matchkernel.geometry.cameras import LARGEST_ANGLE, PROJECTABLE, focal_length, project

FOCALS = {"one": [510.0, 322.0, 239.0], "two": [510.0, 505.0, 322.0, 239.0]}
# model -> focal lengths and centre, distortion in COLMAP's order, the same in OpenCV's
PERSPECTIVE = {
    "SIMPLE_PINHOLE": ("one", [], [0, 0, 0, 0]),
    "PINHOLE": ("two", [], [0, 0, 0, 0]),
    "SIMPLE_RADIAL": ("one", [-0.11], [-0.11, 0, 0, 0]),
    "RADIAL": ("one", [-0.11, 0.03], [-0.11, 0.03, 0, 0]),
    "OPENCV": ("two", [-0.11, 0.03, 2e-3, -3e-3], [-0.11, 0.03, 2e-3, -3e-3]),
    "FULL_OPENCV": ("two", [-0.11, 0.03, 2e-3, -3e-3, 0.004, 0.01, 0.02, 0.003], None),
}
FISHEYE = {
    "SIMPLE_RADIAL_FISHEYE": ("one", [0.05], [0.05, 0, 0, 0]),
    "RADIAL_FISHEYE": ("one", [0.05, -0.01], [0.05, -0.01, 0, 0]),
    "OPENCV_FISHEYE": ("two", [0.05, -0.01, 0.004, -0.002], [0.05, -0.01, 0.004, -0.002]),
}
ALL = {**PERSPECTIVE, **FISHEYE}


def parameters_of(model):
    focals, distortion, _ = ALL[model]
    return np.array(FOCALS[focals] + distortion)


def opencvs(model):
    """OpenCV's camera matrix and distortion."""
    focals, distortion, theirs = ALL[model]
    fx, fy, cx, cy = FOCALS["two"] if focals == "two" else (510.0, 510.0, 322.0, 239.0)
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    return matrix, np.array(distortion if theirs is None else theirs, np.float64)


def points_within(tangent, k=200):
    """Points whose rays stand less than this off the axis, at all depths, one of them on the axis."""
    random = np.random.default_rng(0)
    r, turn, z = random.uniform(0, tangent, k), random.uniform(0, 2 * np.pi, k), np.exp(random.uniform(-3, 5, k))
    r[0] = 0
    return np.column_stack([r * np.cos(turn) * z, r * np.sin(turn) * z, z])


def test_every_projectable_model_is_compared_with_opencv():
    assert set(PROJECTABLE) == set(ALL)


@pytest.mark.parametrize("model", PERSPECTIVE)
def test_perspective_models_project_as_opencv(model):
    points = points_within(0.9)
    expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), *opencvs(model))[0][:, 0]
    places, visible = project(model, parameters_of(model), points)
    assert visible.all()
    assert places == pytest.approx(expected, abs=1e-8)


@pytest.mark.skipif(not hasattr(cv2, "fisheye"), reason="this OpenCV has no fisheye cameras")
@pytest.mark.parametrize("model", FISHEYE)
def test_fisheye_models_project_as_opencv(model):
    points = points_within(4.0)  # 76 degrees off the axis
    expected = cv2.fisheye.projectPoints(points[:, None], np.zeros(3), np.zeros(3), *opencvs(model))[0][:, 0]
    places, visible = project(model, parameters_of(model), points)
    assert visible.all()
    assert places == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("model", FISHEYE)
def test_fisheye_by_hand(model):
    """The distance from the centre is f theta (1 + k1 theta^2 + ...), in the direction of the point."""
    focals, distortion, _ = ALL[model]
    theta, turn = 0.8, 0.7
    point = np.array([[np.tan(theta) * np.cos(turn), np.tan(theta) * np.sin(turn), 1.0]])
    fx, fy = (510.0, 505.0) if focals == "two" else (510.0, 510.0)
    r = theta * (1 + sum(k * theta ** (2 * i) for i, k in enumerate(distortion, 1)))
    expected = [322 + fx * r * np.cos(turn), 239 + fy * r * np.sin(turn)]
    assert project(model, parameters_of(model), 3 * point)[0][0].tolist() == pytest.approx(expected)


def test_a_pinhole_by_hand():
    places, visible = project("PINHOLE", np.array([100.0, 200.0, 50.0, 60.0]), np.array([[1.0, -2.0, 4.0]]))
    assert places.tolist() == [[50 + 100 / 4, 60 - 200 * 2 / 4]]
    assert visible.tolist() == [True]


def test_a_simple_radial_by_hand():
    """u = (0.3, 0.4), r^2 = 0.25, factor 1 - 0.2 / 4."""
    places, _ = project("SIMPLE_RADIAL", np.array([1000.0, 500.0, 400.0, -0.2]), np.array([[0.6, 0.8, 2.0]]))
    assert places[0].tolist() == pytest.approx([500 + 1000 * 0.3 * 0.95, 400 + 1000 * 0.4 * 0.95])


@pytest.mark.parametrize("model", PROJECTABLE)
def test_the_axis_meets_the_centre(model):
    places, visible = project(model, parameters_of(model), np.array([[0.0, 0.0, 0.1], [0.0, 0.0, 1e6]]))
    assert places.tolist() == [pytest.approx([322.0, 239.0])] * 2
    assert visible.all()


@pytest.mark.parametrize("model", PROJECTABLE)
def test_points_behind_beside_and_too_far_off_the_axis_are_masked(model):
    angles = np.array([0.0, 0.5, LARGEST_ANGLE + 0.01, np.pi / 2, 2.0, 3.0, np.pi])
    points = 5 * np.column_stack([np.sin(angles), 0 * angles, np.cos(angles)])
    places, visible = project(model, parameters_of(model), points)
    assert visible.tolist() == [True, True, False, False, False, False, False]
    assert np.isfinite(places[:2]).all()


@pytest.mark.parametrize("model", ["SIMPLE_PINHOLE", "PINHOLE", *FISHEYE])
def test_the_largest_angle_is_still_seen(model):
    angle = LARGEST_ANGLE - 1e-6
    _, visible = project(model, parameters_of(model), np.array([[0.0, np.sin(angle), np.cos(angle)]]))
    assert visible.tolist() == [True]


@pytest.mark.parametrize("model", ["SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"])
def test_points_where_the_distortion_folds_back_are_masked(model):
    """r (1 - r^2 / 3) grows up to r = 1 and comes back beyond: two points would share a pixel."""
    k = {"SIMPLE_RADIAL": 1, "RADIAL": 2, "OPENCV": 4, "FULL_OPENCV": 8}[model]
    focals = FOCALS[ALL[model][0]]
    parameters = np.array([*focals, -1 / 3, *[0.0] * (k - 1)])
    r = np.array([0.5, 0.99, 1.01, 1.5, 1.8, 3.0])
    _, visible = project(model, parameters, np.column_stack([r, 0 * r, 0 * r + 1]))
    assert visible.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("model", FISHEYE)
def test_points_where_a_fisheye_folds_back_are_masked(model):
    """theta (1 - theta^2 / 3) grows up to theta = 1."""
    k = {"SIMPLE_RADIAL_FISHEYE": 1, "RADIAL_FISHEYE": 2, "OPENCV_FISHEYE": 4}[model]
    parameters = np.array([*FOCALS[ALL[model][0]], -1 / 3, *[0.0] * (k - 1)])
    theta = np.array([0.5, 0.99, 1.01, 1.3])
    _, visible = project(model, parameters, np.column_stack([np.sin(theta), 0 * theta, np.cos(theta)]))
    assert visible.tolist() == [True, True, False, False]


@pytest.mark.parametrize("model", ["RADIAL", "RADIAL_FISHEYE"])
def test_points_beyond_a_fold_stay_masked_where_the_polynomial_grows_again(model):
    """k = -1, 0.3: the slope 1 - 3 q + 1.5 q^2 (q = r^2 or theta^2) is negative from q = 0.42 to 1.58."""
    parameters = np.array([500.0, 320.0, 240.0, -1.0, 0.3])
    r = np.sqrt(np.array([0.3, 1.0, 1.7]))
    ray = np.tan(r) if model == "RADIAL_FISHEYE" else r
    _, visible = project(model, parameters, np.column_stack([ray, 0 * ray, 0 * ray + 1]))
    assert visible.tolist() == [True, False, False]


@pytest.mark.parametrize("model", PROJECTABLE)
def test_the_camera_itself_is_masked(model):
    _, visible = project(model, parameters_of(model), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    assert visible.tolist() == [False, True]


@pytest.mark.parametrize("model", PROJECTABLE)
def test_no_points(model):
    places, visible = project(model, parameters_of(model), np.zeros((0, 3)))
    assert places.shape == (0, 2)
    assert visible.shape == (0,)


@pytest.mark.parametrize("model", PROJECTABLE)
def test_the_focal_length_is_the_mean_of_both(model):
    assert focal_length(model, parameters_of(model)) == (507.5 if ALL[model][0] == "two" else 510.0)


@pytest.mark.parametrize("model", ["FOV", "THIN_PRISM_FISHEYE", "opencv", ""])
def test_an_unknown_model_is_refused_by_name(model):
    with pytest.raises(ArgumentError, match=f"camera model {model} cannot be projected; known are PINHOLE"):
        project(model, np.ones(12), np.ones((1, 3)))
