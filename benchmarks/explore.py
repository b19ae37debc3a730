"""How soon the explorer page answers, in a headless Chromium: seconds from the event to the drawn picture.

    python benchmarks/explore.py
    python benchmarks/explore.py --pictures docs/images    # the pictures of the documents instead

The sample pair with 2,000 keypoints, features in memory. Needs Chromium (Debian: apt install chromium).
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from timing import write_result

from matchkernel.runtime.config import PHOTO_MODEL

REPEATS = 15
MODELS = (PHOTO_MODEL, "rootsift", PHOTO_MODEL)  # the last is the one that is asked again
# Each sets something and waits until it is drawn; the time is that of the whole.
SLIDER = """async (k) => { const panel = matchkernel.panels[0], start = performance.now();
  panel.ratio.input.value = 0.7 + 0.01 * k; panel.ratio.input.dispatchEvent(new Event("input"));
  panel.drawNow(); panel.canvas.getContext("2d").getImageData(0, 0, 1, 1); return performance.now() - start; }"""
CLICK = """async (k) => { const canvas = document.getElementById("inside-patch-a");
  const box = canvas.getBoundingClientRect(), start = performance.now();
  const place = { clientX: box.left + 8 + 12 * k, clientY: box.top + 40 };
  canvas.dispatchEvent(new PointerEvent("pointerdown", place));
  [...document.querySelectorAll("#maps canvas")].at(-1).getContext("2d").getImageData(0, 0, 1, 1);
  return performance.now() - start; }"""
MODEL = """async (name) => { const panel = matchkernel.panels[0], start = performance.now();
  panel.model.value = name; const done = matchkernel.match(panel); await done; panel.drawNow();
  return performance.now() - start; }"""
MAPS = """async (k) => { const { photos } = matchkernel, { found, shown } = matchkernel.panels[0];
  const region = (frames, index) => { const [x, y, xx, xy, yx, yy] = frames.data.subarray(6 * index, 6 * index + 6);
    return { x, y, xx, xy, yx, yy }; };
  const [a, b] = [0, 1].map((side) => { const frames = side ? found.arrays.frames_b : found.arrays.frames_a;
    return { photo: photos[side], region: region(frames, found.arrays.pairs.data[2 * shown[k] + side]) }; });
  const { models } = matchkernel.inside, { source } = matchkernel, still = { turn: 0, right: 0, down: 0, octaves: 0 };
  const start = performance.now();
  await source.maps(a, b, still, models[0]);
  const first = performance.now();
  await Promise.all(models.slice(1).map((model) => source.maps(a, b, still, model)));
  const middle = performance.now();
  await Promise.all([...models, "RootSIFT"].map((model) => source.curve(a, b, "turn", still, model)));
  return [first - start, middle - start, performance.now() - middle]; }"""


# The match that is farthest off, and whether all maps and curves are there.
FARTHEST = """() => { const panel = matchkernel.panels[0], { data } = panel.found.arrays.errors;
  panel.pick(panel.shown.reduce((best, i) => (Number.isFinite(data[i]) && data[i] > data[best] ? i : best))); }"""
ALL_DRAWN = """() => [...document.querySelectorAll("#maps canvas")].every((one) => /row/.test(one.ariaLabel))
  && [...document.querySelectorAll("#curve-values td")].every((one) => one.textContent !== "–")"""


def median(values: Sequence[float]) -> float:
    """Middle value, milliseconds to seconds."""
    return round(sorted(values)[len(values) // 2] / 1000, 4)


def measure(page: Page) -> dict[str, float]:
    """Seconds of each action."""
    for name in MODELS:
        page.evaluate(MODEL, name)
    seconds = {"slider step": median([page.evaluate(SLIDER, k) for k in range(REPEATS)])}
    models = [page.evaluate(MODEL, MODELS[k % 2]) for k in range(1, REPEATS + 1)]
    seconds["change of model, features in memory"] = median(models)
    page.locator("#tab-inside").click()
    page.wait_for_selector("#curve-values tr", timeout=120_000)
    seconds["click on a position"] = median([page.evaluate(CLICK, k) for k in range(REPEATS)])
    first, maps, curves = zip(*(page.evaluate(MAPS, k) for k in range(20, 20 + REPEATS)), strict=True)
    seconds["another match: map of the model that matched"] = median(first)
    seconds["another match: maps of all four models"] = median(maps)
    seconds["another match: all curves of 41 moved patches"] = median(curves)
    return seconds


@contextmanager
def opened_page(width: int = 1200, height: int = 900) -> Iterator[Page]:
    """The page of a server of its own, with the sample pair matched."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("Chromium is not installed")
    command = [sys.executable, "-m", "matchkernel", "explore", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[0]
            browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            page.goto(address)
            page.wait_for_selector(".panel[data-state=shown]", timeout=300_000)
            yield page
            browser.close()
        finally:
            server.terminate()


def take_pictures(folder: Path) -> None:
    """Write explore.jpg, matches, and explore_inside.jpg, inside one of them."""
    with opened_page(width=1200, height=880) as page:
        page.get_by_role("button", name="Next that does not").click()
        page.wait_for_selector("#look-inside")
        page.evaluate(FARTHEST)
        page.wait_for_selector(".fit.differs")
        page.wait_for_timeout(500)
        page.screenshot(path=folder / "explore.jpg", type="jpeg", quality=80)
        page.evaluate("() => matchkernel.panels[0].pick(matchkernel.panels[0].shown[5])")
        page.wait_for_selector(".fit.agrees")
        page.locator("#tab-inside").click()
        page.wait_for_selector("#curve-values tr", timeout=120_000)
        page.wait_for_selector("#inside-position:not(:empty)", timeout=120_000)
        page.wait_for_function(ALL_DRAWN, timeout=120_000)
        page.screenshot(path=folder / "explore_inside.jpg", type="jpeg", quality=80)


def main() -> None:
    """Measure, print, write; or take pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    pictures = parser.parse_args().pictures
    if pictures:
        take_pictures(pictures)
        return
    with opened_page() as page:
        seconds = measure(page)
        version = page.context.browser.version
    for name, value in seconds.items():
        print(f"{value:8.4f} s  {name}")
    write_result("explore_latency", {"chromium": version, "keypoints": 2000, "repeats": REPEATS, "seconds": seconds})


if __name__ == "__main__":
    main()
