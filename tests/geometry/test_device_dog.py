"""DoG in torch finds the keypoints of OpenCV's SIFT; here torch computes on a CPU."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_images import texture

from matchkernel.data.sample_pair import FOLDER
from matchkernel.geometry import device_dog, device_orientation
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.device_dog import dog_points_on
from matchkernel.geometry.dog import TORCH_DOG, SearchImage, dog_points

PHOTOS = [cv2.imread(str(FOLDER / name), cv2.IMREAD_GRAYSCALE) for name in ("left.png", "right.png")]
OPENCV = f"OpenCV {cv2.__version__} SIFT, precise upscale"


def both(gray, mask=None, contrast=0.01, edge=10.0):
    """The rows of OpenCV and of torch."""
    image = SearchImage(gray, mask, (1, 1), (0, 0))
    return dog_points(image, contrast, edge), dog_points_on(image, contrast, edge, "cpu")


def partners(rows, others):
    """(K,) whether a row has one among the others: place to 0.01 px, size and response to 0.1 %, angle to 0.1 degrees,
    the same octave and level."""
    found = np.zeros(len(rows), bool)
    codes = others[:, 5].astype(int) & 0xFFFF
    for number, (x, y, size, angle, response, code) in enumerate(rows):
        turn = np.abs((others[:, 3] - angle + 180) % 360 - 180)
        is_near = np.hypot(others[:, 0] - x, others[:, 1] - y) < 0.01
        is_alike = (np.abs(others[:, 2] / size - 1) < 1e-3) & (np.abs(others[:, 4] - response) < 1e-3 * response + 1e-6)
        found[number] = (is_near & is_alike & (turn < 0.1) & (codes == int(code) & 0xFFFF)).any()
    return found


def assert_alike(rows, others, share=0.995):
    for one, other in ((rows, others), (others, rows)):
        is_found = partners(one, other)
        assert (~is_found).sum() <= max(
            3, (1 - share) * len(one)
        )  # in small images one keypoint, of several orientations


@pytest.mark.parametrize("gray", PHOTOS)
@pytest.mark.parametrize(("contrast", "edge"), [(0.01, 10.0), (0.04, 5.0)])
def test_the_keypoints_of_photos_are_those_of_opencv(gray, contrast, edge):
    rows, others = both(gray, contrast=contrast, edge=edge)
    assert len(rows) > 1500
    assert_alike(rows, others, 0.998)


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_small_images_of_all_sizes(height, width, seed):
    gray = cv2.GaussianBlur(np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8), (0, 0), 1)
    assert_alike(*both(gray))


@pytest.mark.parametrize(
    "gray",
    [
        np.zeros((1, 1), np.uint8),
        np.random.default_rng(0).integers(0, 256, (1, 20_000), dtype=np.uint8),
        np.random.default_rng(0).integers(0, 256, (20_000, 7), dtype=np.uint8),
        np.full((200, 300), 133, np.uint8),
        np.tile(np.arange(300) // 20 % 2 * 200, (200, 1)).astype(np.uint8),  # stripes: extrema all along them
        np.kron(np.random.default_rng(0).integers(0, 200, (14, 20)), np.ones((15, 15))).astype(np.uint8),
        PHOTOS[0][200:300, 300:100:-1],  # not contiguous
    ],
)
@pytest.mark.parametrize("contrast", [0.01, 1e-6, 0.3])
def test_odd_images(gray, contrast):
    assert_alike(*both(gray, contrast=contrast))


def test_keypoints_are_masked_as_by_opencv():
    mask = np.zeros_like(PHOTOS[0])
    mask[100:300, 200:500] = 255
    mask[::7] = 0
    rows, others = both(PHOTOS[0], mask)
    assert 300 < len(rows) < 1000
    assert_alike(rows, others)
    assert not len(both(PHOTOS[0], np.zeros_like(mask))[1])


def test_parts_do_not_change_a_bit(monkeypatch):
    gray = PHOTOS[0][:200, :300]
    whole = both(gray)[1]
    monkeypatch.setattr(device_dog, "PIXELS_AT_A_TIME", 5000)
    monkeypatch.setattr(device_dog, "EXTREMA_AT_A_TIME", 100)
    monkeypatch.setattr(device_orientation, "SAMPLES_AT_A_TIME", 10_000)
    assert (both(gray)[1] == whole).all()


def test_reduced_precision_that_the_caller_allows_changes_nothing():
    gray = PHOTOS[0][:200, :300]
    exact = both(gray)[1]
    with torch.autocast("cpu", torch.bfloat16):
        assert (both(gray)[1] == exact).all()


def test_the_radius_of_orientations_is_within_reach():
    largest = device_dog.SIGMA * 2 ** ((device_dog.LAYERS + 0.5) / device_dog.LAYERS)
    assert round(device_orientation.RADIUS * largest) == device_orientation.REACH
    assert math.log2(device_dog.FAR) < 31


AUTO = Detector(dog="auto")


def test_the_detector_takes_torch_on_a_gpu_or_if_told():
    assert [AUTO.settings(place)["detector"] for place in (None, "cpu", "cuda:0", torch.device("cuda"))] == [
        OPENCV,
        OPENCV,
        TORCH_DOG,
        TORCH_DOG,
    ]
    assert Detector().settings("cuda") == AUTO.settings()
    assert Detector(dog="torch").settings() == AUTO.settings("cuda")
    assert "dog" not in AUTO.settings()
    assert replace(AUTO, upright=True).settings("cuda")["detector"] == TORCH_DOG


@pytest.mark.parametrize("options", [{}, {"upright": True}, {"orientations": "one"}, {"keypoints": 300}])
def test_the_budget_is_filled_with_the_same_keypoints(options):
    found = [Detector(**{"keypoints": 1000, **options}, dog=dog).detect(PHOTOS[0]) for dog in ("opencv", "torch")]
    places = [np.column_stack([one.frames.centers, one.frames.shapes.reshape(-1, 4)]) for one in found]
    distances = np.abs(places[0][:, None] - places[1]).max(2)
    assert (distances.min(1) < 0.1).mean() > 0.98
    assert len(places[0]) == len(places[1])


def test_features_are_continued_with_what_found_their_keypoints():
    assert AUTO.continuing(AUTO.settings()).settings("cuda") == AUTO.settings()
    assert AUTO.continuing(AUTO.settings("cuda")).settings("cpu") == AUTO.settings("cuda")
    assert Detector(dog="torch").continuing(AUTO.settings()).dog == "torch"
    assert AUTO.continuing({"detector": "Key.Net"}) == AUTO


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_what_a_cpu_finds_and_always_the_same():
    image = SearchImage(texture(0, 300, 400), None, (1, 1), (0, 0))
    here, there, again = (dog_points_on(image, 0.01, 10.0, device) for device in ("cpu", "cuda", "cuda"))
    assert_alike(here, there)
    assert (there == again).all()
