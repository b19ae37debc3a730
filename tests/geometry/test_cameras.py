import json

import cv2
import numpy as np
import pytest
from helpers import refuses

from matchkernel.colmap.model import CAMERA_MODELS
from matchkernel.errors import ArgumentError
from matchkernel.geometry.cameras import LARGEST_ANGLE, PROJECTABLE, focal_length, project, unproject

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
OTHERS = {  # OpenCV has none of these
    "FOV": ("two", [0.9], None),
    "SIMPLE_DIVISION": ("one", [-0.2], None),
    "DIVISION": ("two", [-0.05], None),
    "SIMPLE_FISHEYE": ("one", [], None),
    "FISHEYE": ("two", [], None),
    "EUCM": ("two", [0.6, 1.1], None),
}
ALL = {**PERSPECTIVE, **FISHEYE, **OTHERS}


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


def test_every_model_projects_as_colmap_does(golden):
    """Places computed by pycolmap 4.2.1, to nine decimals; models without a projection here are refused by name."""
    written = json.loads((golden / "colmap_4.2" / "projections.json").read_text())
    points, cameras = np.array(written["points"]), written["cameras"]
    assert cameras.keys() == CAMERA_MODELS.keys()
    assert set(PROJECTABLE) == set(ALL)
    for model, camera in cameras.items():
        parameters = np.array(camera["parameters"], np.float64)
        if model in PROJECTABLE:
            places, visible = project(model, parameters, points)
            assert visible.all(), model
            assert np.abs(places - camera["places"]).max() < 1e-8, model
        else:
            with refuses(ArgumentError):
                project(model, parameters, points)
            with refuses(ArgumentError):
                unproject(model, parameters, points[:, :2])
        assert 90 < focal_length(model, parameters) < 520, model


@pytest.mark.parametrize("angle", [0.0, 1e-9])
def test_a_fov_camera_without_distortion_is_a_pinhole(angle):
    places, _ = project("FOV", np.array([100.0, 200.0, 7.0, 9.0, angle]), np.array([[1.5, 0.0, 3.0]]))
    assert places[0].tolist() == pytest.approx([57.0, 9.0])


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


def test_the_axis_meets_the_centre_and_points_beside_or_behind_are_masked():
    angles = np.array([0.0, 0.5, LARGEST_ANGLE + 0.01, np.pi / 2, 2.0, 3.0, np.pi])
    points = 5 * np.column_stack([np.sin(angles), 0 * angles, np.cos(angles)])
    for model in PROJECTABLE:
        places, visible = project(model, parameters_of(model), points)
        assert visible.tolist() == [True, True, False, False, False, False, False], model
        assert np.isfinite(places[:2]).all(), model
        assert places[0].tolist() == pytest.approx([322.0, 239.0]), model
        _, visible = project(model, parameters_of(model), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1e6]]))
        assert visible.tolist() == [False, True], model
        places, visible = project(model, parameters_of(model), np.zeros((0, 3)))
        assert (places.shape, visible.shape) == ((0, 2), (0,)), model
        assert focal_length(model, parameters_of(model)) == (507.5 if ALL[model][0] == "two" else 510.0), model


def test_the_largest_angle_is_still_seen():
    angle = LARGEST_ANGLE - 1e-6
    for model in ("SIMPLE_PINHOLE", "PINHOLE", *FISHEYE, *OTHERS):
        _, visible = project(model, parameters_of(model), np.array([[0.0, np.sin(angle), np.cos(angle)]]))
        assert visible.tolist() == [True], model


@pytest.mark.parametrize("model", [model for model in (*PERSPECTIVE, *FISHEYE) if ALL[model][1]])
def test_points_where_the_distortion_folds_back_are_masked(model):
    """r (1 - r^2 / 3), of a ray or of a fisheye's angle, grows up to r = 1: beyond it two points share a pixel."""
    focals, distortion, _ = ALL[model]
    parameters = np.array([*FOCALS[focals], -1 / 3, *[0.0] * (len(distortion) - 1)])
    r = np.array([0.5, 0.99, 1.01, 1.3])
    ray = np.tan(r) if model in FISHEYE else r
    _, visible = project(model, parameters, np.column_stack([ray, 0 * ray, 0 * ray + 1]))
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
def test_unproject_is_the_inverse_of_project(model):
    """To 1e-9 wherever a photo has pixels: rays up to 40 degrees off the axis, more for fisheyes."""
    points = points_within(4.0 if model in FISHEYE or "FISHEYE" in model else 0.85)
    places, visible = project(model, parameters_of(model), points)
    assert visible.all()
    rays = unproject(model, parameters_of(model), places)
    assert np.abs(rays - points[:, :2] / points[:, 2:]).max() < 1e-9


def test_a_pixel_beyond_the_fold_of_the_distortion_has_no_ray():
    """r (1 - r^2 / 3) is at most 2 / 3."""
    parameters = np.array([100.0, 0.0, 0.0, -1 / 3])
    rays = unproject("SIMPLE_RADIAL", parameters, np.array([[66.0, 0.0], [67.0, 0.0]]))
    assert np.isfinite(rays[0]).all()
    assert np.isnan(rays[1]).any()
