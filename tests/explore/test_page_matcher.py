"""Matches as the page gets them: those of match_images, with all that its sliders need."""

import gc
import weakref
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.explore.inside import PatchChange, PatchInspector, Region
from matchkernel.explore.matching import PageMatcher
from matchkernel.explore.settings import ExploreSettings
from matchkernel.model.descriptors import build
from matchkernel.model.weights import save
from matchkernel.photos.pipeline import match_images
from matchkernel.runtime.context import SHIPPED


def test_matches_are_those_of_match_images(pair):
    found = PageMatcher(ExploreSettings()).compare(*pair, "light", 150, "ratio")
    expected = match_images(pair[0].gray, pair[1].gray, "light", keypoints=150)
    kept = found.arrays["kept"].astype(bool)
    np.testing.assert_array_equal(found.arrays["pairs"][kept], expected.matches.indices)
    np.testing.assert_array_equal(found.arrays["agrees"][kept].astype(bool), expected.inliers)
    np.testing.assert_allclose(found.arrays["distances"][kept], expected.matches.distances, rtol=1e-5)
    # The next best lie elsewhere than the match; where the nearest of all does, too, the ratio follows from it.
    assert (found.arrays["confusions"] <= found.arrays["ratios"] + 2e-3).all()
    assert (np.abs(found.arrays["confusions"] - found.arrays["ratios"]) < 2e-3).mean() > 0.5
    for side, letter in enumerate("ab"):
        frames, own = found.arrays[f"frames_{letter}"], found.arrays["pairs"][:, side]
        rivals, is_there = found.arrays[f"rivals_{letter}"], found.arrays[f"rivals_{letter}_distances"] < 2
        off = np.linalg.norm(frames[rivals, :2] - frames[own, None, :2], axis=2)
        half_widths = np.sqrt(np.abs(np.linalg.det(frames[own, 2:].reshape(-1, 2, 2))))
        assert (off > 0.499 * half_widths[:, None])[is_there].all()
        assert is_there.any()


def test_weights_called_like_another_model_are_not_taken_for_it(pair, tmp_path):
    mine, other = tmp_path / "light.safetensors", tmp_path / "other" / "light.safetensors"
    other.parent.mkdir()
    for seed, path in enumerate((mine, other)):
        torch.manual_seed(seed)
        save(build("cartesian", s=1), path)
    matcher = PageMatcher(ExploreSettings(model=str(mine)), str(other))
    assert matcher.chosen == ["light.safetensors", str(other)]
    names = ("light", *matcher.chosen)
    found = [matcher.features(pair[0], name, 50).descriptors for name in names]
    for a, b in combinations(found, 2):
        assert np.abs(a - b).max() > 0.1
    assert PageMatcher(ExploreSettings(model="dual"), "sift").chosen == ["dual", "sift"]


def test_the_page_matches_in_context(pair):
    matcher = PageMatcher(ExploreSettings())
    found = matcher.compare(*pair, "light-wide", 150, "context")
    assert found.arrays["kept"].all()
    assert len(found.arrays["pairs"]) > 0
    with refuses(ArgumentError):
        matcher.compare(*pair, "light", 150, "context")


def test_the_page_reads_no_matcher_from_a_file(pair):
    with refuses(ArgumentError):
        PageMatcher(ExploreSettings()).compare(
            *pair, "light-wide", 150, f"context:{SHIPPED / 'light-wide.safetensors'}"
        )


def test_photos_that_are_gone_are_not_kept_by_results_of_them(pair):
    a, b = (replace(photo) for photo in pair)
    matcher, inspector, region = PageMatcher(ExploreSettings()), PatchInspector(4), Region(60, 60, 12, 0, 0, 12)
    matcher.compare(a, b, "rootsift", 50, "ratio")
    matcher.patches(a, 50)
    inspector.map(a, region, b, region, PatchChange(), "light")
    inspector.curve(a, region, b, region, "turn", PatchChange(), "light")
    gone = weakref.ref(a), weakref.ref(b)
    del a, b
    gc.collect()
    assert [photo() for photo in gone] == [None, None]
