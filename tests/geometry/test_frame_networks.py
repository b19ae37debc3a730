"""Key.Net, AffNet and OriNet with random weights: our frames against kornia's, and weight files that are no weights.

With the published weights they are tested in test_reference_data.py.
"""

import contextlib
import os
import pickle
import socket
import sys

import cv2
import kornia.feature as kornia_feature
import numpy as np
import pytest
import torch
from damage import Evil, damaged
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from made_images import texture
from made_networks import write_networks

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, MissingExtraError, WeightsError
from matchkernel.geometry import frame_networks
from matchkernel.geometry.conventions import frames_from_kornia, frames_to_kornia
from matchkernel.geometry.detect import NETWORKS, Detector
from matchkernel.geometry.frame_networks import (
    KEYNET_SIGMA,
    REGION,
    affine_shapes,
    keynet_points,
    network_angles,
    open_network,
    weights_digest,
)
from matchkernel.geometry.frames import Frames


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_networks(tmp_path_factory.mktemp("networks"))


@pytest.fixture(scope="module")
def photo():
    return texture(0, 130, 170, blur=4)


def squares(count=30, seed=0, side=2.0):
    random = np.random.default_rng(seed)
    centers = random.uniform((40, 40), (130, 90), (count, 2))
    return Frames.turned_squares(centers, np.full(count, side), np.zeros(count))


def image_of(photo):
    return torch.from_numpy(photo)[None, None] / 255


def test_shapes_are_those_of_kornia(weights, photo):
    frames = squares()
    network = open_network("affnet", str(weights["affnet"]))
    shapes = affine_shapes(photo, frames.centers, frames.half_widths, network)
    regions = Frames(frames.centers, REGION * frames.shapes)
    with torch.no_grad():
        theirs = frames_from_kornia(network(torch.from_numpy(frames_to_kornia(regions))[None], image_of(photo))[0])
    difference = np.abs(theirs.shapes / (REGION * 2) - shapes).max((1, 2))
    assert np.median(difference) < 0.02
    assert np.median(np.linalg.cond(shapes)) > 1.05
    assert np.linalg.det(shapes) == pytest.approx(np.ones(30))
    assert (shapes[:, 0, 1] == 0).all()  # vertical stays vertical


def test_angles_are_those_of_kornia_with_the_opposite_turn(weights, photo):
    frames = squares()
    network = open_network("orinet", str(weights["orinet"]))
    angles = network_angles(photo, frames, network)
    regions = Frames(frames.centers, REGION * frames.shapes)
    lafs = torch.from_numpy(frames_to_kornia(regions))[None]
    with torch.no_grad():
        theirs = frames_from_kornia(kornia_feature.LAFOrienter(32, angle_detector=network)(lafs, image_of(photo))[0])
    assert np.std(angles) > 0.3
    assert np.median(np.abs((theirs.angles - angles + np.pi) % (2 * np.pi) - np.pi)) < 0.03


def test_keypoints_are_kornias_at_the_centres_of_the_pixels(weights, photo):
    network = open_network("keynet", str(weights["keynet"]))
    found = keynet_points(photo, network)
    detector = kornia_feature.KeyNetDetector(pretrained=False, num_features=1000)
    detector.model = network
    with torch.no_grad():
        lafs, responses = detector(image_of(photo))
    lafs, responses = lafs[0][responses[0] > 0].numpy(), responses[0][responses[0] > 0].numpy()
    assert len(lafs) == len(found) > 20
    order, theirs = np.lexsort((-found[:, 3], found[:, 2])), np.lexsort((-responses, lafs[:, 0, 0]))
    assert found[order, 3] == pytest.approx(responses[theirs], rel=1e-4)
    levels = lafs[theirs, 0, 0] / 22
    assert found[order, 2] == pytest.approx(KEYNET_SIGMA * levels, rel=1e-3)
    moved = np.abs(found[order, :2] - (lafs[theirs, :, 2] + (levels[:, None] - 1) / 2)) / levels[:, None]
    assert moved.max() < 0.53  # the step of at most half a pixel of the level


def test_a_blank_or_tiny_image_has_no_keypoints(weights):
    network = open_network("keynet", str(weights["keynet"]))
    for shape in ((100, 120), (1, 1), (20, 400), (31, 31)):
        assert keynet_points(np.full(shape, 128, np.uint8), network).shape == (0, 4)
    for shape in ((1, 1), (4, 4), (9, 300), (11, 11)):  # too small for the halved levels
        assert keynet_points(np.random.default_rng(0).integers(0, 256, shape, np.uint8), network).shape == (0, 4)


def test_patches_in_parts_give_the_same(weights, photo, monkeypatch):
    network = open_network("orinet", str(weights["orinet"]))
    whole = network_angles(photo, squares(), network)
    monkeypatch.setattr(frame_networks, "PATCHES_AT_A_TIME", 7)
    assert network_angles(photo, squares(), network) == pytest.approx(whole, abs=1e-4)


def test_degenerate_shapes_become_squares(weights, photo):
    torch.manual_seed(0)
    network = kornia_feature.LAFAffNetShapeEstimator(pretrained=False).eval()
    network.features[-3].weight.data.zero_()
    for bias in ([-1e9, 0, 0], [1e9, 0, -1e9], [0, 1e9, -3]):  # tanh: areas of 0, 0; stretched without end
        network.features[-3].bias.data = torch.tensor(bias, dtype=torch.float32)
        assert (affine_shapes(photo, np.array([[90.0, 90]]), np.array([2.0]), network) == np.eye(2)).all()


@pytest.mark.parametrize("names", [["affnet"], ["orinet"], [*NETWORKS]])
def test_a_detector_with_networks(weights, photo, names):
    """The budget is filled, positions occur once, regions keep their area and are sorted by strength."""
    chosen = {name: weights[name] for name in names}
    detector = Detector(keypoints=15, contrast=0.01, choice="spread", **chosen)
    found, again = detector.detect(photo), detector.detect(photo)
    assert found.frames.shapes.tobytes() == again.frames.shapes.tobytes()
    assert len(found.frames) == 15
    assert (np.diff(found.scores) <= 0).all()
    assert len(np.unique(found.frames.centers, axis=0)) == 15
    assert found.frames.are_squares.all() == ("affnet" not in names)
    assert (np.linalg.det(found.frames.shapes) > 0).all()
    plain = Detector(keypoints=15, contrast=0.01, choice="spread", upright=True, keynet=chosen.get("keynet"))
    assert found.frames.half_widths == pytest.approx(plain.detect(photo).frames.half_widths)
    assert found.frames.centers == pytest.approx(plain.detect(photo).frames.centers)


def test_keypoints_of_keynet_as_opencvs_and_under_a_mask(weights, photo):
    mask = np.zeros_like(photo)
    mask[:, 80:] = 1
    detector = Detector(keypoints=0, keynet=weights["keynet"])
    everything, inside = detector.detect_points(photo), detector.detect_points(photo, mask)
    assert 0 < len(inside) < len(everything)
    assert all(point.pt[0] >= 79.5 for point in inside)
    with refuses(ArgumentError):
        Detector(affnet=weights["affnet"]).detect_points(photo)


def test_a_large_image_is_halved(weights, photo):
    detector = Detector(keypoints=0, keynet=weights["keynet"], most_pixels=4 * photo.size - 1)
    small = Detector(keypoints=0, keynet=weights["keynet"]).detect(cv2.pyrDown(photo)).frames
    assert detector.detect(photo).frames.centers == pytest.approx(2 * small.centers)


def test_settings_hold_the_digest_of_the_weights_and_not_their_place(weights, tmp_path):
    copy = tmp_path / "other.pth"
    copy.write_bytes(weights["orinet"].read_bytes())
    first, second = (Detector(orinet=path).settings() for path in (weights["orinet"], copy))
    assert first == second
    assert first["orinet"] == weights_digest(str(copy))
    assert len(first["orinet"]) == 64
    assert first["networks"].startswith("kornia ")
    assert Detector().settings()["orinet"] is None
    assert Detector(keynet=weights["keynet"]).settings()["detector"] == "Key.Net"


def test_a_file_that_was_replaced_is_read_again(weights, tmp_path, photo):
    path = tmp_path / "weights.pth"
    path.write_bytes(weights["orinet"].read_bytes())
    before = network_angles(photo, squares(), open_network("orinet", str(path)))
    assert open_network("orinet", str(path)) is open_network("orinet", str(path))
    content = torch.load(path, weights_only=True)
    content["state_dict"]["features.0.weight"] *= -1
    torch.save(content, path)
    os.utime(path, ns=(1, 1))
    assert np.abs(network_angles(photo, squares(), open_network("orinet", str(path))) - before).max() > 0.01


@pytest.mark.parametrize("kind", NETWORKS)
def test_files_that_are_no_weights_are_refused_and_run_no_code(kind, weights, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    torch.save([1, 2], tmp_path / "list")
    torch.save({"features.0.weight": "no tensor"}, tmp_path / "strings")
    torch.save(Evil(tmp_path / "boom"), tmp_path / "code")
    (tmp_path / "pickle").write_bytes(pickle.dumps(Evil(tmp_path / "boom")))
    content = torch.load(weights[kind], weights_only=True)
    name = next(iter(content["state_dict"]))
    content["state_dict"][name] = content["state_dict"][name] * np.nan
    torch.save(content, tmp_path / "nan")
    del content["state_dict"][name]
    torch.save(content, tmp_path / "fewer")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**30)
    others = [weights[other] for other in NETWORKS if other != kind]
    for path in [*tmp_path.iterdir(), *others, tmp_path / "missing"]:
        with refuses(WeightsError):
            Detector(**{kind: path}).settings()
    os.mkfifo(tmp_path / "pipe")
    with refuses(FileError):
        Detector(**{kind: tmp_path / "pipe"}).settings()
    assert not (tmp_path / "boom").exists()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_cut_or_changed_file_gives_one_line_or_weights(weights, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "weights.pth"
    path.write_bytes(damaged(data, weights["affnet"].read_bytes()))
    with contextlib.suppress(MatchKernelError):  # one line, see above
        open_network("affnet", str(path))


def test_nothing_is_downloaded(weights, monkeypatch):
    def no_network(*_):
        raise AssertionError("tried to connect")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    frame_networks._open_cached.cache_clear()
    for kind in NETWORKS:
        open_network(kind, str(weights[kind]))


def test_without_kornia_one_line_names_the_extra(weights, monkeypatch, photo):
    frame_networks._open_cached.cache_clear()
    monkeypatch.setitem(sys.modules, "kornia", None)
    with refuses(MissingExtraError):
        Detector(orinet=weights["orinet"]).detect(photo)
    assert len(Detector(contrast=0.01).detect(photo).frames)
