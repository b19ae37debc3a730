"""Two images in, verified matches out."""

import json

import numpy as np
import pytest
import torch
from made_images import texture, turned, write_odd_images

import matchkernel
from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.geometry.two_view import corner_error
from matchkernel.photos.pipeline import STAGES, MatchSettings, match_images, save_json
from matchkernel.photos.verify import transfer_errors
from matchkernel.plots.demo import rotated_copy, stereo_errors
from matchkernel.plots.matches import save_picture

KEYS = {
    "keypoints0", "keypoints1", "matches", "inliers", "geometry", "reason", "significance", "model",
    "descriptor", "engine", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def network():
    narrow = {"d": 8, "widths": (8, 8, 16, 16, 8)}
    return matchkernel.build("cartesian", generator=torch.Generator().manual_seed(0), **narrow)


@pytest.mark.parametrize("degrees", [0, 40, 90])
def test_a_rotated_copy_is_matched_to_its_homography(degrees, network):
    image = texture(height=200, width=200)
    copy, H = turned(image, degrees)
    for model in ("rootsift", network):
        found = match_images(image, copy, model, keypoints=200)
        assert corner_error(found.model, H, (200, 200)) < 0.5
        errors = transfer_errors(H, found.points[0][found.inliers], found.points[1][found.inliers])
        assert (errors <= 3).mean() > 0.97
        assert found.inliers.sum() > 40


def test_two_identical_images(network):
    for model in ("sift", network):
        found = match_images(texture(), texture(), model, keypoints=80)
        assert (found.points[0] == found.points[1]).all()
        assert found.model == pytest.approx(np.eye(3), abs=1e-6)
        assert found.inliers.all()
        assert match_images(texture(), texture(), model, keypoints=80, geometry="fundamental").inliers.any()


@pytest.mark.parametrize("geometry", ["homography", "fundamental", "none"])
def test_json_has_what_it_promises(geometry, tmp_path):
    image, (copy, H) = texture(), turned(texture(), 20)
    found = match_images(image, copy, "rootsift", geometry=geometry, keypoints=150)
    save_json(found, tmp_path / "m.json")
    read = json.loads((tmp_path / "m.json").read_text())
    assert read.keys() == KEYS
    assert read["geometry"] == geometry
    assert read["reason"]
    assert (read["significance"] is None) == (geometry == "none")
    assert len(read["inliers"]) == len(read["matches"]) == len(found.matches)
    assert all(isinstance(value, bool) for value in read["inliers"])
    assert read["seconds"].keys() == set(STAGES)
    assert all(value >= 0 for value in read["seconds"].values())
    points = [np.array(read[f"keypoints{side}"])[np.array(read["matches"])[:, side]] for side in (0, 1)]
    assert len(read["keypoints0"]) == 150
    right = np.array(read["inliers"])
    if geometry == "none":
        assert read["model"] is None
        assert right.all()
        return
    model = np.array(read["model"])
    assert model.shape == (3, 3)
    if geometry == "homography":
        assert corner_error(model, H, (200, 160)) < 1
    else:
        x_a, x_b = (np.column_stack([p[right], np.ones(right.sum())]) for p in points)
        lines = x_a @ model.T
        assert np.median(np.abs((x_b * lines).sum(1)) / np.linalg.norm(lines[:, :2], axis=1)) < 1


def test_the_same_images_give_the_same_matches_and_the_same_picture(tmp_path, network):
    image, (copy, _) = texture(), turned(texture(), 20)
    written = []
    for name in ("a.png", "b.png"):
        found = match_images(image, copy, network, keypoints=80)
        save_picture(found, image, copy, tmp_path / name, "a title")
        written.append((tmp_path / name).read_bytes())
        facts = found.to_json()
        facts.pop("seconds")
        written.append(json.dumps(facts))
    assert written[:2] == written[2:]
    assert len(written[0]) > 10_000


def test_images_without_keypoints_give_empty_results(tmp_path):
    for name, least in write_odd_images(tmp_path).items():
        for geometry in ("homography", "fundamental", "none"):
            found = match_images(tmp_path / name, texture(), "rootsift", geometry=geometry)
            if not least:
                assert len(found.matches) == 0
                assert found.model is None
                assert found.to_json()["inliers"] == []
                assert match_images(texture(), tmp_path / name, "rootsift", geometry=geometry).model is None
    save_picture(
        match_images(texture(), tmp_path / "one_pixel.png", "sift"),
        texture(),
        tmp_path / "one_pixel.png",
        tmp_path / "out.png",
    )
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_options_change_the_settings_given():
    found = match_images(texture(), texture(), "sift", MatchSettings(geometry="none"), keypoints=3)
    assert (found.geometry, len(found.features[0])) == ("none", 3)


def test_the_demos_truth_is_true():
    """A match of RootSIFT that is mutual is right more often than not, in both pairs."""
    left, right, disparity = load_motorcycle()
    copy, H = rotated_copy(left)
    found = match_images(left, right, "rootsift", keypoints=500, geometry="fundamental")
    errors = stereo_errors(*found.points, disparity)
    assert np.isnan(errors).mean() < 0.3
    assert (errors[found.inliers & ~np.isnan(errors)] < 3).mean() > 0.8
    found = match_images(left, copy, "rootsift", keypoints=500)
    assert corner_error(found.model, H, (741, 500)) < 1
