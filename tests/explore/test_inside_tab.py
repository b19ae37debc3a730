"""The tab "Inside": maps of a position, the strip of matches, curves of the moved patch, which half loses more."""

import re

import numpy as np
import pytest
import torch
from page_steps import (
    drawn_map,
    look_inside,
    of_panel,
    open_inside,
    press_on_photos,
    set_slider,
    view_of,
    wait_until_fits,
)
from scipy.stats import t as student

from matchkernel.explore.inside import PatchChange, Region
from matchkernel.geometry.frames import extract_patches
from matchkernel.model.describe import resize_patches
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import load

pytestmark = pytest.mark.browser


REGIONS_OF_CHOSEN = """[arrays.frames_a, arrays.frames_b].map((frames, side) => {
  const start = 6 * arrays.pairs.data[2 * chosen + side];
  return [...frames.data.subarray(start, start + 6)]; })"""


def test_maps_of_a_clicked_position_are_similarity_maps(page, served):
    look_inside(page)
    box = page.locator("#inside-patch-a").bounding_box()
    pixel = box["width"] / 32
    page.mouse.click(box["x"] + 4.5 * pixel, box["y"] + 20.5 * pixel)
    page.get_by_text("p = row 6, column 2").wait_for()
    page.locator("#inside-patch-a").press("ArrowRight")
    page.get_by_text("p = row 6, column 3").wait_for()
    patches = [
        extract_patches(photo.gray, Region(*numbers).frames(), 64)
        for photo, numbers in zip(served.explorer.pair, of_panel(page, REGIONS_OF_CHOSEN), strict=True)
    ]
    sized = resize_patches(torch.from_numpy(np.stack(patches)).float(), 32)
    page.wait_for_function(
        "() => [...document.querySelectorAll('#maps canvas')].every((one) => /row/.test(one.ariaLabel))"
    )
    # The model that matched comes first, then those it is compared with; every map says where it is brightest.
    names = page.locator("#maps figcaption b").all_inner_texts()
    assert names[0] == "light, Cartesian"
    assert page.locator("#maps h3").first.inner_text() == "light, which matched these photos"
    assert {"dual, Cartesian half", "dual, polar half", "dual, both halves", "fc, fully connected"} < set(names)
    for view, name in (("light, Cartesian", "light"), ("dual, both halves", "dual"), ("fc, fully connected", "fc")):
        expected = similarity_map(load(name), sized[0], sized[1], 5, 2)
        row, column = np.unravel_index(int(expected.argmax()), (8, 8))
        label = page.locator("#maps canvas").nth(names.index(view)).get_attribute("aria-label")
        assert label == f"Similarity map of {view}: brightest at row {row + 1}, column {column + 1}"
    # The cross at p is white, on every map.
    for number in range(len(names)):
        assert drawn_map(page, number)[int((5 + 1 / 8) * 20), int((2 + 1 / 8) * 20)] == 255
    assert page.get_by_text("Bright: where in B the network sees what lies at the cross").is_visible()
    assert page.get_by_text("least alike").is_visible()
    assert page.locator(".scale i").bounding_box()["width"] > 100


def test_the_strip_chooses_and_moving_the_second_patch_draws_the_curve(page, served):
    open_inside(page)
    film = page.get_by_role("listbox")
    assert film.get_by_role("option", name="Match 1,").get_attribute("aria-selected") == "true"
    film.focus()
    page.keyboard.press("End")
    count = of_panel(page, "shown.length")
    page.get_by_role("heading", name=f"Match {count} of {count}").wait_for()
    assert film.get_by_role("option").count() < 40  # only what is in view
    page.keyboard.press("Home")
    page.get_by_role("heading", name=f"Match 1 of {count}").wait_for()
    film.get_by_role("option", name="Match 2,").click()
    page.get_by_role("heading", name=f"Match 2 of {count}").wait_for()
    assert of_panel(page, "shown.indexOf(chosen)") == 1
    page.locator("#inside-b").select_option("same")
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(1) input", 45)
    page.get_by_text("45°", exact=True).wait_for()
    page.get_by_text(", moved").wait_for()
    whole_table = page.wait_for_function(  # waited for and read in one step: it is drawn anew while models answer
        """() => { const rows = [...document.querySelectorAll("#curve-values tr")].map(({ cells: [name, cosine] }) =>
          [name.textContent, cosine.textContent]);
          return rows.length > 0 && rows.every(([, cosine]) => cosine !== "–") && rows; }"""
    )
    shown = {name: float(cosine) for name, cosine in whole_table.json_value()}
    photo, region = served.explorer.pair[0], Region(*of_panel(page, REGIONS_OF_CHOSEN)[0])
    for model in ("dual", "light", "RootSIFT"):
        cosines, steps, _ = served.explorer.inspector.curve(photo, region, photo, region, "turn", PatchChange(), model)
        at = int(np.abs(steps - 45).argmin())
        for name, line in cosines.items():
            assert shown[name] == pytest.approx(float(line[at]), abs=1e-3)
    assert max(shown.values()) < 1
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()


def test_a_mean_over_matches_says_which_half_loses_more_of_its_lead(page, served):
    open_inside(page)
    page.get_by_text("One match can mislead").wait_for()
    page.locator("#inside-mean").select_option("20 matches that agree, mean")
    page.get_by_text("Move a slider to see which half loses more.").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(2) input", 4.8)
    said = page.locator("#curve-words").filter(has_text="Mean of 20 matches that agree, on this pair of photos: ")
    said.wait_for()
    regions = page.evaluate(
        """() => { const { found, shown } = matchkernel.panels[0], { arrays } = found;
          const { frames_a, frames_b, pairs, agrees, rivals_b } = arrays;
          const right = shown.filter((i) => agrees.data[i]), row = ({ data }, k) => [...data.slice(6 * k, 6 * k + 6)];
          return [...Array(20).keys()].map((k) => right[Math.round(k * (right.length - 1) / 19)])
            .map((i) => [row(frames_a, pairs.data[2 * i]), row(frames_b, pairs.data[2 * i + 1]),
              row(frames_b, rivals_b.data[rivals_b.shape[1] * i])]); }"""
    )
    a, b = served.explorer.pair
    losses, leads = np.zeros((2, 20)), np.zeros((2, 20))
    for k, (first, second, rival) in enumerate(regions):
        own, other = (
            served.explorer.inspector.curve(a, Region(*first), b, Region(*end), "right", PatchChange(), "dual")
            for end in (second, rival)
        )
        at = int(np.abs(own[1] - 4.8).argmin())
        for half, system in enumerate(("polar", "Cartesian")):
            line = own[0][f"dual, {system} half"]
            losses[half, k], leads[half, k] = line[20] - line[at], line[20] - other[0][f"dual, {system} half"][20]
    shares = losses.mean(1) / leads.mean(1)
    rests = (losses - shares[:, None] * leads) / leads.mean(1)[:, None]
    difference = shares[0] - shares[1]
    reach = student.ppf(0.975, 19) * np.std(rests[0] - rests[1], ddof=1) / np.sqrt(20)
    numbers = re.findall(r"-?\d+(?= %[,:]|[; ]|\))", said.inner_text().partition("next best, ")[2])
    expected = [*shares, difference, difference - reach, difference + reach]
    told = [float(number) for number in numbers if number != "95"]
    assert told == pytest.approx([100 * value for value in expected], abs=0.7)
    verdict = "no clear difference"
    if abs(difference) > reach:
        verdict = f"{'polar' if difference > 0 else 'Cartesian'} loses more"
    assert f": {verdict} (" in said.inner_text()
    page.locator("#inside-b").select_option("the next best in B")
    page.get_by_text("Mean of 20 matches that agree, patch A with the next best in B.").wait_for()


def test_halves_without_a_lead_over_the_next_best_are_not_compared(page):
    of_panel(  # the next best of every match is its own place
        page,
        """arrays.rivals_b.data.forEach((_, k, all) => {
          all[k] = arrays.pairs.data[2 * Math.floor(k / arrays.rivals_b.shape[1]) + 1]; })""",
    )
    open_inside(page)
    page.locator("#inside-mean").select_option("20 matches that agree, mean")
    page.get_by_text("Move a slider to see which half loses more.").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(2) input", 4.8)
    page.get_by_text("No lead over the next best to lose.").wait_for()


def test_the_sliders_lie_under_the_patches_beside_the_maps(page):
    open_inside(page)
    boxes = [page.locator(selector).bounding_box() for selector in ("#inside-patch-b", "#sliders", "#maps")]
    assert boxes[1]["y"] + boxes[1]["height"] < 900  # all in sight
    assert boxes[1]["y"] - (boxes[0]["y"] + boxes[0]["height"]) < 150
    assert boxes[2]["x"] > boxes[1]["x"] + boxes[1]["width"]


def test_another_match_inside_leaves_the_photos_whole(page):
    page.keyboard.press("ArrowRight")
    page.locator("#look-inside").click()
    page.get_by_role("option", name="Match 2,").click()
    page.locator("#tab-match").click()
    wait_until_fits(page)
    start = view_of(page)
    press_on_photos(page, "+")
    page.get_by_role("button", name="whole photos").click()
    assert view_of(page) == pytest.approx(start)


def test_what_is_inside_follows_the_match_and_the_photos(served, new_page):
    """Opened before the first match ends; then there is no photo B; then another one."""
    page, nothing = new_page("about:blank"), "There is no match to look into yet."
    page.add_init_script(
        """const { fetch } = window, held = new Promise((go) => { window.go = go; });
        window.fetch = async (path, ...rest) => (path === "/api/match" && await held, fetch(path, ...rest));"""
    )
    page.goto(served.address)
    page.locator("#tab-inside").click()
    page.get_by_text(nothing).wait_for()
    page.evaluate("go()")
    page.get_by_role("heading", name="Match 1 of").wait_for(timeout=60_000)
    page.get_by_text("p = row 2, column 6").wait_for()
    page.evaluate("matchkernel.chooser.set([matchkernel.photos[0], null])")
    page.get_by_text(nothing).wait_for(timeout=60_000)
    assert page.locator("#film").is_hidden()
    page.evaluate("matchkernel.chooser.set([matchkernel.photos[0], matchkernel.photos[0]])")
    page.get_by_role("heading", name="Match 1 of").wait_for()
    assert page.evaluate("matchkernel.inside.film.found === matchkernel.panels[0].found")


def test_the_cross_may_move_before_the_maps_of_another_model_are_there(page):
    page.locator("#advanced summary").click()
    for model in ("light-wide", "light"):  # the maps of the first, which is not compared, are not among the second's
        page.locator("#limits select").select_option(model)
        page.wait_for_function("(name) => matchkernel.panels[0].found.facts.model === name", arg=model)
        page.locator("#tab-inside").click()
        page.get_by_role("heading", name=f"{model}, which matched these photos").wait_for()
        page.get_by_text("p = row 2, column 6").wait_for()
        page.evaluate("() => { matchkernel.source.maps = () => new Promise(() => {}); }")
        page.locator("#tab-match").click()
    page.locator("#tab-inside").click()
    page.locator("#inside-patch-a").press("ArrowRight")
