"""The details of one match: which is shown, its patches and rivals, whether it fits the others and why."""

import re

import pytest
from page_steps import counts, limit, of_panel, press_on_photos, set_slider, wait_for_match

pytestmark = pytest.mark.browser


def end_on_screen(page, place):
    """Where the end in photo A of the match at a place among those drawn lies in the window."""
    x, y = of_panel(
        page, "[0, 1].map((axis) => arrays.frames_a.data[6 * arrays.pairs.data[2 * drawn[argument]] + axis])", place
    )
    left, top, scale = of_panel(
        page, "[canvas.getBoundingClientRect()].map(({ left, top }) => [left + view.x, top + view.y, view.scale])[0]"
    )
    return left + (x + 0.5) * scale, top + (y + 0.5) * scale


def test_hover_click_and_arrow_keys_show_patches_and_rivals(page, served):
    assert page.locator("#details").get_by_text("most alike first").is_visible()
    page.mouse.move(*end_on_screen(page, 3))
    page.get_by_role("heading", name=re.compile(r"^Match \d")).wait_for()
    page.mouse.click(*end_on_screen(page, 0))
    wait_for_match(page, 1)
    numbers = page.locator("#details dd").all_inner_texts()
    distances = of_panel(page, "shown.map((i) => arrays.distances.data[i])")
    assert float(numbers[0]) == pytest.approx(min(distances), abs=5e-4)
    rivals = [float(text) for text in page.locator(".rivals figcaption").all_inner_texts()]
    assert rivals
    assert min(rivals) >= float(numbers[0])
    # The patch that is drawn is the one that the network sees.
    pixel = page.evaluate("document.querySelector('.pair canvas').getContext('2d').getImageData(66, 2, 1, 1).data[0]")
    index = of_panel(page, "arrays.pairs.data[2 * chosen]")
    photo = served.explorer.pair[0]
    assert pixel == served.explorer.matcher.patches(photo, 150)[index, 0, 16]
    press_on_photos(page, "ArrowRight")
    wait_for_match(page, 2)
    # The panel lies beside the photos where there is room.
    assert page.locator("#details").bounding_box()["x"] > page.locator(".stage").bounding_box()["width"]


RINGS = """() => { const panel = matchkernel.panels[0], { found, chosen, view, canvas } = panel;
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
  return places; }"""  # whether there is one, at each of the next best of the chosen match or the first


def test_the_next_best_of_a_match_are_ringed_in_the_photos(page):
    page.keyboard.press("ArrowRight")
    wait_for_match(page, 1)
    assert page.evaluate(RINGS) == [True] * 4
    assert page.get_by_text("rings: its next best").is_visible()
    page.evaluate("matchkernel.panels[0].chosen = null")
    assert page.evaluate(RINGS) == [False] * 4


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
        assert of_panel(page, "chosen") is None
    wrong.uncheck()
    assert page.get_by_text("Yellow: this match").count() == 0


def test_a_match_that_does_not_agree_says_how_far_off_it_is(page):
    set_slider(page, limit(1), 1)  # all mutual nearest neighbours
    page.locator(".key.agrees input").uncheck()
    for _ in range(3):
        press_on_photos(page, "ArrowRight")
    wait_for_match(page, 3)
    error = of_panel(page, "arrays.errors.data[chosen]")
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
    at, agrees = of_panel(page, "[shown.indexOf(chosen), arrays.agrees.data[chosen]]")
    assert agrees == 1
    page.locator("#look-inside").click()
    wait_for_match(page, at + 1)
    page.locator("#inside-steps").get_by_role("button", name="Next that does not").click()
    page.get_by_role("heading", name="does not agree with the others").wait_for()
    assert of_panel(page, "arrays.agrees.data[chosen]") == 0


def test_clearly_wrong_matches_come_before_those_near_the_line(page):
    set_slider(page, limit(1), 1)
    errors = of_panel(page, "shown.map((i) => arrays.errors.data[i] || 0)")
    clear, near = ([at for at, error in enumerate(errors) if low < error <= high] for low, high in ((9, 1e9), (3, 9)))
    assert clear
    assert near
    seen = []
    for at in (*clear, *near, clear[0]):
        page.get_by_role("button", name="Next that does not").click()
        wait_for_match(page, at + 1)
        seen.append(page.locator(".fit strong").inner_text())
    assert {text.strip() for text in seen[: len(clear)]} == {"Does not agree, probably wrong:"}


def test_a_line_that_misses_the_photo_says_that_the_partner_is_not_in_it(page):
    for matrix, is_told in (("[[0, 0, 0], [0, 0, 0], [0, 0, 1]]", True), ("[[0, 0, 0], [0, 0, 1], [0, 0, -9]]", False)):
        facts = f"{{ geometry: 'fundamental', matrix: {matrix} }}"
        page.evaluate(f"Object.assign(matchkernel.panels[0].found.facts, {facts})")
        page.get_by_role("button", name="Next match").click()
        wait_for_match(page, 2 - is_told)
        assert ("the true partner is not in it" in page.locator(".fit").inner_text()) == is_told


def test_keys_and_focus_stay_where_they_are_used(page):
    page.keyboard.press("ArrowRight")  # nothing is focused
    wait_for_match(page, 1)
    for name, at in (("Next match", 2), ("Next that agrees", None)):
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        if at:
            wait_for_match(page, at)
        page.wait_for_function(
            "(name) => [document.activeElement.ariaLabel, document.activeElement.textContent].includes(name)", arg=name
        )
    before = of_panel(page, "chosen")
    page.keyboard.press("ArrowLeft")  # on a button
    page.wait_for_function("(match) => matchkernel.panels[0].chosen !== match", arg=before)
    page.locator("#advanced summary").click()
    page.locator("#keypoints").focus()
    before = of_panel(page, "chosen")
    page.keyboard.press("ArrowLeft")  # moves in the number
    assert of_panel(page, "chosen") == before
    # Under the photos, beside the match.
    assert page.locator("#advanced").bounding_box()["width"] == page.locator("#panels").bounding_box()["width"]
