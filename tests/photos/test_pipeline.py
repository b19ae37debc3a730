"""Two images in, verified matches out."""

import json

import numpy as np
import pytest
import torch
from made_images import texture, turned, write_odd_images
from rendered_pairs import SHAPES, rendered_pair

import matchkernel
from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.two_view import corner_error
from matchkernel.photos.pipeline import STAGES, MatchSettings, match_images, save_csv, save_json
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


@pytest.mark.parametrize("geometry", ["homography", "fundamental", "none"])
def test_json_has_what_it_promises(geometry, tmp_path):
    image, (copy, H) = texture(), turned(texture(), 20)
    found = match_images(image, copy, "rootsift", MatchSettings(geometry=geometry), keypoints=150)
    save_json(found, tmp_path / "m.json")
    read = json.loads((tmp_path / "m.json").read_text())
    assert read.keys() == KEYS
    assert (read["geometry"], len(read["keypoints0"])) == (geometry, 150)
    assert read["reason"]
    assert (read["significance"] is None) == (read["model"] is None) == (geometry == "none")
    assert len(read["inliers"]) == len(read["matches"]) == len(found.matches)
    assert all(isinstance(value, bool) for value in read["inliers"])
    assert read["seconds"].keys() == set(STAGES)
    assert all(value >= 0 for value in read["seconds"].values())
    points = [np.array(read[f"keypoints{side}"])[np.array(read["matches"])[:, side]] for side in (0, 1)]
    right = np.array(read["inliers"])
    if geometry == "none":
        assert right.all()
    elif geometry == "homography":
        assert corner_error(np.array(read["model"]), H, (200, 160)) < 1
    else:
        x_a, x_b = (np.column_stack([p[right], np.ones(right.sum())]) for p in points)
        lines = x_a @ np.array(read["model"]).T
        assert np.median(np.abs((x_b * lines).sum(1)) / np.linalg.norm(lines[:, :2], axis=1)) < 1


def test_aligned_points_are_nearer_to_the_truth_and_are_in_every_output(tmp_path):
    image, (copy, H) = texture(), turned(texture(), 20)
    plain, found = (match_images(image, copy, "rootsift", keypoints=150, align=align) for align in (False, True))
    np.testing.assert_array_equal(found.matches.indices, plain.matches.indices)
    errors = [np.median(transfer_errors(H, *each.points)) for each in (plain, found)]
    assert errors[1] < 0.7 * errors[0]
    save_json(found, tmp_path / "m.json")
    save_csv(found, tmp_path / "m.csv")
    read = json.loads((tmp_path / "m.json").read_text())
    assert read.keys() == KEYS | {"aligned1"}
    np.testing.assert_array_equal(read["aligned1"], found.points[1])
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "m.csv", delimiter=",", skiprows=1)[:, 2:4], found.points[1], atol=1e-4
    )
    with pytest.raises(ArgumentError, match="leave out align or guided"):
        match_images(image, copy, "rootsift", guided=True, align=True)


def test_the_same_images_give_the_same_matches_and_the_same_picture(tmp_path, network):
    image, (copy, _) = texture(), turned(texture(), 20)
    written = []
    for name in ("a.png", "b.png"):
        found = match_images(image, copy, network, keypoints=80)
        save_picture(found, image, copy, tmp_path / name, "a title")
        facts = found.to_json()
        facts.pop("seconds")
        written.append(((tmp_path / name).read_bytes(), json.dumps(facts)))
    assert written[0] == written[1]
    assert len(written[0][0]) > 10_000


def test_a_picture_has_the_format_of_its_name_and_shows_the_photos_that_were_matched(tmp_path):
    image, copy = texture(), texture(height=150)
    found = match_images(image, copy, "sift", keypoints=80)
    for name, start in (("p.jpg", b"\xff\xd8"), ("p.jpeg", b"\xff\xd8"), ("p.PNG", b"\x89PNG")):
        save_picture(found, image, copy, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    for a, b, path, problem in (
        (copy, image, "q.png", "swapped"), (image, image, "q.png", "another"), (image, copy, "q.webp", "must end in"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=problem):
            save_picture(found, a, b, tmp_path / path)
    assert not list(tmp_path.glob("q.*"))


def test_a_misspelt_option_is_corrected():
    with pytest.raises(ArgumentError, match=r"did you mean keypoints$"):
        match_images(texture(), texture(), "sift", max_keypoints=9)


def test_images_without_keypoints_give_empty_results(tmp_path):
    for name in (name for name, least in write_odd_images(tmp_path).items() if not least):
        for geometry in ("homography", "fundamental", "none"):
            found = match_images(tmp_path / name, texture(), "rootsift", geometry=geometry)
            assert (len(found.matches), found.model, found.to_json()["inliers"]) == (0, None, [])
            assert match_images(texture(), tmp_path / name, "rootsift", geometry=geometry).model is None
    one_pixel, picture = tmp_path / "one_pixel.png", tmp_path / "out.png"
    save_picture(match_images(texture(), one_pixel, "sift"), texture(), one_pixel, picture)
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keypoints", 1.5), ("keypoints", "9"), ("keypoints", None), ("contrast", "low"), ("filter", "a"),
        ("filter", 3), ("pixels", None), ("geometry", "affine"), ("keypoint", 3),
    ],
)  # fmt: skip
def test_options_that_are_refused_are_named(name, value):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=name):
        match_images(texture(), texture(), "sift", **{name: value})


def test_the_truth_of_the_demo_is_true():
    """A match of RootSIFT that is mutual is right more often than not, in both pairs."""
    left, right, disparity = load_motorcycle()
    copy, H = rotated_copy(left)
    found = match_images(left, right, "rootsift", keypoints=500, geometry="fundamental")
    errors = stereo_errors(*found.points, disparity)
    assert np.isnan(errors).mean() < 0.3
    assert (errors[found.inliers & ~np.isnan(errors)] < 3).mean() > 0.8
    found = match_images(left, copy, "rootsift", keypoints=500)
    assert corner_error(found.model, H, (741, 500)) < 1


# Rendered photos with known geometry


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_geometry_of_the_scene_is_found_without_an_option(kind, seed):
    pair = rendered_pair(kind, seed)
    found = match_images(*pair.photos, "rootsift", keypoints=500)
    expected = "homography" if kind in ("flat", "turned") else "fundamental"
    assert found.geometry == expected, found.one_line()
    right = pair.errors(*found.points) < 3
    assert right.sum() > 60
    assert found.inliers[right].mean() > 0.97
    assert right[found.inliers].mean() > 0.95
    if expected == "fundamental":  # a plane explains only part of it
        plane = match_images(*pair.photos, "rootsift", keypoints=500, geometry="homography")
        assert plane.inliers.sum() < 0.9 * found.inliers.sum()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "filter_", ["ratio", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ratio:0.8", "none"))]
)
def test_a_pattern_that_repeats_is_not_taken_for_depth(kind, filter_):
    """Matches from one repetition to another lie on lines through one point, as if the scene had depth."""
    pair = rendered_pair(kind, 2, repeats=8)
    found = match_images(*pair.photos, "rootsift", filter=filter_)
    assert found.geometry == ("homography" if kind in ("flat", "turned") else "fundamental"), found.one_line()
    right = pair.errors(*found.points) < 3
    assert right.mean() < 0.97  # many are matched to another repetition
    assert found.inliers[right].mean() > 0.95


@pytest.mark.parametrize(("kind", "geometry"), [("flat", "homography"), ("facade", "fundamental")])
def test_a_pattern_that_repeats_with_the_default_model(kind, geometry):
    found = match_images(*rendered_pair(kind, 0, repeats=8).photos, keypoints=500)
    assert found.geometry == geometry, found.one_line()


def test_photos_of_different_scenes_give_no_model():
    photos = [rendered_pair(kind, seed).photos[0] for kind, seed in (("flat", 3), ("depth", 4), ("facade", 5))]
    for a, b, geometry in ((0, 1, "auto"), (1, 2, "homography"), (2, 0, "fundamental")):
        found = match_images(photos[a], photos[b], "rootsift", keypoints=300, filter="none", geometry=geometry)
        assert len(found.matches) > 30
        assert found.model is None
        assert not found.inliers.any()
        assert found.to_json()["geometry"] == (None if geometry == "auto" else geometry)
        assert np.isinf(found.verification.errors).all()
