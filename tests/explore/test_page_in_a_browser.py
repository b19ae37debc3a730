"""The explorer page in a real Chromium: what people do with it, end to end."""

import csv
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import t as student

from matchkernel.explore.inside import PatchChange, Region
from matchkernel.explore.save import save_page
from matchkernel.geometry.frames import extract_patches
from matchkernel.model.describe import resize_patches
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import load
from matchkernel.photos.verify import ERRORS

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


def limit(number):
    return f"#limits .slider:nth-of-type({number + 1}) input"  # after the model


def words(page, number=0):
    return page.locator(".panel .verdict").nth(number).inner_text()


def counts(page):
    """How many of the matches that pass agree, and how many do not, as the legend says."""
    return [int(text.replace(",", "")) for text in page.locator(".key b").all_inner_texts()]


def view_of(page):
    return page.evaluate("() => { const { scale, x, y } = matchkernel.panels[0].view; return { scale, x, y }; }")


def fits(page):
    """Whether both photos lie inside the canvas of each panel."""
    return page.evaluate(
        """() => matchkernel.panels.every(({ view, canvas, stage }) => {
          const [a, b] = matchkernel.photos, stacked = stage.classList.contains("stacked");
          const width = stacked ? a.width : a.width + b.width * a.height / b.height;
          const height = stacked ? a.height + b.height * a.width / b.width : a.height;
          return view.scale * width <= canvas.clientWidth + 1 && view.scale * height <= canvas.clientHeight + 1;
        })"""
    )


def end_on_screen(page, place, side=0):
    """Where an end of the match at a place among those drawn lies in the window."""
    return page.evaluate(
        """([place, side]) => {
          const panel = matchkernel.panels[0], { found, drawn, view, canvas } = panel, { arrays } = found;
          const index = arrays.pairs.data[2 * drawn[place]], frames = arrays.frames_a.data;
          const box = canvas.getBoundingClientRect();
          return [box.left + view.x + (frames[6 * index] + 0.5) * view.scale,
                  box.top + view.y + (frames[6 * index + 1] + 0.5) * view.scale];
        }""",
        [place, side],
    )


def drop(page, selector, *paths):
    """Drop files on an element, as the browser does."""
    files = [[path.name, list(path.read_bytes())] for path in paths]
    page.evaluate(
        """([selector, files]) => {
          const dataTransfer = new DataTransfer(), target = document.querySelector(selector);
          for (const [name, bytes] of files) dataTransfer.items.add(new File([new Uint8Array(bytes)], name));
          const { left, top, width, height } = target.getBoundingClientRect();
          const at = { clientX: left + 0.75 * width, clientY: top + height / 2, bubbles: true, cancelable: true };
          for (const kind of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(kind, { ...at, dataTransfer }));
        }""",
        [selector, files],
    )


SAID = """new MutationObserver(() => { const said = document.querySelector(".verdict")?.textContent;
  if (said && said !== window.said.at(-1)) window.said.push(said); })
  .observe(document, { subtree: true, childList: true })"""


def test_own_photos_wait_for_each_other_and_outlive_a_reload(page, photo_files):
    page.evaluate(f"window.said = []; {SAID}")
    page.get_by_role("button", name="Sample pair").click()
    page.locator("#photo-b").get_by_text("sample, right").wait_for()
    assert page.get_by_role("button", name="Sample pair").is_hidden()
    page.wait_for_selector(SHOWN)
    page.locator("#photo-a input").set_input_files(photo_files[1])
    page.locator("#photo-a").get_by_text(f"{photo_files[1].name}, ").wait_for()
    # It is not matched with the sample: B is empty, and says so where it will be.
    assert page.locator("#photo-b .name").inner_text() == "none yet"
    assert page.locator(".empty.b").is_visible()
    assert page.locator(".legend").is_hidden()
    with page.expect_file_chooser():
        page.locator(".empty.b").click()
    drop(page, ".stage", photo_files[0])  # on its right half
    page.wait_for_selector(".legend:not([hidden])")
    assert page.locator("#photo-b .name").inner_text().startswith(photo_files[0].name)
    said = page.evaluate("window.said")
    assert any(text.startswith("Finding points …") for text in said)
    assert any(re.match(r"Comparing \d+ and \d+ points …", text) for text in said)
    page.reload()
    page.wait_for_selector(SHOWN)
    names = page.locator(".photo .name").all_inner_texts()
    assert [name.partition(",")[0] for name in names] == [photo_files[1].name, photo_files[0].name]
    page.locator("#photo-a input").set_input_files(photo_files[0])  # nobody asked for it with the old B
    page.locator(".empty.b").wait_for()
    page.locator("#photo-b input").set_input_files(photo_files[0])
    page.wait_for_selector(".legend:not([hidden])")
    drop(page, "h1", *photo_files)  # two photos, anywhere
    page.locator("#photo-a").get_by_text(f"{photo_files[0].name}, ").wait_for()
    page.locator("#photo-b").get_by_text(f"{photo_files[1].name}, ").wait_for()


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


def test_the_answer_comes_first_with_its_counts_lines_and_where(page, served):
    found = served.explorer.matcher.compare(*served.explorer.pair, "light", 150, "ratio")
    kept = found.arrays["kept"].astype(bool)
    passed, right = int(kept.sum()), int(found.arrays["agrees"][kept].sum())
    assert words(page).startswith("Same scene.")
    assert f"{right} of {passed} matches fit" in words(page)
    assert words(page).endswith(": chance practically never gives so many.")
    assert found.facts["significance"] > 22
    assert page.get_by_text("Do two photos show the same thing, and where?").is_visible()
    assert counts(page) == [right, passed - right]
    page.get_by_text("How sure is this?").click()
    assert page.get_by_text("29 were taken for the same").is_visible()
    # Lines: at most 150 at first; the slider takes fewer, evenly chosen.
    drawn = "matchkernel.panels[0].drawn.length"
    assert page.evaluate(drawn) == min(150, passed)
    set_slider(page, ".tools .slider input", 10)
    assert page.evaluate(drawn) == 10
    assert page.locator(".tools .slider output").inner_text() == f"10 of {passed}"
    agreeing = "matchkernel.panels[0].drawn.filter((i) => matchkernel.panels[0].found.arrays.agrees.data[i]).length"
    assert page.evaluate(agreeing) == pytest.approx(10 * right / passed, abs=0.5)
    # The legend chooses what is shown.
    page.locator(".key.agrees input").uncheck()
    agrees = "matchkernel.panels[0].shown.map((i) => matchkernel.panels[0].found.arrays.agrees.data[i])"
    assert page.evaluate(agrees) == [0] * (passed - right)
    page.locator(".key.agrees input").check()
    # Where: pixels far from any match that agrees are darker with the shade than without.
    light = """async () => { const panel = matchkernel.panels[0]; panel.drawNow();
      const { data } = panel.canvas.getContext("2d").getImageData(0, 0, panel.canvas.width, panel.canvas.height);
      return data.reduce((sum, value) => sum + value, 0) / data.length; }"""
    dimmed = page.evaluate(light)
    page.get_by_label("dim where none agrees").uncheck()
    assert page.evaluate(light) > dimmed + 1


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


def test_hover_click_and_arrow_keys_show_patches_and_rivals(page, served):
    assert page.locator("#details").get_by_text("most alike first").is_visible()
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
    # The panel lies beside the photos where there is room.
    assert page.locator("#details").bounding_box()["x"] > page.locator(".stage").bounding_box()["width"]


def test_the_next_best_of_a_match_are_ringed_in_the_photos(page):
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Match 1 of").wait_for()
    at_rings = """() => { const panel = matchkernel.panels[0], { found, chosen, view, canvas } = panel;
      const [a, b] = matchkernel.photos, { arrays } = found, stacked = panel.stage.classList.contains("stacked");
      const scales = [1, stacked ? a.width / b.width : a.height / b.height];
      const start = stacked ? [0, a.height + 12] : [a.width + 12, 0], places = [];
      panel.drawNow();
      ["a", "b"].forEach((letter, side) => [0, 1].forEach((k) => {
        const index = 6 * arrays[`rivals_${letter}`].data[2 * (chosen ?? panel.shown[0]) + k];
        const [x, y] = [0, 1].map((axis) =>
          ((arrays[`frames_${letter}`].data[index + axis] + 0.5) * scales[side] + side * start[axis]) * view.scale);
        const ring = [[7, 0], [-7, 0], [0, -7]].map(([dx, dy]) => canvas.getContext("2d").getImageData(
          Math.floor(x + view.x + dx), Math.floor(y + view.y + dy), 1, 1).data);
        places.push(ring.some(([red, green, blue]) => red > 200 && green > 160 && blue < 90));
      }));
      return places; }"""
    assert page.evaluate(at_rings) == [True] * 4
    assert page.get_by_text("rings: its next best").is_visible()
    page.evaluate("matchkernel.panels[0].chosen = null")
    assert page.evaluate(at_rings) == [False] * 4


def test_the_panel_tells_of_what_is_marked_and_shown(page):
    wrong, right = page.locator(".key.differs input"), page.locator(".key.agrees input")
    passed = sum(counts(page))
    wrong.uncheck()
    page.get_by_role("button", name="Next match").click()
    page.get_by_role("heading", name=f"Match 1 of {counts(page)[0]}").wait_for()
    wrong.check()
    page.get_by_role("heading", name=f"of {passed}").wait_for()
    assert page.locator("#details").get_by_role("button", name="Next that does not").is_visible()
    page.locator("#look-inside").click()
    page.locator("#inside-title").filter(has_text=f"of {passed}").wait_for()
    page.locator("#tab-match").click()
    # A click on an empty place, and a match that is hidden, leave nothing to tell.
    for leave in (lambda: page.locator(".panel canvas").click(position={"x": 2, "y": 2}), right.uncheck):
        page.get_by_role("button", name="Next that agrees").click()
        page.get_by_text("Yellow: this match").wait_for()
        leave()
        page.get_by_role("heading", name="One match").wait_for()
        assert page.evaluate("matchkernel.panels[0].chosen") is None
    wrong.uncheck()
    assert page.get_by_text("Yellow: this match").count() == 0


def test_a_match_that_does_not_agree_says_how_far_off_it_is(page):
    set_slider(page, limit(1), 1)  # all mutual nearest neighbours
    page.locator(".key.agrees input").uncheck()
    page.locator(".panel canvas").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Match 3 of").wait_for()
    error = page.evaluate("matchkernel.panels[0].found.arrays.errors.data[matchkernel.panels[0].chosen]")
    text = page.locator(".fit").inner_text()
    assert text.startswith("Does not agree, ")
    assert float(re.search(r"in B ([\d,.]+) px", text)[1].replace(",", "")) == pytest.approx(error, abs=0.5)
    assert error > 3
    assert "up to 3 px counts as agreeing" in text
    assert len(page.locator(".why").inner_text()) > 60
    assert page.get_by_text("Yellow: this match; rings: its next best.").is_visible()
    # The next of each kind stays at hand, here and inside.
    page.locator(".key.agrees input").check()
    page.get_by_role("button", name="Next match").click()
    page.get_by_role("button", name="Next that agrees").click()
    page.get_by_text("does not prove it right").wait_for()
    chosen = """[matchkernel.panels[0].chosen].map((i) => [matchkernel.panels[0].shown.indexOf(i),
      matchkernel.panels[0].found.arrays.agrees.data[i]])[0]"""
    at, agrees = page.evaluate(chosen)
    assert agrees == 1
    page.locator("#look-inside").click()
    page.get_by_role("heading", name=f"Match {at + 1} of").wait_for()
    page.locator("#inside-steps").get_by_role("button", name="Next that does not").click()
    page.get_by_role("heading", name="does not agree with the others").wait_for()
    assert page.evaluate(chosen)[1] == 0


def test_clearly_wrong_matches_come_before_those_near_the_line(page):
    set_slider(page, limit(1), 1)
    errors = page.evaluate(
        "matchkernel.panels[0].shown.map((i) => matchkernel.panels[0].found.arrays.errors.data[i] || 0)"
    )
    clear, near = ([at for at, error in enumerate(errors) if low < error <= high] for low, high in ((9, 1e9), (3, 9)))
    assert clear
    assert near
    seen = []
    for at in (*clear, *near, clear[0]):
        page.get_by_role("button", name="Next that does not").click()
        page.get_by_role("heading", name=f"Match {at + 1} of").wait_for()
        seen.append(page.locator(".fit strong").inner_text())
    assert {text.strip() for text in seen[: len(clear)]} == {"Does not agree, probably wrong:"}


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


def test_keys_and_focus_stay_where_they_are_used(page):
    page.keyboard.press("ArrowRight")  # nothing is focused
    page.get_by_role("heading", name="Match 1 of").wait_for()
    for name, at in (("Next match", 2), ("Next that agrees", None)):
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        if at:
            page.get_by_role("heading", name=f"Match {at} of").wait_for()
        page.wait_for_function(
            "(name) => [document.activeElement.ariaLabel, document.activeElement.textContent].includes(name)", arg=name
        )
    before = page.evaluate("matchkernel.panels[0].chosen")
    page.keyboard.press("ArrowLeft")  # on a button
    page.wait_for_function("(match) => matchkernel.panels[0].chosen !== match", arg=before)
    page.locator("#advanced summary").click()
    page.locator("#keypoints").focus()
    before = page.evaluate("matchkernel.panels[0].chosen")
    page.keyboard.press("ArrowLeft")  # moves in the number
    assert page.evaluate("matchkernel.panels[0].chosen") == before
    # Under the photos, beside the match.
    assert page.locator("#advanced").bounding_box()["width"] == page.locator("#panels").bounding_box()["width"]


def test_another_match_inside_leaves_the_photos_whole(page):
    page.keyboard.press("ArrowRight")
    page.locator("#look-inside").click()
    page.get_by_role("option", name="Match 2,").click()
    page.locator("#tab-match").click()
    assert fits(page)
    page.locator(".panel canvas").focus()
    start = view_of(page)
    page.keyboard.press("+")
    page.get_by_role("button", name="whole photos").click()
    assert view_of(page) == pytest.approx(start)


def test_a_line_that_misses_the_photo_says_that_the_partner_is_not_in_it(page):
    for matrix, is_told in (("[[0, 0, 0], [0, 0, 0], [0, 0, 1]]", True), ("[[0, 0, 0], [0, 0, 1], [0, 0, -9]]", False)):
        facts = f"{{ geometry: 'fundamental', matrix: {matrix} }}"
        page.evaluate(f"Object.assign(matchkernel.panels[0].found.facts, {facts})")
        page.get_by_role("button", name="Next match").click()
        page.get_by_role("heading", name=f"Match {2 - is_told} of").wait_for()
        assert ("the true partner is not in it" in page.locator(".fit").inner_text()) == is_told


def test_limits_act_in_the_browser_as_the_filters_do(page, served):
    a, b = served.explorer.pair
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
        assert page.evaluate("matchkernel.panels[0].found.facts.limits.kind") == keep
        requests.clear()
        for number, value in enumerate(values):
            assert page.locator("#limits .slider").nth(number).is_visible() == (value is not None)
            if value is not None:
                set_slider(page, limit(number + 1), value)
        name = f"{keep}:{','.join(str(value) for value in values if value is not None)}"
        kept = int(served.explorer.matcher.compare(a, b, "light", 150, name).arrays["kept"].sum())
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
    assert page.evaluate("[matchkernel.panels[0].found, matchkernel.panels[0].drawn.length]") == [None, 0]
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
        page.wait_for_timeout(300)
        assert fits(page), width
    page.locator("#limits select").nth(1).select_option("sift")
    page.get_by_text("sift · ").wait_for()
    page.get_by_label("compare two models").uncheck()
    assert page.locator(".panel").count() == 1
    page.wait_for_timeout(300)
    assert fits(page)


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
    x, y = page.evaluate("[...matchkernel.panels[0].found.arrays.frames_a.data.slice(0, 2)]")  # upright
    assert content["keypoints0"][0] == pytest.approx([y, stored.height - 1 - x], abs=1e-3)
    points = [np.array(content[f"keypoints{k}"])[np.array(content["matches"])[:, k]] for k in (0, 1)]
    errors = ERRORS[content["geometry"]](np.array(content["model"]), *points)
    assert (errors[np.array(content["inliers"])] <= 3.01).all()
    assert Image.open(io.BytesIO(saved["PNG"])).width > 600


def drawn_map(page, number):
    """(8, 8) places of a drawn map, as a share of its range: the brightest of viridis is the greenest."""
    values = page.evaluate(
        """(number) => { const canvas = document.querySelectorAll("#maps canvas")[number];
          return [...canvas.getContext("2d").getImageData(0, 0, 160, 160).data].filter((_, k) => k % 4 === 1); }""",
        number,
    )
    return np.array(values).reshape(160, 160)


def test_maps_of_a_clicked_position_are_similarity_maps(page, served):
    page.locator(".panel canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#look-inside")
    page.keyboard.press("Enter")
    page.get_by_text("p = row 2, column 6").wait_for()
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
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")
    film = page.get_by_role("listbox")
    assert film.get_by_role("option", name="Match 1,").get_attribute("aria-selected") == "true"
    film.focus()
    page.keyboard.press("End")
    count = page.evaluate("matchkernel.panels[0].shown.length")
    page.get_by_role("heading", name=f"Match {count} of {count}").wait_for()
    assert film.get_by_role("option").count() < 40  # only what is in view
    page.keyboard.press("Home")
    page.get_by_role("heading", name=f"Match 1 of {count}").wait_for()
    film.get_by_role("option", name="Match 2,").click()
    page.get_by_role("heading", name=f"Match 2 of {count}").wait_for()
    assert page.evaluate("matchkernel.panels[0].shown.indexOf(matchkernel.panels[0].chosen)") == 1
    page.locator("#inside-b").select_option("same")
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(1) input", 45)
    page.get_by_text("45°", exact=True).wait_for()
    page.get_by_text(", moved").wait_for()
    page.wait_for_function(
        "() => { const cells = [...document.querySelectorAll('#curve-values td')].map((one) => one.textContent);"
        " return cells.length > 0 && !cells.includes('–'); }"  # not the moment in which there is no table
    )
    rows = page.locator("#curve-values tr").all_inner_texts()
    shown = {name: float(value) for name, value in (row.split("\t") for row in rows)}
    numbers = page.evaluate(
        """() => { const { found, chosen } = matchkernel.panels[0], { frames_a, pairs } = found.arrays;
          const index = pairs.data[2 * chosen]; return [...frames_a.data.subarray(6 * index, 6 * index + 6)]; }"""
    )
    photo, region = served.explorer.pair[0], Region(*numbers)
    for model in ("dual", "light", "RootSIFT"):
        cosines, steps, _ = served.explorer.inspector.curve(photo, region, photo, region, "turn", PatchChange(), model)
        at = int(np.abs(steps - 45).argmin())
        for name, line in cosines.items():
            assert shown[name] == pytest.approx(float(line[at]), abs=1e-3)
    assert max(shown.values()) < 1
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("row", name="dual, both halves 1.000").wait_for()


def test_a_mean_over_matches_says_which_half_loses_more_of_its_lead(page, served):
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")
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
    page.evaluate(  # the next best of every match is its own place
        """() => { const { pairs, rivals_b } = matchkernel.panels[0].found.arrays, width = rivals_b.shape[1];
          rivals_b.data.forEach((_, k) => { rivals_b.data[k] = pairs.data[2 * Math.floor(k / width) + 1]; }); }"""
    )
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")
    page.locator("#inside-mean").select_option("20 matches that agree, mean")
    page.get_by_text("Move a slider to see which half loses more.").wait_for()
    set_slider(page, "#sliders .slider:nth-of-type(2) input", 4.8)
    page.get_by_text("No lead over the next best to lose.").wait_for()


def test_the_sliders_lie_under_the_patches_beside_the_maps(page):
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")
    boxes = [page.locator(selector).bounding_box() for selector in ("#inside-patch-b", "#sliders", "#maps")]
    assert boxes[1]["y"] + boxes[1]["height"] < 900  # all in sight
    assert boxes[1]["y"] - (boxes[0]["y"] + boxes[0]["height"]) < 150
    assert boxes[2]["x"] > boxes[1]["x"] + boxes[1]["width"]


def test_the_page_is_used_by_keyboard_and_told_to_a_screen_reader(page):
    told = page.locator("body").aria_snapshot()
    for part in (
        "tablist", 'tab "Match" [selected]', 'group "Photo A"', 'button "Choose photo A"', 'button "Choose photo B"',
        "status:", 'region "Matches by light"', 'checkbox "', 'slider "lines', 'complementary "One match"',
        'application "Photos ', 'button "JSON"',
    ):  # fmt: skip
        assert part in told, (part, told)
    page.locator("#tab-match").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent.trim()"))
        if reached[-1].startswith("Photos "):
            break
    assert {"Choose photo A", "Choose photo B"} < set(reached)
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Match 1 of").wait_for()
    assert page.locator("#details").get_by_role("status").inner_text()
    assert page.get_by_role("img", name="patch A").is_visible()
    before = view_of(page)["scale"]
    page.keyboard.press("+")
    assert view_of(page)["scale"] > before
    page.keyboard.press("Enter")
    page.get_by_text("p = row 2, column 6").wait_for()
    assert page.evaluate("document.activeElement.id") == "tab-inside"
    told = page.locator("#page-inside").aria_snapshot()
    for part in (
        'listbox "Matches, most alike first',
        'option "Match 1, agrees" [selected]',
        'application "Patch A',
        'img "Patch B"',
        'slider "turn',
    ):
        assert part in told, (part, told)


def test_the_report_is_shown(page):
    page.locator("#tab-match").focus()
    page.keyboard.press("ArrowLeft")
    page.frame_locator("iframe").get_by_role("heading", name="the report").wait_for()


def test_on_a_phone_the_photos_come_early_and_nothing_scrolls_sideways(served, new_page, photo_files):
    page = new_page(served.address, width=390, height=844, has_touch=True)
    page.wait_for_selector(SHOWN)
    assert page.locator(".stage").bounding_box()["y"] < 300
    assert page.locator("#filter").is_hidden()
    assert [len(page.locator(f"#photo-{side} .name").inner_text()) for side in "ab"] == [7, 7]  # no size
    for tab in ("match", "inside", "results"):
        page.locator(f"#tab-{tab}").tap()
        if tab == "inside":
            page.wait_for_selector("#curve-values tr")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
    page.locator("#tab-match").tap()
    page.locator("#photo-a input").set_input_files(photo_files[0])
    page.locator("#photo-b").get_by_text("none yet").wait_for()
    height = "(name) => [name.clientHeight, name.scrollWidth - name.clientWidth]"
    assert page.locator("#photo-b .name").evaluate(height) == [pytest.approx(19, abs=2), 0]  # one line, not clipped


def test_the_saved_file_works_from_the_disk_without_a_network(served, pair, new_page, tmp_path):
    path = tmp_path / "page.html"
    size = save_page(path, pair, served.settings, compare="rootsift", matches=40)
    assert size == path.stat().st_size
    page = new_page(path.as_uri(), offline=True)
    page.wait_for_selector(f"{SHOWN} >> nth=1")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    # The true numbers, both photos at one height, and no tab without a page.
    for number, model in enumerate(("light", "rootsift")):
        found = served.explorer.matcher.compare(*pair, model, 150, "ratio")
        kept = found.arrays["kept"].astype(bool)
        assert f"{found.arrays['agrees'][kept].sum()} of {kept.sum()} matches fit" in words(page, number)
        assert "20 of them, evenly chosen, are in this file" in page.locator(".panel .small").nth(number).inner_text()
    boxes = [page.locator(".stage").nth(k).bounding_box() for k in (0, 1)]
    assert (boxes[0]["y"], boxes[0]["height"]) == (boxes[1]["y"], boxes[1]["height"])
    assert page.get_by_role("tab").all_inner_texts() == ["Match", "Inside"]
    set_slider(page, limit(1), 0.5)
    assert words(page) != ""
    set_slider(page, limit(1), 1)
    page.locator(".panel canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#look-inside")
    page.keyboard.press("Enter")
    page.get_by_text("p = row 2, column 6").wait_for()
    before = drawn_map(page, 0)
    page.locator("#inside-patch-a").press("ArrowUp")
    assert (drawn_map(page, 0) != before).any()
    assert page.get_by_text("Live only").is_visible()
    assert page.locator("#sliders").is_hidden()
    save_page(path, pair, served.settings, matches=1, report="<h1>the report</h1>")
    page.reload()
    page.locator("#tab-results").click()
    page.frame_locator("iframe").get_by_role("heading", name="the report").wait_for()
    assert [url for url in requests if url.startswith("http")] == []
