"""The page is well-formed, needs no network and no script, and can be read by a screen reader."""

from html.parser import HTMLParser

import pytest
from made_results import a_full_set

from matchkernel.report.page import STYLE
from matchkernel.report.write import report_results


class Reader(HTMLParser):
    """Collects tags and attributes and checks that every tag is closed in its turn."""

    VOID = ("meta", "img")

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids, self.words = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.ids += [value for key, value in attributes if key == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(tmp_path):
    report_results([a_full_set(tmp_path / "in")], tmp_path / "out", "Title <i>")
    reader = Reader()
    reader.feed((tmp_path / "out/report.html").read_text())
    return reader


def test_the_page_is_whole_and_needs_no_network_and_no_script(page):
    assert page.open == []
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "link", "iframe", "object", "base", "i"}
    for _, attributes in page.seen:
        assert not attributes.keys() & {"xlink:href", "onclick", "onload"}
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_names_from_files_are_text_never_code(page):
    words = "".join(page.words)
    assert 'net <b>&"x"' in words
    assert "ties <here>" in words
    assert "call: a & b" in words
    assert "Title <i>" in words


def test_the_page_can_be_read_by_a_screen_reader(page):
    assert len(set(page.ids)) == len(page.ids)
    assert dict(page.seen)["html"]["lang"] == "en"
    assert any(tag == "meta" and a.get("name") == "viewport" for tag, a in page.seen)
    for tag, attributes in page.seen:
        if tag == "img":
            assert attributes["alt"]
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert [tag for tag, _ in page.seen].count("caption") == [tag for tag, _ in page.seen].count("table")
