"""The tab "Match": the answer, the photos with their matches, limits, several models, downloads."""

import csv
import io
import json
import re

import numpy as np
import pytest
from page_steps import SHOWN, counts, limit, of_panel, passed_and_right, set_slider, view_of, wait_until_fits, words
from PIL import Image

from matchkernel.photos.verify import ERRORS

pytestmark = pytest.mark.browser


def brightness(page):
    """The mean over all pixels of the photos as they are drawn."""
    return page.evaluate(
        """() => { const panel = matchkernel.panels[0]; panel.drawNow();
          const { data } = panel.canvas.getContext("2d").getImageData(0, 0, panel.canvas.width, panel.canvas.height);
          return data.reduce((sum, value) => sum + value, 0) / data.length; }"""
    )


def test_the_answer_comes_first_with_its_counts_lines_and_where(page, served):
    passed, right = passed_and_right(served, "light")
    assert words(page).startswith("Same scene.")
    assert f"{right} of {passed} matches fit" in words(page)
    assert words(page).endswith(": chance practically never gives so many.")
    assert of_panel(page, "facts.significance") > 22
    assert page.get_by_text("Do two photos show the same thing, and where?").is_visible()
    assert counts(page) == [right, passed - right]
    page.get_by_text("How sure is this?").click()
    assert page.get_by_text("31 were taken for the same").is_visible()
    # Lines: at most 150 at first; the slider takes fewer, evenly chosen.
    assert of_panel(page, "drawn.length") == min(150, passed)
    set_slider(page, ".tools .slider input", 10)
    assert of_panel(page, "drawn.length") == 10
    assert page.locator(".tools .slider output").inner_text() == f"10 of {passed}"
    agreeing = of_panel(page, "drawn.filter((i) => arrays.agrees.data[i]).length")
    assert agreeing == pytest.approx(10 * right / passed, abs=0.5)
    # The legend chooses what is shown.
    page.locator(".key.agrees input").uncheck()
    assert of_panel(page, "shown.map((i) => arrays.agrees.data[i])") == [0] * (passed - right)
    page.locator(".key.agrees input").check()
    # Where: pixels far from any match that agrees are darker with the shade than without.
    dimmed = brightness(page)
    page.get_by_label("dim where none agrees").uncheck()
    assert brightness(page) > dimmed + 1


def test_what_a_no_counts_and_what_easily_confused_matches_say(page):
    for facts, confusions, expected in (
        ("geometry: null, reason: '18 of 70 matches agree on a fundamental matrix, as many as chance can give'", 0,
         "but the largest group that fits together is 18; chance gives as many."),
        ("geometry: null, reason: 'no homography fits the matches'", 0, "but no homography fits the matches."),
        ("geometry: 'fundamental'", 0.99, "Many of these are easily confused: some may join look-alike parts."),
        ("geometry: 'fundamental'", 0.5, "practically never gives so many."),
        ("geometry: 'homography'", 0.99, "practically never gives so many."),
    ):  # fmt: skip
        page.evaluate(
            f"""() => {{ const panel = matchkernel.panels[0]; Object.assign(panel.found.facts, {{ {facts} }});
              panel.found.arrays.confusions.data.fill({confusions}); panel.refilter(); }}"""
        )
        assert words(page).endswith(expected)


def test_pan_zoom_pinch_and_whole(served, new_page):
    page = new_page(served.address, has_touch=True)
    page.wait_for_selector(SHOWN)
    start = view_of(page)
    canvas = page.locator(".panel canvas")
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    page.wait_for_function("(scale) => matchkernel.panels[0].view.scale > 1.5 * scale", arg=start["scale"])
    zoomed = view_of(page)
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
    touch = page.context.new_cdp_session(page)

    def fingers(kind, *places):
        points = [{"x": place, "y": y, "id": k} for k, place in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", x - 20, x + 20)
    for spread in (30, 40, 60):
        fingers("touchMove", x - spread, x + spread)
    fingers("touchEnd")
    page.wait_for_function("(scale) => matchkernel.panels[0].view.scale > 2 * scale", arg=start["scale"])
    pinched = view_of(page)
    at = [(x - box["x"] - view["x"]) / view["scale"] for view in (start, pinched)]
    assert at[0] == pytest.approx(at[1], abs=3 / start["scale"])


def test_limits_act_in_the_browser_as_the_filters_do(page, served):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.locator("#advanced summary").click()
    for keep, values in {
        "ratio": (0.8, None),
        "distance": (None, 0.6),
        "both": (0.85, 0.7),
        "either": (0.7, 0.5),
    }.items():
        page.evaluate("window.before = matchkernel.panels[0].found")
        page.locator("#filter").select_option(keep)
        page.wait_for_function("() => matchkernel.panels[0].found !== window.before")
        assert of_panel(page, "facts.limits.kind") == keep
        requests.clear()
        for number, value in enumerate(values):
            assert page.locator("#limits .slider").nth(number).is_visible() == (value is not None)
            if value is not None:
                set_slider(page, limit(number + 1), value)
        name = f"{keep}:{','.join(str(value) for value in values if value is not None)}"
        kept = int(served.explorer.matcher.compare(*served.explorer.pair, "light", 150, name).arrays["kept"].sum())
        assert sum(counts(page)) == kept, name
        assert requests == []
    page.locator("#limits select").select_option("rootsift")
    page.locator("#filter").select_option("both")
    page.locator("#limits .slider output").filter(has_text="0.342").wait_for()
    assert page.locator("#limits .slider input").evaluate_all("all => all.map((one) => one.value)") == ["0.9", "0.342"]
    # A number of points that cannot be is replaced, and what fails leaves nothing of what was found before.
    page.locator("#keypoints").fill("5")
    page.locator("#keypoints").press("Enter")
    page.get_by_text("from 10 to 8,000; 10 are taken").wait_for()
    assert page.locator("#keypoints").input_value() == "10"
    page.wait_for_selector(SHOWN)
    page.route("**/api/match", lambda route: route.fulfill(status=400, json={"error": "out of order"}))
    page.locator("#filter").select_option("ratio")
    page.get_by_text("out of order").wait_for()
    assert words(page).startswith("No matches.")
    assert of_panel(page, "[found, drawn.length]") == [None, 0]
    assert page.locator(".legend").is_hidden()
    assert page.locator("#details").inner_text() == ""


def test_two_models_and_other_windows_show_both_photos(page):
    page.locator("#advanced summary").click()
    page.get_by_label("compare two models").check()
    page.wait_for_selector(f"{SHOWN} >> nth=1")
    labels = page.locator(".panel .small span").all_inner_texts()
    assert [label.split(" ")[0].strip(",") for label in labels] == ["light", "rootsift"]
    boxes = [page.locator(".stage").nth(k).bounding_box() for k in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["height"] == boxes[1]["height"]
    for width, height in ((1200, 900), (700, 900), (390, 500), (1600, 700)):
        page.set_viewport_size({"width": width, "height": height})
        wait_until_fits(page)
    page.locator("#limits select").nth(1).select_option("sift")
    page.locator(".panel .small span").nth(1).filter(has_text=re.compile(r"^sift\b")).wait_for()
    page.get_by_label("compare two models").uncheck()
    assert page.locator(".panel").count() == 1
    wait_until_fits(page)


def test_downloads_hold_what_is_shown_in_the_pixels_of_the_files(page, photo_files, tmp_path):
    """The first photo lies on its side, as phones store it; the page turns it."""
    stored, exif = Image.open(photo_files[0]).transpose(Image.Transpose.ROTATE_90), Image.Exif()
    exif[0x0112] = 6  # to be turned to the right
    stored.save(tmp_path / "side.png", exif=exif)
    page.locator("#photo-a input").set_input_files(tmp_path / "side.png")
    page.locator("#photo-a").get_by_text(f"{stored.height} × {stored.width}").wait_for()
    page.locator("#photo-b input").set_input_files(photo_files[1])
    page.wait_for_selector(".legend:not([hidden])")
    size = page.evaluate(
        "async () => { const image = new Image(); image.src = matchkernel.urls[0]; await image.decode();"
        " return [image.width, image.height]; }"
    )
    assert size == [stored.height, stored.width]
    saved = {}
    for name in ("JSON", "CSV", "PNG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        saved[name] = waiting.value.path().read_bytes()
    content = json.loads(saved["JSON"])
    assert len(content["matches"]) == len(content["inliers"]) == sum(counts(page))
    rows = list(csv.DictReader(io.StringIO(saved["CSV"].decode())))
    assert len(rows) == sum(counts(page))
    a, _ = content["matches"][0]
    assert float(rows[0]["x0"]) == pytest.approx(content["keypoints0"][a][0], abs=1e-3)
    x, y = of_panel(page, "[...arrays.frames_a.data.slice(0, 2)]")  # upright
    assert content["keypoints0"][0] == pytest.approx([y, stored.height - 1 - x], abs=1e-3)
    points = [np.array(content[f"keypoints{k}"])[np.array(content["matches"])[:, k]] for k in (0, 1)]
    errors = ERRORS[content["geometry"]](np.array(content["model"]), *points)
    assert (errors[np.array(content["inliers"])] <= 3.01).all()
    assert Image.open(io.BytesIO(saved["PNG"])).width > 600
