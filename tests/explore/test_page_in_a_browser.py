"""The explorer page in a real Chromium: what people do with it, end to end."""

import csv
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from matchkernel.explore.inside import PatchChange, Region
from matchkernel.explore.save import save_page
from matchkernel.geometry.frames import extract_patches
from matchkernel.model.describe import resize_patches
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import load

pytestmark = pytest.mark.browser

SHOWN = ".panel[data-state=shown]"


@pytest.fixture
def page(served, new_page):
    page = new_page(served.address)
    page.wait_for_selector(SHOWN)
    return page


def set_slider(page, selector, value):
    page.evaluate(
        "([selector, value]) => { const slider = document.querySelector(selector); slider.value = value;"
        " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        [selector, value],
    )


def words(page, number=0):
    return page.locator(".panel .words").nth(number).inner_text()


def view_of(page):
    return page.evaluate("() => { const { scale, x, y } = matchkernel.panels[0].view; return { scale, x, y }; }")


def end_on_screen(page, place):
    """Where an end of the match at a place among the shown ones lies in the window."""
    return page.evaluate(
        """(place) => {
          const panel = matchkernel.panels[0], { found, shown, view, canvas } = panel;
          const index = found.arrays.pairs.data[2 * shown[place]], frames = found.arrays.frames_a.data;
          const box = canvas.getBoundingClientRect();
          return [box.left + view.x + (frames[6 * index] + 0.5) * view.scale,
                  box.top + view.y + (frames[6 * index + 1] + 0.5) * view.scale];
        }""",
        place,
    )


def test_photos_are_uploaded_and_matched(page, photo_files):
    before = words(page)
    for box, path in zip(("#photo-a", "#photo-b"), reversed(photo_files), strict=True):
        page.locator(f"{box} input").set_input_files(path)
        page.locator(box).get_by_text(f"{path.name}, ").wait_for()
    page.wait_for_selector(SHOWN)
    assert "matches" in words(page)
    assert words(page) != before
    assert page.locator("#message").is_hidden()


def test_a_wrong_file_is_explained_and_the_old_photos_stay(page, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no photo")
    before = words(page)
    page.locator("#photo-a input").set_input_files(path)
    page.wait_for_selector("#message:not([hidden])")
    assert page.locator("#message span").inner_text().startswith("notes.txt: ")
    assert words(page) == before
    large = tmp_path / "large.png"
    large.write_bytes(bytes(2**20 + 1))
    page.locator("#photo-a input").set_input_files(large)
    page.get_by_text("large.png: ").wait_for()
    page.locator("#message button").click()
    assert page.locator("#message").is_hidden()


def test_pan_zoom_and_whole(page):
    start = view_of(page)
    canvas = page.locator(".panel canvas")
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(50)
    zoomed = view_of(page)
    assert zoomed["scale"] > 1.5 * start["scale"]
    # The place under the pointer stays under it.
    at = [(x - box["x"] - view["x"]) / view["scale"] for view in (start, zoomed)]
    assert at[0] == pytest.approx(at[1], abs=0.5)
    page.mouse.down()
    page.mouse.move(x + 60, y - 30, steps=4)
    page.mouse.up()
    moved = view_of(page)
    assert (moved["x"] - zoomed["x"], moved["y"] - zoomed["y"]) == pytest.approx((60, -30), abs=6)
    canvas.focus()
    page.keyboard.press("0")
    assert view_of(page) == pytest.approx(start)


def test_hover_click_and_arrow_keys_show_patches_and_rivals(page, served):
    page.mouse.move(*end_on_screen(page, 3))
    page.get_by_role("heading", name=re.compile(r"^Match \d")).wait_for()
    page.mouse.click(*end_on_screen(page, 0))
    page.get_by_role("heading", name="Match 1 of").wait_for()
    numbers = page.locator("#details dd").all_inner_texts()
    distances = page.evaluate(
        "[...matchkernel.panels[0].shown].map((i) => matchkernel.panels[0].found.arrays.distances.data[i])"
    )
    assert float(numbers[0]) == pytest.approx(min(distances), abs=5e-4)
    rivals = [float(text) for text in page.locator(".rivals figcaption").all_inner_texts()]
    assert rivals
    assert min(rivals) >= float(numbers[0])
    # The patch that is drawn is the one that the network sees.
    pixel = page.evaluate("document.querySelector('.pair canvas').getContext('2d').getImageData(66, 2, 1, 1).data[0]")
    index = page.evaluate("matchkernel.panels[0].found.arrays.pairs.data[2 * matchkernel.panels[0].chosen]")
    photo = served.explorer.pair[0]
    assert pixel == served.explorer.matcher.patches(photo, 150)[index, 0, 16]
    page.locator(".panel canvas").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Match 2 of").wait_for()


def test_sliders_act_in_the_browser_as_the_filters_do(page, served):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    a, b = served.explorer.pair
    for keep, ratio, distance, join in (
        ("ratio:0.8", 0.8, 2, "both"),
        ("distance:0.6", 1, 0.6, "both"),
        ("both:0.85,0.7", 0.85, 0.7, "both"),
        ("either:0.7,0.5", 0.7, 0.5, "either"),
    ):
        set_slider(page, ".panel .slider:nth-of-type(1) input", ratio)
        set_slider(page, ".panel .slider:nth-of-type(2) input", distance)
        page.locator(".sliders select").select_option(join)
        kept = int(served.explorer.matcher.compare(a, b, "light", 150, keep).arrays["kept"].sum())
        assert words(page).startswith(f"{kept} of "), keep
    assert requests == []
    page.get_by_label("inliers only").check()
    assert page.evaluate("matchkernel.panels[0].shown.every((i) => matchkernel.panels[0].found.arrays.agrees.data[i])")


def test_sliders_begin_at_the_exact_limits_of_the_model(page, served):
    a, b = served.explorer.pair
    page.locator(".panel select").first.select_option("rootsift")
    page.locator("#filter").select_option("both")
    page.locator(".panel .slider output").filter(has_text="0.342").wait_for()
    assert page.locator(".panel .slider input").evaluate_all("all => all.map((one) => one.value)") == ["0.9", "0.342"]
    kept = int(served.explorer.matcher.compare(a, b, "rootsift", 150, "both").arrays["kept"].sum())
    assert words(page).startswith(f"{kept} of ")


def test_two_models_side_by_side(page):
    page.get_by_label("two models").check()
    page.wait_for_selector(f"{SHOWN} >> nth=1")
    assert "rootsift" in words(page, 1)
    assert "light" in words(page, 0)
    page.wait_for_function(  # the photos fit into the narrower panels
        """() => matchkernel.panels.every(({ view, canvas }) => {
          const [a, b] = matchkernel.photos;
          return view.scale * (a.width + b.width * a.height / b.height) <= canvas.clientWidth;
        })"""
    )
    page.locator(".panel select").nth(2).select_option("sift")
    page.get_by_text("· sift,").wait_for()
    page.get_by_label("two models").uncheck()
    assert page.locator(".panel").count() == 1


def test_downloads_hold_what_is_shown(page):
    count = int(words(page).split()[0])
    saved = {}
    for name in ("JSON", "CSV", "PNG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        saved[name] = waiting.value.path().read_bytes()
    content = json.loads(saved["JSON"])
    assert len(content["matches"]) == len(content["inliers"]) == count
    rows = list(csv.DictReader(io.StringIO(saved["CSV"].decode())))
    assert len(rows) == count
    a, _ = content["matches"][0]
    assert float(rows[0]["x0"]) == pytest.approx(content["keypoints0"][a][0], abs=1e-3)
    assert Image.open(io.BytesIO(saved["PNG"])).width > 600


def drawn_map(page, number):
    """(16, 16) of a drawn map, as a share of its range: the brightest of viridis is the greenest."""
    values = page.evaluate(
        """(number) => { const canvas = document.querySelectorAll("#maps canvas")[number];
          return [...canvas.getContext("2d").getImageData(0, 0, 128, 128).data].filter((_, k) => k % 4 === 1); }""",
        number,
    )
    return np.array(values).reshape(128, 128)


def test_maps_of_a_clicked_position_are_similarity_maps(page, served):
    page.locator(".panel canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#look-inside")
    page.keyboard.press("Enter")
    page.get_by_text("p = row 5, column 5").wait_for()
    box = page.locator("#inside-patch-a").bounding_box()
    pixel = box["width"] / 32
    page.mouse.click(box["x"] + 4.5 * pixel, box["y"] + 20.5 * pixel)
    page.get_by_text("p = row 6, column 2").wait_for()
    page.locator("#inside-patch-a").press("ArrowRight")
    page.get_by_text("p = row 6, column 3").wait_for()
    found = page.evaluate(
        """async () => { const { found, chosen } = matchkernel.panels[0], { frames_a, frames_b, pairs } = found.arrays;
          const row = (frames, side) => {
            const start = 6 * pairs.data[2 * chosen + side];
            return [...frames.data.subarray(start, start + 6)];
          };
          return [row(frames_a, 0), row(frames_b, 1)]; }"""
    )
    patches = [
        extract_patches(photo.gray, Region(*numbers).frames(), 64)
        for photo, numbers in zip(served.explorer.pair, found, strict=True)
    ]
    sized = resize_patches(torch.from_numpy(np.stack(patches)).float(), 32)
    for number, name in ((0, "light"), (3, "dual"), (4, "fc")):
        expected = similarity_map(load(name), sized[0], sized[1], 5, 2)
        best = np.unravel_index(int(expected.argmax()), (8, 8))
        peak = np.unravel_index(int(drawn_map(page, number).argmax()), (128, 128))
        assert [round((place - 1.5) / 16) for place in peak] == list(best), name


def test_moving_the_second_patch_draws_the_curve(page, served):
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")
    page.locator("#inside-b").select_option("same")
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(1) input", 45)
    page.get_by_text("45°", exact=True).wait_for()
    page.get_by_text(", moved").wait_for()
    values = [float(text) for text in page.locator("#curve-values td").all_inner_texts()]
    numbers = page.evaluate(
        """() => { const { found, shown } = matchkernel.panels[0], { frames_a, pairs } = found.arrays;
          const index = pairs.data[2 * shown[0]]; return [...frames_a.data.subarray(6 * index, 6 * index + 6)]; }"""
    )
    photo, region = served.explorer.pair[0], Region(*numbers)
    cosines, steps, _ = served.explorer.inspector.curve(photo, region, photo, region, "turn", PatchChange())
    at = int(np.abs(steps - 45).argmin())
    assert values == pytest.approx([float(line[at]) for line in cosines.values()], abs=1e-3)
    assert max(values) < 1
    page.get_by_role("button", name="Back to the match").click()
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()


def test_the_report_is_shown(page):
    page.locator("#tab-match").focus()
    page.keyboard.press("ArrowLeft")
    page.frame_locator("iframe").get_by_role("heading", name="the report").wait_for()


def test_a_phone_has_no_sideways_scrolling(served, new_page):
    page = new_page(served.address, width=390, height=844, has_touch=True)
    page.wait_for_selector(SHOWN)
    for tab in ("match", "inside", "results"):
        page.locator(f"#tab-{tab}").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab


def test_the_saved_file_works_from_the_disk_without_a_network(served, pair, new_page, tmp_path):
    path = tmp_path / "page.html"
    size = save_page(path, pair, served.settings, compare="rootsift", matches=40, report="<h1>the report</h1>")
    assert size == path.stat().st_size
    page = new_page(path.as_uri(), offline=True)
    page.wait_for_selector(f"{SHOWN} >> nth=1")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    assert int(words(page).split()[0]) <= 20
    set_slider(page, ".panel .slider:nth-of-type(1) input", 0.5)
    assert words(page) != ""
    set_slider(page, ".panel .slider:nth-of-type(1) input", 1)
    page.locator(".panel canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#look-inside")
    page.keyboard.press("Enter")
    page.get_by_text("p = row 5, column 5").wait_for()
    before = drawn_map(page, 0)
    page.locator("#inside-patch-a").press("ArrowUp")
    assert (drawn_map(page, 0) != before).any()
    assert page.get_by_text("Live only").is_visible()
    assert page.locator("#sliders").is_hidden()
    page.locator("#tab-results").click()
    page.frame_locator("iframe").get_by_role("heading", name="the report").wait_for()
    assert [url for url in requests if url.startswith("http")] == []
