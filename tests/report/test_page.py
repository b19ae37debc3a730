"""The page is well-formed, needs no network and no script, and can be read by a screen reader."""

from html.parser import HTMLParser

import numpy as np
import pytest
from made_results import a_full_set, gathered, pairs, photos, written

from matchkernel.evaluation.tables import note_of, table_of
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import ReportedMethod
from matchkernel.report.blocks import Best, Grid, Report, Section, TextTable
from matchkernel.report.page import STYLE, html_page
from matchkernel.report.write import gather, markdown, report_results

MEASURED_ON = "Measured on 37 pairs of photos of one scene (castle); found means right to within 1° to 10°."
MEASURED = """() => {
    const all = (name, measure) => [...document.querySelectorAll(name)].map(measure)
    return {
        page: document.documentElement.scrollWidth,
        charts: all('img', image => image.clientWidth),
        shapes: all('img', image => [image.naturalWidth, image.naturalHeight]),
        names: all('th[scope=row]', cell => cell.clientWidth),
        tables: all('.scroll', box => [box.scrollWidth, box.clientWidth]),
        edges: all('.scroll', box => getComputedStyle(box).backgroundImage),
    }
}"""


class Reader(HTMLParser):
    """Collects tags and attributes and checks that every tag is closed in its turn."""

    VOID = ("meta", "img", "source")

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


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    report_results([a_full_set(folder / "in")], folder / "out", "Title <i>")
    reader = Reader()
    reader.feed((folder / "out/report.html").read_text())
    return reader


def test_the_page_is_whole_and_needs_no_network_and_no_script(page):
    assert page.open == []
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "link", "iframe", "object", "base", "i"}
    for _, attributes in page.seen:
        assert not attributes.keys() & {"xlink:href", "onclick", "onload"}
        for name in ("src", "srcset"):
            assert attributes.get(name, "data:").startswith("data:")
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


def errors(extra):
    return [float(error) + extra for error in np.random.default_rng(0).uniform(0, 9, 37)]


def maa(found):
    return 100 * np.mean([[error <= degrees for degrees in range(1, 11)] for error in found])


def test_the_page_begins_with_who_finds_how_much_more(tmp_path):
    ours, theirs = errors(0), errors(3)
    folder = written(tmp_path / "in", photos("rootsift", theirs), photos("sift", errors(9)), photos("ours", ours))
    report = gather([folder])
    gain = maa(ours) - maa(theirs)
    assert report.lead[0].startswith(f"Of 100 camera poses, ours finds {gain:.0f} more than rootsift (")
    assert f" and {maa(ours) - maa(errors(9)):.0f} more than sift (" in report.lead[0]
    assert report.lead[0].endswith(f". {MEASURED_ON}")
    low, high = (float(word) for word in report.lead[0].split("(95 % interval: ")[1].split(")")[0].split(" to "))
    random = np.random.default_rng(7)
    drawn = [random.integers(37, size=37) for _ in range(500)]
    gains = [maa(np.array(ours)[rows]) - maa(np.array(theirs)[rows]) for rows in drawn]
    assert np.abs(np.percentile(gains, [2.5, 97.5]) - [low, high]).max() < 2
    report_results([folder], tmp_path / "out")
    for name in ("report.html", "report.md", "report.json"):
        text = (tmp_path / "out" / name).read_text()
        assert report.lead[0] in text
        assert name != "report.html" or text.index(report.lead[0]) < text.index("<nav")


def test_a_difference_by_chance_and_a_single_method_are_not_called_a_gain(tmp_path):
    fast = photos("b", errors(0), seconds={"per_image": 0.2})
    same = gathered(tmp_path / "same", photos("a", errors(0)), fast, photos("c", errors(5)))
    assert same.lead[0].startswith(
        "a and b are too close to tell apart in finding camera poses. b is 2.5 times as fast as a. "
        f"Of 100 camera poses, a finds {maa(errors(0)) - maa(errors(5)):.0f} more than c ("
    )
    table = next(block for block in same.sections[0].blocks if "difference" in block.title)
    assert [row[2] for row in table.rows] == ["too close to tell", "beyond chance"]
    many = [photos(name, errors(0)) for name in "abcdefg"]
    assert gathered(tmp_path / "many", *many).lead[0].startswith("a, b, c, d and 3 others are too close ")
    alone = gathered(tmp_path / "alone", photos("a", errors(0)))
    found = f"a finds {maa(errors(0)):.0f} % of the camera poses."
    assert alone.lead[0] == f"{found} {MEASURED_ON}"


@pytest.mark.parametrize("pairs", [1, 2, 9])
def test_of_too_few_pairs_nothing_is_said_beyond_the_means(pairs, tmp_path):
    why = f"too few pairs to tell ({pairs}; 10 are needed)"
    two = [photos("a", pairs * [0.5]), photos("b", pairs * [20.0], seconds={"per_image": 0.1})]
    both, alone = (gathered(tmp_path / name, *found) for name, found in (("two", two), ("one", two[:1])))
    assert both.lead[0].startswith(f"Which finds more camera poses: {why}. b is 5.0 times as fast as a. Measured ")
    assert alone.lead[0].startswith(f"How many camera poses a finds: {why}. Measured on ")
    scores, differences, _ = both.sections[0].blocks
    assert differences.rows == (("b", "-100.0", why),)
    assert [row[1] for row in scores.rows] == ["100.0", "0.0"]
    assert [cell for row in scores.rows for cell in row if isinstance(cell, Best)] == ["0.10"]  # seconds
    headings, rows = table_of(two)
    cells = [dict(zip(headings, row, strict=True)) for row in rows]
    assert [(row["mAA(10°)"], row["mAA(10°) vs. best"]) for row in cells] == [("100.0", "-"), ("0.0", "-100.0")]
    for text in (markdown(both), html_page(both), markdown(alone), note_of(two)):
        assert f"Without ±: {why}." in text
        assert not any(word in text.replace("Without ±", "") for word in ("±", "interval", "[", "chance", "too close"))


@pytest.mark.parametrize(
    ("seconds", "pace"), [(1.6, " at 3.2 times the time"), (0.25, " at 2.0 times the speed"), (0.6, "")]
)
def test_who_finds_more_is_said_with_its_time(seconds, pace, tmp_path):
    found = photos("a", errors(0), seconds={"per_image": seconds}), photos("b", errors(3))
    lead = gathered(tmp_path, *found).lead[0]
    assert f" more than b{pace} (95 % interval: " in lead
    elsewhere = photos("c", errors(3), machine="another", seconds={"per_image": 9.0})
    assert " more than c (95 %" in gathered(tmp_path / "other", found[0], elsewhere).lead[0]


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ({"pixels": 20}, ("pixels 0.5", "pixels 20")),
        ({"repeats": 2}, ("repeats 1", "repeats 2")),
    ],
)
def test_results_of_other_protocols_are_never_compared(other, parts, tmp_path):
    usual = {"pixels": 0.5, "repeats": 1}
    found = [photos("a", errors(0), protocol=usual), photos("b", errors(3), protocol=usual)]
    found.append(photos("b", errors(5), protocol=usual | other))
    one, _, two, _ = gathered(tmp_path, *found).sections
    assert [section.title for section in (one, two)] == [f"Relative poses of photos: {part}" for part in parts]
    assert one.summary.startswith(f"Of 100 camera poses, a, {parts[0]} finds ")
    assert two.summary.startswith(f"b, {parts[1]} finds {maa(errors(5)):.0f} % of the camera poses.")
    assert [[row[0] for row in section.blocks[0].rows] for section in (one, two)] == [
        [f"a, {parts[0]}", f"b, {parts[0]}"],
        [f"b, {parts[1]}"],
    ]
    assert not any("difference" in block.title for block in two.blocks)
    assert any(f"{key}: {value}" in words for _, words in gather([tmp_path]).facts for key, value in other.items())
    headings, rows = table_of(found)
    assert [row[headings.index("mAA(10°) vs. best")] == "-" for row in rows] == [True, False, True]


def test_methods_are_compared_each_with_its_own_estimator(tmp_path):
    usual = {"pixels": 0.5, "repeats": 1}
    found = photos("a", errors(0), protocol=usual), photos("b", errors(3), protocol=usual | {"estimator": "refined"})
    section = gathered(tmp_path, *found).sections[0]
    assert [row[0] for row in section.blocks[0].rows] == ["a, magsac", "b, refined"]
    assert section.summary.startswith("Of 100 camera poses, a, magsac finds ")


def test_seconds_that_were_not_measured_are_dashes_and_never_compared(tmp_path):
    found = [photos("a", errors(0), seconds={"per_image": None}), photos("b", errors(3)), photos("c", errors(0))]
    section = gathered(tmp_path / "some", *found).sections[0]
    assert [row[2] for row in section.blocks[0].rows] == ["–", "0.50", "0.50"]
    assert {method.name for method in section.blocks[-1].methods} == {"b", "c"}
    assert "times" not in section.summary
    assert [block.has_chart for block in gathered(tmp_path / "none", found[0]).sections[0].blocks] == [False]
    headings, rows = table_of(found)
    assert [row[headings.index("s/photo")] for row in rows] == ["-", "0.50", "0.50"]


def test_the_terminal_and_the_page_compare_with_the_best(tmp_path):
    found = photos("worse", errors(3)), photos("better", errors(0))
    page = gathered(tmp_path, *found).sections[0].blocks[1]
    headings, rows = table_of(found)
    assert [row[headings.index("mAA(10°) vs. best")] for row in rows] == [page.rows[0][1], "-"]
    assert page.rows[0][1].startswith("-")
    assert "vs. best: [95 % interval]" in note_of(found)


@pytest.mark.parametrize(("extra", "overlaps"), [(0.5, True), (5.0, False)])
def test_where_bars_overlap_though_one_is_better_the_chart_says_what_decides(extra, overlaps, tmp_path):
    chart = gathered(tmp_path, photos("a", errors(0)), photos("b", errors(extra))).sections[0].blocks[-1]
    (_, ours), (_, theirs) = sorted(chart.methods.values(), key=lambda point: -point[1].mean)
    assert (ours.mean - ours.std < theirs.mean + theirs.std) is overlaps
    assert ("The table of differences decides." in chart.note) is overlaps


def test_methods_that_learned_from_the_photos_are_a_warning_before_any_number(tmp_path):
    taught = [photos(name, errors(k), trained_on=["castle"], warnings=["seen"]) for k, name in enumerate("ab")]
    report = gathered(tmp_path / "some", *taught, photos("sift", errors(9)))
    assert report.lead[0].startswith(
        "No fair comparison: a and b were trained on these photos (castle); measure on other photos."
    )
    assert "Not" not in report.lead[1]  # the other scene, of homographies, was not seen
    assert report.warnings == ("a and b: seen",)
    two = photos("a", errors(0), trained_on=["castle"])
    two["scenes"]["tower"] = two["scenes"]["castle"]
    said = gathered(tmp_path / "two", two).lead[0]
    assert said.startswith("Not quite fair: a was trained on castle, 1 of 2 scenes, and scores there are too high. ")


LEADS = {  # runs of each method: the methods that lead, and what is said of them
    "one": ({"net": [0.9], "sift": [0.3], "other": [0.4]}, "net is best", ": 90.00 %, sift 30.00 %."),
    "equal": ({"b": [0.7], "a": [0.7]}, "a and b are equally good", ": 70.00 %."),
    "printed equal": ({"dual": [0.512401], "fc": [0.512399], "sift": [0.429]}, "dual and fc are best",
                      ": 51.24 %, sift 42.90 %."),
    "printed equal to a hand-crafted one": ({"a": [0.3], "sift": [0.3], "b": [0.2]}, "a and sift are best",
                                            ": 30.00 %, b 20.00 %."),
    "runs that overlap": ({"dual": [0.502, 0.524, 0.511], "fc": [0.52, 0.501, 0.515], "sift": [0.429]},
                          "dual and fc are no further apart than their runs", ": 51.23 % to 51.20 %, sift 42.90 %."),
    "runs apart": ({"dual": [0.502, 0.524, 0.511], "fc": [0.47, 0.48, 0.475]}, "dual is best",
                   ": 51.23 %, fc 47.50 %."),
}  # fmt: skip


@pytest.mark.parametrize("name", LEADS)
def test_the_first_sentence_says_no_more_than_its_numbers(name):
    methods, leads, numbers = LEADS[name]
    scores = {
        ReportedMethod(method, hand_crafted=method == "sift"): {"mean": Spread(tuple(100 * run for run in runs))}
        for method, runs in methods.items()
    }
    assert Grid("t", ("mean",), scores, bars="mean").summary("matching") == f"{leads} in matching{numbers}"


def test_patch_results_name_the_best_and_the_best_hand_crafted(tmp_path):
    found = [pairs("net", "A", 0.01), pairs("sift", "A", 0.2, hand_crafted=True), pairs("other", "A", 0.1)]
    (sentence,) = gathered(tmp_path / "in", *found).lead
    assert sentence.startswith("net is best in telling wrong pairs ")
    assert sentence.endswith(": 1.00 %, sift 20.00 %.")


def test_the_best_values_on_photos_are_bold_and_the_shortest_time(tmp_path):
    found = photos("a", errors(0), seconds={"per_image": 0.7}), photos("b", errors(3), seconds={"per_image": 0.2})
    table = next(b for b in gathered(tmp_path / "in", *found).sections[0].blocks if isinstance(b, TextTable))
    bold = {
        head: row[0] for row in table.rows for head, cell in zip(table.head, row, strict=True) if type(cell) is Best
    }
    assert bold["mAA(5°)"] == bold["mAA(10°)"] == "a"
    assert "castle" not in table.head  # a single scene is no column of its own
    assert bold["s/photo"] == "b"
    assert not {"matches", "inliers", "licence", "method"} & bold.keys()


def test_notes_are_about_what_is_on_the_page(tmp_path):
    said = gather([a_full_set(tmp_path / "full")]).how_to_read()
    assert all(word in said for word in ("Bars", "Hatched", "±", "(h)", "Bold"))
    assert "ties" not in said
    on_photos = gathered(tmp_path / "photos", photos("a", errors(0)), photos("b", errors(3)))
    assert on_photos.how_to_read() == ""  # its table says it
    alone = gathered(tmp_path / "one", photos("a", errors(0)))
    for report, is_there in ((on_photos, True), (alone, False)):
        assert ("Bold" in report.sections[0].blocks[0].note) is is_there
        assert "every scene" not in report.sections[0].blocks[0].note
    assert on_photos.sections[0].note.endswith(
        "37 pairs of photos in castle; at most 9 keypoints per photo; matches kept by: ratio."
    )
    without_limit = gathered(tmp_path / "all", photos("a", errors(0), keypoints=0))
    assert "; all keypoints of a photo; " in without_limit.sections[0].note


def test_where_the_figures_come_from_is_folded_and_has_a_link(page):
    assert ("a", {"href": "#facts"}) in page.seen
    assert "facts" in page.ids
    tags = [tag for tag, _ in page.seen]
    assert tags[tags.index("dl") - 2 : tags.index("dl")] == ["details", "summary"]


def test_settings_that_are_off_are_left_out(tmp_path):
    settings = {"affnet": None, "pooling": "", "turned": False, "aligned": True, "contrast": 0, "sizes": [1, 2]}
    ((_, facts),) = gathered(tmp_path / "in", photos("a", errors(0), settings=settings)).facts
    assert "aligned: yes; contrast: 0; sizes: 1, 2. Results:" in facts
    assert not any(word in facts for word in ("affnet", "pooling", "turned", "None"))


def test_settings_of_all_methods_are_said_once_and_digests_are_short(tmp_path):
    settings = [{"contrast": 0.04, "weights": digit * 64} for digit in "ab"]
    found = [photos(name, errors(0), settings=one) for name, one in zip("ab", settings, strict=True)]
    (_, shared), (_, one), _ = gathered(tmp_path / "in", *found).facts
    assert shared == "pixels: 0.5; contrast: 0.04"
    assert f"weights: {'a' * 12}. Results:" in one
    assert "contrast" not in one


def test_charts_of_a_section_fill_the_page_and_fit_a_phone(page):
    tags = [tag for tag, _ in page.seen]
    assert tags.count("img") == 8
    assert tags.count("source") == 2  # those that stand two side by side are too small on a phone: drawn again
    classes = [attributes.get("class") for tag, attributes in page.seen if tag == "div"]
    assert classes.count("charts of2") == 1
    assert classes.count("charts of3") == 1


def test_code_in_the_first_sentence_is_set_as_code():
    section = Section("Gain", (), summary="Try `--minutes 5 <i>` again.")
    assert '<p class="lead">Try <code>--minutes 5 &lt;i&gt;</code> again.</p>' in html_page(Report("t", (section,)))


def test_on_a_phone_nothing_is_cut_off_without_a_sign(chromium, tmp_path):
    found = [photos("a long-name, with parts", errors(0)), photos("b", errors(3))]
    address = report_results([written(tmp_path / "in", *found)], tmp_path / "out")[0].as_uri()
    seen = {}
    for width in (390, 1440):
        page = chromium.new_page(viewport={"width": width, "height": 844})
        page.goto(address)
        page.wait_for_function("[...document.images].every(image => image.complete)")
        seen[width] = page.evaluate(MEASURED)
        page.close()
    assert seen[390]["page"] <= 390
    assert all(width <= 358 for width in seen[390]["charts"])
    assert all(
        narrow[0] / narrow[1] < wide[0] / wide[1]
        for narrow, wide in zip(seen[390]["shapes"], seen[1440]["shapes"], strict=True)
    )
    assert all(90 < width < 180 for width in seen[390]["names"])  # the first column stays, and leaves room
    assert any(inner > outer for inner, outer in seen[390]["tables"])  # so it scrolls
    assert all("gradient" in image for image in seen[390]["edges"])  # and shows it
    assert all(inner <= outer for inner, outer in seen[1440]["tables"])
