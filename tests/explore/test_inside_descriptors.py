"""Maps and curves of pairs of patches, and the regions that are moved for them."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.explore.inside import PatchChange, PatchInspector, Region
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.model.describe import describe, resize_patches
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import load


def region_in(photo):
    return Region(photo.gray.shape[1] / 2, photo.gray.shape[0] / 2, 20, 5, -5, 20)


def test_the_halves_of_dual_sum_to_it_and_curves_are_cosines_of_descriptors(pair):
    inspector, region = PatchInspector(2), region_in(pair[0])
    cosines = {}
    for model in ("light", "dual", "fc"):
        found, values, _ = inspector.curve(pair[0], region, pair[1], region, "turn", PatchChange(right=2), model)
        cosines |= found
    at = int(np.abs(values - 45).argmin())
    moved = PatchChange(turn=float(values[at]), right=2).apply(region.frames())
    patches = np.concatenate([extract_patches(pair[0].gray, region.frames()), extract_patches(pair[1].gray, moved)])
    for name, view in (("light", "light, Cartesian"), ("dual", "dual, both halves"), ("fc", "fc, fully connected")):
        rows = describe(patches, load(name), resize=True)
        assert cosines[view][at] == pytest.approx(float(rows[0] @ rows[1]), abs=1e-4)


def test_a_changed_patch_has_the_maps_of_its_region(pair):
    inspector, region, change = PatchInspector(2), region_in(pair[0]), PatchChange(turn=30, right=4)
    moved = change.apply(region.frames())
    other = Region(*map(float, (*moved.centers[0], *moved.shapes[0].ravel())))
    found = [
        inspector.map(pair[0], region, pair[1], *second, "light")["light, Cartesian"]
        for second in ((region, change), (other, PatchChange()), (region, PatchChange()))
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert np.abs(found[0] - found[2]).max() > 0.1


def test_maps_of_a_region_with_itself_are_symmetric_and_those_of_the_kernel_view(pair):
    inspector, region = PatchInspector(2), region_in(pair[0])
    found = {}
    for model in inspector.models:
        found |= inspector.map(pair[0], region, pair[0], region, PatchChange(), model)
    assert list(found) == list(inspector.views)
    patch = torch.from_numpy(extract_patches(pair[0].gray, region.frames())).float()
    patch = resize_patches(patch[:, None], 32)[0]
    for view, maps in found.items():
        np.testing.assert_allclose(maps, maps.T, atol=1e-4)
        if "half" not in view:
            expected = similarity_map(load(view.split(",")[0]), patch, patch, 2, 5)
            np.testing.assert_allclose(maps[2 * 8 + 5], expected.flatten().numpy(), atol=1e-3)


def test_moving_a_region():
    frames = Frames(np.array([[10.0, 20.0]]), np.array([[[4.0, 0.0], [0.0, 8.0]]]))
    shifted = PatchChange(right=16, down=-16).apply(frames)  # half of a 32 px patch is one half width
    np.testing.assert_allclose(shifted.centers, [[14, 12]])
    turned = PatchChange(turn=90, octaves=1).apply(Frames(frames.centers, np.array([[[4.0, 0.0], [0.0, 4.0]]])))
    np.testing.assert_allclose(turned.shapes, [[[0, -8], [8, 0]]], atol=1e-12)


@pytest.mark.parametrize(
    "numbers", [(0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1), (2e6, 0, 9, 0, 0, 9), (0, 0, 1e-3, 0, 0, 1e-3)]
)
def test_a_region_without_area_or_too_far_away_is_refused(numbers):
    with refuses(ArgumentError):
        Region(*map(float, numbers)).frames()


def test_the_page_begins_without_waiting_for_torch():
    """What the page asks first names the models that can be looked into, but imports none of their networks."""
    code = (
        "import sys\nfrom matchkernel.explore.photos import read_sample\n"
        "from matchkernel.explore.server import Explorer, ExploreSettings\n"
        "facts = Explorer(ExploreSettings(), read_sample(ExploreSettings())).facts()\n"
        "assert 'dual, polar half' in facts['views'] and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
