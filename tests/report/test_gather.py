"""From result files to a report: real results of the evaluation's tests, and closed forms."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.results import write_result
from matchkernel.report.blocks import Curves, Grid, PerSequence
from matchkernel.report.gather import gather, report_results
from matchkernel.report.page import STYLE

GOLDEN = Path(__file__).parents[1] / "evaluation/golden"


def hpatches(name="float", **more):
    result = json.loads((GOLDEN / "float-l2.json").read_text())
    return result | {"descriptor": name} | more


def pairs(name, test_set, fpr95, **more):
    """A result on a patch set."""
    content = {"format": 1, "kind": "phototourism", "descriptor": name, "dimension": 128, "test_set": test_set}
    return content | {"distance": "l2", "pairs": {"m50_1_1_0": {"fpr95": fpr95}}, "warnings": []} | more


def written(folder, *results):
    folder.mkdir(parents=True, exist_ok=True)
    for number, result in enumerate(results):
        write_result(folder / f"{number}.json", result)
    return folder


def grids(report, title):
    return [b for section in report.sections for b in section.blocks if isinstance(b, Grid) and b.title == title]


def row(grid, name):
    return next(scores for method, scores in grid.rows.items() if method.name == name)


def test_real_results_give_the_figures_of_the_literature():
    result = hpatches()
    report = gather([GOLDEN / "float-l2.json"])
    (verification,), (matching,), (retrieval,) = (grids(report, t) for t in ("Verification", "Matching", "Retrieval"))
    assert row(verification, "float")["mean"].values == (100 * result["verification"]["mean"]["ap_trapezoid"],)
    assert row(matching, "float")["t"].values == (100 * result["matching"]["mean"]["t"]["ap_trapezoid"],)
    assert row(retrieval, "float")["mean"].values == (
        100 * result["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid"],
    )
    for task in (verification, matching, retrieval):
        scores = row(task, "float")
        assert sum(scores[noise].mean for noise in "eht") / 3 == pytest.approx(scores["mean"].mean, abs=1e-9)


def test_values_per_sequence_average_to_the_task_where_they_must():
    """Matching: every sequence has 15 image pairs, so the mean over sequences is the task's."""
    report = gather([GOLDEN / "float-l2.json"])
    blocks = {b.title: b for section in report.sections for b in section.blocks if isinstance(b, PerSequence)}
    assert blocks.keys() == {f"{task} by sequence" for task in ("Verification", "Matching", "Retrieval")}
    block = blocks["Matching by sequence"]
    assert block.sequences == ("i_one", "i_two", "v_one")
    (values,) = block.values.values()
    assert sum(values) / 3 == pytest.approx(100 * hpatches()["matching"]["mean"]["all"]["ap_trapezoid"])


def test_every_real_result_is_shown_together():
    report = gather([GOLDEN])
    assert len(report.sections) == 1
    assert {method.name for method in grids(report, "Matching")[0].rows} == {"float", "ties", "ties, l1", "bits"}


def test_seeds_make_the_deviation_and_splits_the_mean(tmp_path):
    """Two seeds, two splits: the mean over splits first, then mean and deviation over seeds."""
    results = []
    for seed, base in ((0, 0.40), (1, 0.44)):
        for split, more in (("a", -0.1), ("b", 0.1)):
            result = hpatches("net", seed=seed, split=split, parameters=7, configuration="x")
            result["matching"]["mean"]["all"]["ap_trapezoid"] = base + more
            results.append(result)
    (matching,) = grids(gather([written(tmp_path, *results)]), "Matching")
    score = row(matching, "net")["mean"]
    assert score.values == pytest.approx((40, 44))
    assert score.std == pytest.approx(8**0.5)
    (method,) = matching.rows
    assert method.is_ours
    assert method.parameters == 7


def test_other_splits_or_sequences_are_never_in_one_table(tmp_path):
    results = [hpatches("one"), hpatches("two", split="b"), hpatches("three", sequences=["i_one"])]
    report = gather([written(tmp_path, *results)])
    assert [len(grid.rows) for grid in grids(report, "Matching")] == [1, 1, 1]


def test_training_sets_of_one_method_are_told_apart(tmp_path):
    results = [hpatches("net", train_set=name, seed=seed) for name in ("A", "B") for seed in (0, 1)]
    (matching,) = grids(gather([written(tmp_path, *results)]), "Matching")
    assert {method.name for method in matching.rows} == {"net, A", "net, B"}
    assert all(len(scores["mean"].values) == 2 for scores in matching.rows.values())


def test_the_papers_table_2(tmp_path):
    """Three sets, six combinations, two seeds; what was trained on none of them has one value per test set."""
    sets, results = ("A", "B", "C"), []
    for i, train in enumerate(sets):
        for j, test in enumerate(sets):
            for seed in (0, 1):
                if train != test:
                    fpr95 = 0.01 * (i + 1) + 0.001 * j + 0.002 * seed
                    results.append(pairs("ours", test, fpr95, train_set=train, seed=seed, configuration="x"))
    results += [pairs("sift", test, 0.3 + 0.1 * j, hand_crafted=True) for j, test in enumerate(sets)]
    results += [pairs("tfeat", test, 0.1, train_set="liberty") for test in sets]
    report = gather([written(tmp_path, *results)])
    assert report.sections[0].title == "Patch pairs, m50"
    (table,) = grids(report, "FPR@95")
    assert table.columns == ("mean", "A → B", "A → C", "B → A", "B → C", "C → A", "C → B")
    ours, sift, tfeat = (row(table, name) for name in ("ours", "sift", "tfeat"))
    assert ours["B → C"].values == pytest.approx((2.2, 2.4))
    means = [100 * (0.02 + 0.001) + 0.2 * seed for seed in (0, 1)]  # the means of i and j over six combinations are 1
    assert ours["mean"].values == pytest.approx(means)
    assert sift["A → B"] == sift["C → B"]
    assert sift["mean"].mean == pytest.approx(40)
    assert tfeat["mean"].mean == pytest.approx(10)


def test_training_sets_that_are_no_test_sets_have_columns_where_a_method_has_several(tmp_path):
    results = [pairs("net", b, 0.1 * k, train_set=a) for k, (a, b) in enumerate([("A", "C"), ("B", "C")], 1)]
    results.append(pairs("sift", "C", 0.4))
    (table,) = grids(gather([written(tmp_path, *results)]), "FPR@95")
    assert table.columns == ("mean", "A → C", "B → C")
    assert row(table, "net")["B → C"].values == pytest.approx((20,))
    assert row(table, "sift")["mean"].values == pytest.approx((40,))


def test_other_data_of_the_same_name_is_never_in_one_table(tmp_path):
    one = written(tmp_path / "sets", pairs("x", "A", 0.1, data_sha256="1"), pairs("y", "A", 0.2, data_sha256="2"))
    with pytest.raises(ArgumentError, match="two different test sets of the name 'A'"):
        gather([one])
    two = written(tmp_path / "splits", hpatches("x", data_sha256="1", set="own"), hpatches("y", data_sha256="2"))
    report = gather([two])
    assert [section.title for section in report.sections] == [
        "HPatches tasks, own, split made",
        "HPatches tasks, split made",
    ]


def test_settings_are_said_once_for_all_results_of_a_method(tmp_path):
    results = [pairs("x", name, 0.1, settings={"call": "f(1)"}) for name in ("A", "B")]
    ((name, words),) = gather([written(tmp_path, *results)]).facts
    assert name == "x"
    assert words.count("call: f(1)") == 1
    assert "0.json" in words
    assert "1.json" in words


def test_a_combination_that_is_missing_is_a_dash_and_leaves_no_mean(tmp_path):
    results = [pairs("net", b, 0.1, train_set=a, seed=0) for a, b in (("A", "B"), ("B", "A"))]
    results.append(pairs("half", "B", 0.2, train_set="A"))
    (table,) = grids(gather([written(tmp_path, *results)]), "FPR@95")
    assert row(table, "half").keys() == {"A → B"}
    assert row(table, "net").keys() == {"mean", "A → B", "B → A"}


def test_curves_and_retrieval_where_results_have_them(tmp_path):
    curve = {"fpr": [0.0, 0.1, 1.0], "tpr": [0.0, 0.9, 1.0]}
    one = pairs("one", "A", 0.2, retrieval_map=0.5)
    one["pairs"]["m50_1_1_0"]["roc"] = curve
    report = gather([written(tmp_path, one, pairs("two", "A", 0.3, retrieval_map=None))])
    curves = [b for section in report.sections for b in section.blocks if isinstance(b, Curves)]
    assert [c.title for c in curves] == ["ROC, A"]
    assert list(curves[0].curves.values()) == [(curve["fpr"], curve["tpr"])]
    (retrieval,) = grids(report, "Retrieval mAP")
    assert row(retrieval, "one")["A"].values == (50,)


@pytest.mark.parametrize(
    "roc",
    [
        [], {"fpr": [0.0]}, {"fpr": [0.0, 1.0], "tpr": [1.0]}, {"fpr": [1.0, 0.0], "tpr": [0.0, 1.0]},
        {"fpr": [0.0, 2.0], "tpr": [0.0, 1.0]}, {"fpr": ["0"], "tpr": ["1"]},
    ],
)  # fmt: skip
def test_curves_that_are_none_are_refused(roc, tmp_path):
    result = pairs("one", "A", 0.2)
    result["pairs"]["m50_1_1_0"]["roc"] = roc
    with pytest.raises(FileError, match=r"0\.json: not a whole result \(pairs/m50_1_1_0/roc"):
        gather([written(tmp_path, result)])


def test_what_cannot_be_gathered_is_said_in_one_line(tmp_path):
    twice = written(tmp_path / "twice", hpatches("x"), hpatches("x"))
    again = written(tmp_path / "again", pairs("x", "A", 0.1), pairs("x", "A", 0.2))
    other = written(tmp_path / "other", hpatches("x", split="a", parameters=1), hpatches("x", split="b", parameters=2))
    seed = written(tmp_path / "seed", hpatches("x", seed="zero"))
    partial = hpatches("x")
    del partial["matching"]["mean"]["e"]
    partial = written(tmp_path / "partial", partial)
    (tmp_path / "empty").mkdir()
    for folder, words in [
        (twice, "two results of 'x' on split"), (again, "two results of 'x' on 'A'"), (other, "rename one"),
        (seed, "seed is 'zero'"), (partial, "mean/e/ap_trapezoid is missing"), (tmp_path / "empty", "needs results"),
        (tmp_path / "nowhere.json", "cannot be read"),
    ]:  # fmt: skip
        with pytest.raises((ArgumentError, FileError)) as caught:
            gather([folder])
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def a_full_set(folder):
    curve = {"fpr": [k / 50 for k in range(51)], "tpr": [(k / 50) ** 0.3 for k in range(51)]}
    results = [hpatches('net <b>&"x"', seed=seed, configuration="x", parameters=9) for seed in range(3)]
    results += [hpatches("sift", hand_crafted=True, parameters=0, warnings=["ties <here>"], settings={"call": "a & b"})]
    results += [pairs('net <b>&"x"', "A", 0.1, seed=seed, configuration="x", parameters=9) for seed in range(3)]
    for result in results[4:]:
        result["pairs"]["m50_1_1_0"]["roc"] = curve
    return written(folder, *results)


def test_the_same_results_give_the_same_bytes_wherever_they_lie(tmp_path):
    one = report_results([a_full_set(tmp_path / "one")], tmp_path / "out one")
    folder = a_full_set(tmp_path / "elsewhere/two")
    two = report_results(sorted(folder.iterdir(), reverse=True), tmp_path / "new/out two")
    assert [path.name for path in one] == ["report.html", "report.md", "report.json"]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()
        assert str(tmp_path) not in a.read_text()


class Reader(HTMLParser):
    """Collects tags and attributes and checks that every tag is closed in its turn."""

    VOID = ("meta",)

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
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "i"}
    for _, attributes in page.seen:
        assert not attributes.keys() & {"src", "xlink:href", "onclick", "onload"}
        assert attributes.get("href", "#").startswith("#")
        assert "http" not in "".join(value or "" for value in attributes.values())
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
        if tag == "svg":
            assert attributes.get("role") == "img" or attributes.get("aria-hidden") == "true"
            assert all(word in page.ids for word in attributes.get("aria-labelledby", "").split())
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert [tag for tag, _ in page.seen].count("caption") == [tag for tag, _ in page.seen].count("table")


def luminance(colour):
    values = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stand_out_by_day_and_by_night(theme):
    """WCAG: 4.5 for words, 3 for what a chart is made of."""
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
    for name in ("other", *(f"c{k}" for k in range(8))):
        assert contrast(name) >= 3, name


def test_json_keeps_every_run_and_markdown_every_table(tmp_path):
    report_results([a_full_set(tmp_path / "in")], tmp_path / "out")
    content = json.loads((tmp_path / "out/report.json").read_text())
    blocks = [block for section in content["sections"] for block in section["blocks"]]
    table = next(block for block in blocks if block["title"] == "Matching")
    net = next(entry for entry in table["rows"] if entry["parameters"] == 9)
    assert len(net["scores"]["mean"]["runs"]) == 3
    text = (tmp_path / "out/report.md").read_text()
    for title in ("Verification", "Matching", "Retrieval", "FPR@95", "Matching by sequence"):
        assert f"### {title}\n" in text
    assert "> **Note.** sift on made: ties <here>" in text


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot be made"):
        report_results([GOLDEN / "float-l2.json"], tmp_path / "file/out")
