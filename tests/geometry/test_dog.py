from dataclasses import replace

import numpy as np
import pytest
import skimage

from matchkernel.geometry.detect import Detector
from matchkernel.geometry.dog import DENSITY, LARGE, SMALLEST, search_images

PHOTO = skimage.data.camera()  # 512 x 512
BUDGET = 120  # a copy of 158 x 158


def same(one, other):
    return one.frames.centers.tobytes() == other.frames.centers.tobytes() and (
        one.frames.shapes.tobytes() == other.frames.shapes.tobytes()
    )


def test_the_largest_keypoints_of_a_copy_are_those_of_the_photo():
    copied, whole = (Detector(BUDGET, density=density).detect(PHOTO).frames for density in (0.0025, 0))
    assert len(copied) == len(whole) == BUDGET
    distances = np.linalg.norm(copied.centers[:, None] - whole.centers, axis=2)
    sizes = np.abs(np.log2(copied.half_widths[:, None] / whole.half_widths))
    is_there = (distances < 0.15 * whole.half_widths) & (sizes < 0.3)
    assert is_there.any(1).mean() > 0.7  # 0.76; the smallest of the budget differ
    a, b = np.nonzero((distances < 1) & (sizes < 0.1))
    assert np.abs(np.median(copied.centers[a] - whole.centers[b], axis=0)).max() < 0.1


@pytest.mark.parametrize("side", [(600, 437), (437, 601), (1, 60_000), (60_000, 1)])
def test_a_copy_covers_the_photo_and_has_the_pixels_of_the_budget(side):
    gray = np.zeros(side, np.uint8)
    copy, *_, photo = search_images(gray, None, 9, DENSITY)
    assert copy.gray.size == pytest.approx(SMALLEST, rel=0.05) or 1 in side
    corners = np.array([[-0.5, -0.5, 1, 0, 0, 0], [copy.gray.shape[1] - 0.5, copy.gray.shape[0] - 0.5, 1, 0, 0, 0]])
    copy.to_photo(corners)
    assert corners[:, :2] == pytest.approx(np.array([[-0.5, -0.5], [side[1] - 0.5, side[0] - 0.5]]))
    assert photo.gray is gray


@pytest.mark.parametrize(
    "options",
    [
        {"keypoints": PHOTO.size // LARGE + 1},  # too small a photo
        {"keypoints": BUDGET, "choice": "strongest"},
        {"keypoints": 0},
    ],
)
def test_all_else_is_searched_as_before(options):
    assert same(Detector(**options).detect(PHOTO), Detector(**options, density=0).detect(PHOTO))
    if "choice" in options or not options["keypoints"]:
        assert "density" not in Detector(**options).settings()


def test_a_mask_holds_in_the_copy_too():
    mask = np.zeros_like(PHOTO)
    mask[:, 200:] = 255
    mask[:, ::40] = mask[:, 1::40] = 0  # a fence
    for detector in (Detector(40), Detector(40, density=0, most_pixels=70_000)):
        found = detector.detect(PHOTO, mask).frames
        assert len(found) == 40
        x, y = found.centers.round().astype(int).T
        assert mask[y, x].all()
        assert x.min() >= 200


def test_a_photo_whose_copy_has_too_few_keypoints_is_searched_itself():
    gray = np.full((900, 900), 128, np.uint8)
    gray[:150, :150] = PHOTO[100:250, 150:300]
    found, before = (Detector(300, density=density).detect(gray) for density in (DENSITY, 0))
    assert len(Detector(100).detect(gray).frames) == 100
    assert same(found, before)


def test_settings_of_an_earlier_version_are_those_without_a_copy():
    detector = Detector(dog="auto")
    before = {name: value for name, value in detector.settings().items() if name != "density"}
    assert detector.continuing(before) == Detector(density=0, dog="opencv")
    assert Detector(density=0).settings() == before
    assert detector.continuing(detector.settings()) == replace(detector, dog="opencv")
    assert detector.continuing({}) == detector
    assert replace(detector, density=0.1).continuing(before) == Detector(density=0.1, dog="opencv")
