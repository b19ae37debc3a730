"""Photos are chosen, dropped, kept over a reload; a wrong file is explained."""

import re

import pytest
from page_steps import HOLD_MATCHES, SHOWN, of_panel, words

pytestmark = pytest.mark.browser

SAID = """window.said = []; new MutationObserver(() => { const said = document.querySelector(".verdict")?.textContent;
  if (said && said !== window.said.at(-1)) window.said.push(said); })
  .observe(document, { subtree: true, childList: true })"""


def drop(page, selector, *paths):
    """Drop files on the right half of an element, as the browser does."""
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


def test_own_photos_wait_for_each_other_and_outlive_a_reload(page, photo_files):
    page.evaluate(SAID)
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


def test_a_new_photo_ends_the_match_that_runs(page, photo_files):
    page.evaluate(HOLD_MATCHES)
    page.locator("#advanced summary").click()
    page.locator("#filter").select_option("distance")
    page.wait_for_function("() => window.answer")
    page.locator("#photo-a input").set_input_files(photo_files[1])
    page.locator(".empty.b").wait_for()
    page.evaluate("async () => { await window.answer(); await new Promise(requestAnimationFrame); }")
    assert words(page) == ""
    assert of_panel(page, "[found, panel.root.dataset.state]") == [None, ""]


def test_why_a_file_is_refused_stays_when_a_match_ends_and_goes_with_new_photos(page, photo_files, tmp_path):
    path = tmp_path / "$&.txt"
    path.write_text("no photo")
    page.evaluate(HOLD_MATCHES)
    page.locator("#advanced summary").click()
    page.locator("#filter").select_option("distance")
    page.wait_for_function("() => window.answer")
    page.locator("#photo-a input").set_input_files(path)
    page.get_by_text("$&.txt: ").wait_for()
    page.evaluate("() => window.answer()")
    page.wait_for_selector(SHOWN)
    assert page.locator("#message span").inner_text().startswith("$&.txt: ")
    page.locator("#photo-a input").set_input_files(photo_files[1])
    page.locator(".empty.b").wait_for()
    assert page.locator("#message").is_hidden()


def test_a_photo_chosen_after_the_sample_is_not_replaced_by_it(page, photo_files):
    page.evaluate(
        """() => { const { source } = matchkernel, { sample, upload } = source;
          source.upload = (file) => window.uploaded = upload.call(source, file);
          source.sample = () => new Promise((done) => { window.answer = async () => {
            await window.uploaded;
            done(await sample.call(source)); }; }); }"""
    )
    page.get_by_role("button", name="Sample pair").click()
    page.locator("#photo-a input").set_input_files(photo_files[1])
    page.evaluate("() => window.answer()")
    page.locator(".empty.b").wait_for(timeout=30_000)
    assert page.locator("#photo-a .name").inner_text().startswith(photo_files[1].name)
