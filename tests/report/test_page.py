"""The page: whole, without network or script, readable without seeing it, by day and by night."""

import re
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


def test_names_from_files_are_words_never_code(page):
    words = "".join(page.words)
    assert 'net <b>&"x"' in words
    assert "ties <here>" in words
    assert "call: a & b" in words
    assert "Title <i>" in words


def test_the_page_can_be_read_without_seeing_it(page):
    assert len(set(page.ids)) == len(page.ids)
    assert dict(page.seen)["html"]["lang"] == "en"
    assert any(tag == "meta" and a.get("name") == "viewport" for tag, a in page.seen)
    for tag, attributes in page.seen:
        if tag == "img":
            assert attributes["alt"]
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert [tag for tag, _ in page.seen].count("caption") == [tag for tag, _ in page.seen].count("table")


def luminance(colour):
    values = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stand_out_by_day_and_by_night(theme):
    """WCAG asks for 4.5."""
    block = STYLE.split("@media(prefers-color-scheme:dark)")[theme]
    found = dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", block))
    colours = {
        key: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:]) for key, value in found.items()
    }

    def contrast(name, back="page"):
        high, low = sorted((luminance(colours[name]), luminance(colours[back])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for name in ("ink", "soft", "own"):
        assert contrast(name) >= 4.5, name
    assert contrast("ink", "back") >= 4.5
