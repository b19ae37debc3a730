"""Matching among keypoints that agree with a model: equal to brute force, more right matches, none lost."""

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_features import made_features
from rendered_pairs import rendered_pair

from matchkernel.errors import ArgumentError
from matchkernel.geometry.two_view import sampson_distances
from matchkernel.photos import guided
from matchkernel.photos.extract import extract
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.match import match
from matchkernel.photos.pipeline import match_images
from matchkernel.photos.verify import transfer_errors, verify

H = np.array([[0.9, -0.2, 10], [0.15, 1.1, -5], [1e-3, 5e-4, 1]])
F = np.array([[0, 0, 0.1], [0.02, 0, -1], [0.1, 1, 0.3]])
RATIO = "ratio:0.8"  # strict, so that right matches are left to be found
ERRORS = {"homography": (H, transfer_errors), "fundamental": (F, sampson_distances)}


def brute_force(a, b, geometry, pixels):
    """Index pairs, distances and ratios, the slow way."""
    model, errors = ERRORS[geometry]
    table = np.full((len(a), len(b)), np.inf)
    for i in range(len(a)):
        for j in range(len(b)):
            x, y = a.keypoints[i : i + 1], b.keypoints[j : j + 1]
            if a.descriptors[i].any() and b.descriptors[j].any() and errors(model, x, y)[0] <= pixels:
                table[i, j] = np.linalg.norm(a.descriptors[i].astype(float) - b.descriptors[j].astype(float))
    found = []
    for i in range(len(a)):
        j = int(table[i].argmin()) if len(b) else 0
        if len(b) and np.isfinite(table[i, j]) and table[:, j].argmin() == i:
            ratios = []
            for line in (table[i], table[:, j]):
                first, second = [*np.sort(line), np.inf][:2]
                ratios.append(first / second if second > 0 else 1.0)
            found.append((i, j, table[i, j], max(ratios)))
    return found


@given(
    sizes=st.tuples(st.integers(0, 25), st.integers(0, 25)),
    seed=st.integers(0, 10**6),
    geometry=st.sampled_from(list(ERRORS)),
    pixels=st.sampled_from([3.0, 15.0, 100.0]),
    block=st.sampled_from([1, 7, 2**20]),
)
def test_equals_brute_force_in_any_blocks(sizes, seed, geometry, pixels, block):
    random = np.random.default_rng(seed)
    a, b = (made_features(random.uniform(0, 60, (n, 2)), random.integers(-1, 2, (n, 4))) for n in sizes)  # with ties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guided, "PAIRS_AT_A_TIME", block)
        found = guided_matches(a, b, ERRORS[geometry][0], geometry, pixels=pixels, filter="none")
    expected = brute_force(a, b, geometry, pixels)
    assert [tuple(pair) for pair in found.indices.tolist()] == [row[:2] for row in expected]
    assert found.distances == pytest.approx([row[2] for row in expected])
    assert found.ratios == pytest.approx([row[3] for row in expected])


@pytest.mark.parametrize(("kind", "geometry"), [("flat", "homography"), ("depth", "fundamental")])
def test_more_right_matches_and_none_lost(kind, geometry):
    pair = rendered_pair(kind, 2, repeats=8)  # the ratio test drops much that is right
    a, b = (extract(photo, "rootsift", keypoints=1000) for photo in pair.photos)
    first = match(a, b, filter=RATIO)
    points = first.points(a, b)
    checked = verify(*points)
    assert checked.geometry == geometry
    more = guided_matches(a, b, checked.model, geometry, first=first)
    again = guided_matches(a, b, checked.model, geometry, first=first)
    assert (more.indices == again.indices).all()
    agreeing = {tuple(p) for p in first.indices[checked.inliers].tolist()}
    assert agreeing <= {tuple(p) for p in more.indices.tolist()}
    right = pair.errors(*points) < 3
    now = pair.errors(*more.points(a, b)) < 3
    assert now.sum() > 1.1 * right.sum()
    assert now.mean() > 0.75  # in depth, a pattern repeats along the lines
    plain, whole = (
        match_images(*pair.photos, "rootsift", filter=RATIO, guided=guide, keypoints=1000) for guide in (False, True)
    )
    assert whole.inliers.sum() > 1.1 * plain.inliers.sum()
    assert (whole.geometry, whole.verification.significance) == (geometry, plain.verification.significance)
    strict = match_images(*pair.photos, "rootsift", filter="ratio:0.7", guided=True, keypoints=1000)
    assert strict.matches.ratios.max() < 0.7


def test_without_a_model_there_is_nothing_to_be_guided_by():
    photos = [rendered_pair("flat", seed).photos[0] for seed in (0, 1)]
    found = match_images(*photos, "rootsift", keypoints=100, guided=True)
    assert found.model is None
    assert not found.inliers.any()


@pytest.mark.parametrize(("geometry", "pixels"), [("affine", 3.0), ("homography", 0), ("homography", float("nan"))])
def test_what_is_refused(geometry, pixels):
    one = made_features(np.zeros((1, 2)), np.ones((1, 4)))
    with refuses(ArgumentError):
        guided_matches(one, one, H, geometry, pixels=pixels)
