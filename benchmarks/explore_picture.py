"""Pictures of the explorer page for the documents, taken in a headless Chromium: matches, and inside one of them."""

import sys
from pathlib import Path

from explore_latency import opened_page


def main(folder: str = "docs/images") -> None:
    """Write explore.jpg and explore_inside.jpg to a folder."""
    with opened_page(width=1200, height=880) as page:
        page.locator(".panel canvas").focus()
        for _ in range(6):
            page.keyboard.press("ArrowRight")
        page.wait_for_selector("#look-inside")
        page.locator("#tab-match").focus()
        page.wait_for_timeout(300)
        page.screenshot(path=Path(folder) / "explore.jpg", type="jpeg", quality=80)
        page.locator("#tab-inside").click()
        page.wait_for_selector("#curve-values tr", timeout=120_000)
        page.wait_for_selector("#inside-position:not(:empty)", timeout=120_000)
        page.screenshot(path=Path(folder) / "explore_inside.jpg", type="jpeg", quality=80)


if __name__ == "__main__":
    main(*sys.argv[1:])
