"""The page as a whole: by keyboard, with a screen reader, on a phone; its three tabs."""

import pytest
from page_steps import SHOWN, view_of, wait_for_match

pytestmark = pytest.mark.browser


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
    wait_for_match(page, 1)
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


def test_the_report_is_shown(page):
    page.locator("#tab-match").focus()
    page.keyboard.press("ArrowLeft")
    page.frame_locator("iframe").get_by_role("heading", name="the report").wait_for()
