"""What tests do with the page in the browser, and what they read from it."""

import numpy as np

SHOWN = ".panel[data-state=shown]"
# From now on, the answer to a match waits for `answer()`.
HOLD_MATCHES = """() => { const { source } = matchkernel, match = source.match.bind(source);
  source.match = (fields) => new Promise((done, fail) => {
    window.answer = () => match(fields).then(done, fail); }); }"""


def of_panel(page, expression, argument=None):
    """The value of a JavaScript expression on the first panel, whose parts are called by their names."""
    return page.evaluate(
        "(argument) => { const panel = matchkernel.panels[0], { found, shown, drawn, chosen, view, canvas } = panel;"
        f" const {{ facts, arrays }} = found ?? {{}}; return {expression}; }}",
        argument,
    )


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


def passed_and_right(served, model):
    """How many matches of the pair pass the ratio test, and how many of these agree."""
    arrays = served.explorer.matcher.compare(*served.explorer.pair, model, 150, "ratio").arrays
    kept = arrays["kept"].astype(bool)
    return int(kept.sum()), int(arrays["agrees"][kept].sum())


def wait_for_match(page, number):
    """Until the details of the match of this number are shown, or the page inside has it."""
    page.get_by_role("heading", name=f"Match {number} of").wait_for()


def press_on_photos(page, key):
    page.locator(".panel canvas").first.focus()
    page.keyboard.press(key)


def look_inside(page):
    """Look into the most alike match."""
    press_on_photos(page, "ArrowRight")
    page.wait_for_selector("#look-inside")
    page.keyboard.press("Enter")
    page.get_by_text("p = row 2, column 6").wait_for()


def open_inside(page):
    """Open the tab, and wait for its first curve."""
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr")


def drawn_map(page, number):
    """(160, 160) green of a drawn map: the brightest of viridis is the greenest."""
    values = page.evaluate(
        """(number) => { const canvas = document.querySelectorAll("#maps canvas")[number];
          return [...canvas.getContext("2d").getImageData(0, 0, 160, 160).data].filter((_, k) => k % 4 === 1); }""",
        number,
    )
    return np.array(values).reshape(160, 160)


def view_of(page):
    return of_panel(page, "({ scale: view.scale, x: view.x, y: view.y })")


def wait_until_fits(page):
    """Until both photos fill the canvas of each panel, which follows its window."""
    page.wait_for_function(
        """() => matchkernel.panels.every(({ view, canvas, stage }) => {
          const [a, b] = matchkernel.photos, stacked = stage.classList.contains("stacked");
          const width = stacked ? a.width : a.width + 12 + b.width * a.height / b.height;
          const height = stacked ? a.height + 12 + b.height * a.width / b.width : a.height;
          return Math.abs(view.scale / Math.min(canvas.clientWidth / width, canvas.clientHeight / height) - 1) < 1e-6;
        })"""
    )
