"""The explorer's parts by themselves: arrays as bytes, what is kept in memory, jobs, the joined scripts, curves."""

import asyncio
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refuses
from made_photos import unpack

from matchkernel.errors import ArgumentError
from matchkernel.explore.inside import COMPARED, PatchChange, PatchInspector, Region
from matchkernel.explore.jobs import BusyError, Jobs, StoppedError
from matchkernel.explore.matching import PageMatcher
from matchkernel.explore.page_files import SCRIPTS, TYPES, pack, page_file
from matchkernel.explore.photos import PagePhoto, read_sample
from matchkernel.explore.save import save_page, self_contained
from matchkernel.explore.settings import ExploreSettings
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.model.describe import describe, resize_patches
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import load, save
from matchkernel.photos.pipeline import match_images
from matchkernel.runtime.context import SHIPPED
from matchkernel.storage.memo import Memo


def test_arrays_of_a_bundle_begin_where_typed_arrays_may():
    kinds = (np.uint8, np.float32, np.uint16, np.uint32)
    arrays = {f"{k} é": np.arange(3 * k, dtype=kinds[k % 4]).reshape(3, k) for k in range(9)}
    data = pack({"a": [1, "é"]}, arrays)
    facts, back = unpack(data)
    assert facts == {"a": [1, "é"]}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    end = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:end]).items():
        assert name == "__metadata__" or (end + entry["data_offsets"][0]) % arrays[name].itemsize == 0


def test_a_result_is_computed_once_for_all_who_ask_at_the_same_time():
    calls, gate = [], threading.Event()

    def work(key):
        calls.append(key)
        gate.wait(10)
        return key + 1

    memo = Memo(work, 4)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(memo, 7) for _ in range(5)]
        gate.set()
        assert [one.result() for one in waiting] == [8] * 5
    assert calls == [7]


def test_a_failure_is_not_kept_and_the_number_of_results_is_bounded():
    calls = []

    def work(key):
        calls.append(key)
        return 12 // key

    memo = Memo(work, 3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            memo(0)
    for key in (1, 2, 3, 4, 4, 1):
        assert memo(key) == 12 // key
    assert calls == [0, 0, 1, 2, 3, 4, 1]
    assert len(memo) == 3


def test_more_jobs_than_may_wait_are_refused_and_counted_down():
    async def main():
        jobs, gate = Jobs(1, 2), threading.Event()
        waiting = [asyncio.ensure_future(jobs.run(gate.wait, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await jobs.run(int)
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await jobs.run(int, "7") == 7
        jobs.close()

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests may have a loop in this thread
        pool.submit(asyncio.run, main()).result()


def test_jobs_that_run_or_wait_are_given_up_at_the_end():
    async def main():
        jobs, gate = Jobs(1, 3), threading.Event()
        waiting = [asyncio.ensure_future(jobs.run(gate.wait, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        jobs.close()
        assert [type(found) for found in await asyncio.gather(*waiting, return_exceptions=True)] == [StoppedError] * 2
        with pytest.raises(StoppedError):
            await jobs.run(int)
        return gate

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests may have a loop in this thread
        gate = pool.submit(asyncio.run, main()).result()
    gate.set()  # the thread that runs finds the loop closed


def test_scripts_import_only_from_those_before_them_and_share_no_name():
    """So that they can be joined into one script as they are."""
    names = []
    for number, script in enumerate(SCRIPTS):
        text = page_file(script)
        imported = re.findall(r'^import \{ ([^}]+) \} from "\./([a-z]+\.js)";$', text, re.MULTILINE)
        assert len(imported) == len(re.findall(r"^import\b", text, re.MULTILINE)), script
        for wanted, source in imported:
            assert SCRIPTS.index(source) < number, f"{script} imports from {source}"
            for name in wanted.split(", "):
                assert re.search(rf"^export (async )?(function|class|const) {name}\b", page_file(source), re.MULTILINE)
        names += re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_nothing_in_the_page_comes_from_elsewhere():
    for name in ("index.html", "style.css", *SCRIPTS):
        assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|@import|url\(", page_file(name)), name
    joined = self_contained("")
    assert "/page/" not in joined
    assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)


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
    assert (matcher.default, matcher.compared) == ("light.safetensors", str(other))
    names = ("light", matcher.default, matcher.compared)
    found = [matcher.features(pair[0], name, 50).descriptors for name in names]
    for a, b in combinations(found, 2):
        assert np.abs(a - b).max() > 0.1
    assert PageMatcher(ExploreSettings(model="dual"), "sift").compared == "sift"


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


def test_every_curve_has_a_colour_of_its_own():
    (colours,) = re.findall(r"^const LINES = \[(.*)\];", page_file("curve.js"), re.MULTILINE)
    (dashes,) = re.findall(r"^const DASHES = \[(.*)\];", page_file("curve.js"), re.MULTILINE)
    inspector, most = PatchInspector(2), 0
    for matched in inspector.models:
        shown = {matched, *COMPARED}
        lines = 1 + sum(model in shown for model in inspector.views.values())  # and RootSIFT
        most = max(most, lines)
    colours, dashes = colours.split(", "), json.loads(f"[{dashes}]")
    looks = {(colours[number % len(colours)], str(dashes[number % len(dashes)])) for number in range(most)}
    assert len(looks) == most
    assert len(set(colours)) >= 8  # all different, where light-wide matched


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


def test_a_saved_file_of_photos_without_matches(tmp_path):
    photo = PagePhoto("blank", "blank", np.full((64, 64), 7, np.uint8), b"\xff\xd8")
    size = save_page(tmp_path / "page.html", (photo, photo), ExploreSettings(model="rootsift"))
    assert size < 200_000
    for wrong in (0, 10**6):
        with refuses(ArgumentError):
            save_page(tmp_path / "page.html", (photo, photo), ExploreSettings(model="rootsift"), matches=wrong)


@pytest.mark.slow
def test_a_saved_file_of_300_matches_is_below_10_mb(tmp_path):
    settings = ExploreSettings(model="rootsift")
    size = save_page(tmp_path / "page.html", read_sample(settings), settings, matches=300)
    assert 5e6 < size < 10e6


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


def test_the_gallery_shows_every_picture():
    docs = Path(__file__).parents[2] / "docs"
    shown = set(re.findall(r"\]\(images/([^)]+)\)", (docs / "gallery.md").read_text(encoding="utf-8")))
    assert shown == {path.name for path in (docs / "images").iterdir()}


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


def test_the_words_on_weak_answers_are_those_of_the_look_alikes():
    stored = Path(__file__).parents[2] / "experiments" / "results" / "look_alikes.json"
    pairs = json.loads(stored.read_text(encoding="utf-8"))["pairs"]
    pairs = [pair for pair in pairs if pair["filter"] == "ratio"]
    yes, words = [pair for pair in pairs if pair["geometry"]], page_file("words.js")
    weak_limit = float(re.search(r"const WEAK = (\d+);", words)[1])
    told = {}
    for is_weak in (True, False):
        answers = [pair["kind"].startswith("other") for pair in yes if (pair["significance"] < weak_limit) == is_weak]
        told[is_weak] = sum(answers), len(answers)
    different = sum(pair["kind"].startswith("other") for pair in pairs)
    assert "{} of {} yeses".format(*told[True]) in words
    assert f"of {different} pairs of photos that show different things, {told[True][0] + told[False][0]} were" in words
    page = (Path(__file__).parents[2] / "docs" / "explore.md").read_text(encoding="utf-8")
    assert "{} of {} such answers\nwere wrong, {} of the {} others".format(*told[True], *told[False]) in page


def test_the_files_of_the_page_stay_small():
    sizes = {name: len(page_file(name).encode()) for name in TYPES}
    assert sum(sizes.values()) <= 1.5 * 64_219, sizes  # of the page before it answered a question first


def test_the_page_begins_without_waiting_for_torch():
    """What the page asks first names the models that can be looked into, but imports none of their networks."""
    code = (
        "import sys\nfrom matchkernel.explore.server import Explorer\n"
        "from matchkernel.explore.settings import ExploreSettings\n"
        "facts = Explorer(ExploreSettings()).facts()\n"
        "assert 'dual, polar half' in facts['views'] and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
