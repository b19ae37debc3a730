"""Points of matches that are aligned by the patches around them."""

import cv2
import numpy as np
import pytest
from made_images import texture

from matchkernel.errors import ArgumentError
from matchkernel.geometry.alignment import FARTHEST, SHARE, align_points
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames

STRETCH = np.array([[1.2, 0.15], [-0.3, 0.95]])


@pytest.fixture(scope="module")
def pair():
    """A photo, an affinely distorted and darker copy, frames of A, and the same regions of B, a little off."""
    image = texture(height=300, width=300)
    M = np.column_stack([STRETCH, 150 - STRETCH @ [150.3, 149.6]])
    copy = cv2.convertScaleAbs(cv2.warpAffine(image, M, (300, 300)), alpha=0.7, beta=20)
    a = Detector(keypoints=150).detect(image).frames
    a = a[((a.centers > 80) & (a.centers < 220)).all(1)]
    random = np.random.default_rng(0)
    truth = a.centers @ STRETCH.T + M[:, 2]
    turns = Frames.turned_squares(truth, np.exp(random.normal(0, 0.05, len(a))), random.normal(0, 0.05, len(a))).shapes
    sigmas = a.half_widths[:, None] / 6
    return (
        image,
        copy,
        a,
        Frames(truth + random.normal(0, 0.2, truth.shape) * sigmas, STRETCH @ a.shapes @ turns),
        truth,
    )


def test_points_come_nearer_to_the_true_ones(pair):
    image, copy, a, b, truth = pair
    before, after = (np.linalg.norm(p - truth, axis=1) for p in (b.centers, align_points(image, copy, a, b)))
    assert len(a) > 40
    assert np.median(after) < 0.3 * np.median(before)
    assert (after <= before + 0.1).mean() > 0.9


def test_no_point_moves_farther_than_a_detector_errs(pair):
    image, copy, a, b, _ = pair
    wrong = b[np.roll(np.arange(len(b)), 1)]
    ways = np.linalg.solve(wrong.shapes, (align_points(image, copy, a, wrong) - wrong.centers)[..., None])[..., 0]
    assert np.linalg.norm(ways, axis=1).max() <= SHARE * FARTHEST + 1e-9


def test_each_match_is_aligned_by_itself(pair):
    image, copy, a, b, _ = pair
    order = np.random.default_rng(1).permutation(len(a))
    np.testing.assert_allclose(
        align_points(image, copy, a[order], b[order]), align_points(image, copy, a, b)[order], atol=1e-3
    )


def test_points_without_content_or_region_stay(pair):
    image, copy, a, b, _ = pair
    blank = np.full_like(copy, 90)
    for images, frames in (((image, blank), b), ((blank, blank), b), ((image, copy), Frames(b.centers, 0 * b.shapes))):
        np.testing.assert_array_equal(align_points(*images, a, frames), frames.centers)
    assert align_points(image, copy, a[:0], b[:0]).shape == (0, 2)


def test_regions_outside_and_huge_ones_give_finite_points(pair):
    image, copy, a, b, _ = pair
    for centers, shapes in ((b.centers - 1000, b.shapes), (b.centers, 1e4 * b.shapes), (b.centers, 1e-4 * b.shapes)):
        assert np.isfinite(align_points(image, copy, a, Frames(centers, shapes))).all()


def test_frames_that_are_no_matches_are_refused(pair):
    image, copy, a, b, _ = pair
    with pytest.raises(ArgumentError, match="as many in A as in B"):
        align_points(image, copy, a, b[:-1])


def test_images_too_long_for_opencv_are_refused(pair):
    image, _, a, b, _ = pair
    with pytest.raises(ArgumentError, match="more than 32,766 pixels on a side cannot be aligned"):
        align_points(image, np.zeros((20, 40_000), np.uint8), a, b)
