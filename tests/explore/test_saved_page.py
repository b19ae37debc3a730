"""The page as one file, which needs no server and no network."""

import numpy as np
import pytest
from helpers import refuses
from page_steps import SHOWN, drawn_map, limit, look_inside, passed_and_right, set_slider, words

from matchkernel.errors import ArgumentError
from matchkernel.explore.photos import PagePhoto, read_sample
from matchkernel.explore.save import save_page
from matchkernel.explore.settings import ExploreSettings


@pytest.mark.browser
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
        passed, right = passed_and_right(served, model)
        assert f"{right} of {passed} matches fit" in words(page, number)
        assert "20 of them, evenly chosen, are in this file" in page.locator(".panel .small").nth(number).inner_text()
    boxes = [page.locator(".stage").nth(k).bounding_box() for k in (0, 1)]
    assert (boxes[0]["y"], boxes[0]["height"]) == (boxes[1]["y"], boxes[1]["height"])
    assert page.get_by_role("tab").all_inner_texts() == ["Match", "Inside"]
    set_slider(page, limit(1), 0.5)
    assert words(page) != ""
    set_slider(page, limit(1), 1)
    look_inside(page)
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
