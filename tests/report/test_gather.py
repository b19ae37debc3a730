"""From result files to a report: real results of the evaluation's tests, and closed forms."""

import json

import pytest
from helpers import refuses
from made_results import GOLDEN, a_full_set, gathered, grids, hpatches, pairs, photos, row, written

from matchkernel.errors import FileError
from matchkernel.report.blocks import Curves, PerSequence, Scatter, TextTable
from matchkernel.report.page import html_page
from matchkernel.report.write import gather, json_text, markdown, report_results


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
    (values,) = block.methods.values()
    assert sum(values) / 3 == pytest.approx(100 * hpatches()["matching"]["mean"]["all"]["ap_trapezoid"])


def test_every_real_result_is_shown_together():
    report = gather([GOLDEN])
    assert len(report.sections) == 1
    assert {method.name for method in grids(report, "Matching")[0].methods} == {"float", "ties", "ties, l1", "bits"}


def test_seeds_make_the_deviation_and_splits_the_mean(tmp_path):
    """Two seeds, two splits: the mean over splits first, then mean and deviation over seeds."""
    results = []
    for seed, base in ((0, 0.40), (1, 0.44)):
        for split, more in (("a", -0.1), ("b", 0.1)):
            result = hpatches("net", seed=seed, split=split, parameters=7, configuration="x")
            result["matching"]["mean"]["all"]["ap_trapezoid"] = base + more
            results.append(result)
    (matching,) = grids(gathered(tmp_path, *results), "Matching")
    score = row(matching, "net")["mean"]
    assert score.values == pytest.approx((40, 44))
    assert score.std == pytest.approx(8**0.5)
    (method,) = matching.methods
    assert method.is_ours
    assert method.parameters == 7


def test_other_splits_or_sequences_are_never_in_one_table(tmp_path):
    results = [hpatches("one"), hpatches("two", split="b"), hpatches("three", sequences=["i_one"])]
    report = gathered(tmp_path, *results)
    assert [len(grid.methods) for grid in grids(report, "Matching")] == [1, 1, 1]


def test_training_sets_of_one_method_are_told_apart(tmp_path):
    results = [hpatches("net", train_set=name, seed=seed) for name in ("A", "B") for seed in (0, 1)]
    (matching,) = grids(gathered(tmp_path, *results), "Matching")
    assert {method.name for method in matching.methods} == {"net, A", "net, B"}
    assert all(len(scores["mean"].values) == 2 for scores in matching.methods.values())


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
    report = gathered(tmp_path, *results)
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
    (table,) = grids(gathered(tmp_path, *results), "FPR@95")
    assert table.columns == ("mean", "A → C", "B → C")
    assert row(table, "net")["B → C"].values == pytest.approx((20,))
    assert row(table, "sift")["mean"].values == pytest.approx((40,))


def test_settings_are_said_once_for_all_results_of_a_method(tmp_path):
    results = [pairs("x", name, 0.1, settings={"call": "f(1)"}) for name in ("A", "B")]
    ((name, words),) = gathered(tmp_path, *results).facts
    assert name == "x"
    assert words.count("call: f(1)") == 1
    assert "0.json" in words
    assert "1.json" in words


def test_a_combination_that_is_missing_is_a_dash_and_leaves_no_mean(tmp_path):
    results = [pairs("net", b, 0.1, train_set=a, seed=0) for a, b in (("A", "B"), ("B", "A"))]
    results.append(pairs("half", "B", 0.2, train_set="A"))
    (table,) = grids(gathered(tmp_path, *results), "FPR@95")
    assert row(table, "half").keys() == {"A → B"}
    assert row(table, "net").keys() == {"mean", "A → B", "B → A"}


def test_curves_and_retrieval_where_results_have_them(tmp_path):
    curve = {"fpr": [0.0, 0.1, 1.0], "tpr": [0.0, 0.9, 1.0]}
    one = pairs("one", "A", 0.2, retrieval_map=0.5)
    one["pairs"]["m50_1_1_0"]["roc"] = curve
    report = gathered(tmp_path, one, pairs("two", "A", 0.3, retrieval_map=None))
    curves = [b for section in report.sections for b in section.blocks if isinstance(b, Curves)]
    assert [c.title for c in curves] == ["ROC, A"]
    assert list(curves[0].methods.values()) == [(curve["fpr"], curve["tpr"])]
    (retrieval,) = grids(report, "Retrieval mAP")
    assert row(retrieval, "one")["A"].values == (50,)


@pytest.mark.parametrize("roc", [[], {"fpr": [0.0]}, {"fpr": [0.0, 1.0], "tpr": [1.0]}, {"fpr": ["0"], "tpr": ["1"]}])
def test_curves_that_are_none_are_refused(roc, tmp_path):
    result = pairs("one", "A", 0.2)
    result["pairs"]["m50_1_1_0"]["roc"] = roc
    with refuses(FileError):
        report_results([written(tmp_path / "results", result)], tmp_path / "report")


VALID = {"hpatches": hpatches("x"), "phototourism": pairs("x", "A", 0.2), "photos": photos("x")}


def without(kind, *path):
    """A valid result without the value at a path, as JSON."""
    content = part = json.loads(json.dumps(VALID[kind]))
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return json.dumps(content)


BROKEN = {
    "missing": None,
    "deep": "[" * 100_000,
    "no mean": without("hpatches", "matching", "mean", "e"),
    **{f"{kind} without a name": without(kind, "descriptor") for kind in VALID},
    **{f"{kind} cut at {cut}": json.dumps(VALID[kind])[:cut] for kind in VALID for cut in (0, 1, 100, -1)},
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_files_that_are_not_results_are_refused(content, tmp_path):
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content)
    with refuses(FileError):
        gather([path])


@pytest.mark.parametrize(
    "results",
    [VALID.values(), [pairs("x", "A", 1e-300)], [json.loads(without("hpatches", "matching"))]],
    ids=["one of each kind", "a value next to nothing", "one task is missing"],
)
def test_every_valid_result_can_be_shown(results, tmp_path):
    report = gathered(tmp_path, *results)
    for text in (html_page(report), markdown(report), json_text(report)):
        text.encode("utf-8")


def test_the_same_results_give_the_same_bytes_wherever_they_lie(tmp_path):
    one = report_results([a_full_set(tmp_path / "one")], tmp_path / "out one")
    folder = a_full_set(tmp_path / "elsewhere/two")
    two = report_results(sorted(folder.iterdir(), reverse=True), tmp_path / "new/out two")
    assert [path.name for path in one] == ["report.html", "report.md", "report.json"]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()
        assert str(tmp_path) not in a.read_text()


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
    assert "sift on made: ties <here>" in text


def test_results_on_photos(tmp_path):
    good, bad = photos("good", errors=(0.5, 0.5, 1.5)), photos("bad <b>", licence="GPL", seconds={"per_image": 12.0})
    poses, homographies = gathered(tmp_path, good, bad).sections
    scores, differences, chart = poses.blocks
    assert isinstance(scores, TextTable)
    assert [line[0] for line in scores.rows] == ["good", "bad <b>"]  # the best first
    assert scores.rows[0][2:] == ("0.50", "93.3", "8", "7", "MIT")
    assert scores.rows[1][2:] == ("12.00", "53.3", "8", "7", "GPL")
    assert scores.rows[0][1] == "96.7"  # three pairs are too few for ±
    assert [line[0] for line in differences.rows] == ["bad <b>"]
    assert differences.rows[0][1] == "-36.7"
    assert isinstance(chart, Scatter)
    assert sorted(cost for cost, _ in chart.methods.values()) == [0.5, 12.0]
    assert homographies.blocks[0].rows[0][3] == "75.0"  # correct matches


def test_settings_in_which_methods_on_photos_differ_are_named(tmp_path):
    one, two = photos("x"), photos("x", settings={"contrast": 0.01})
    labels = [line[0] for line in gathered(tmp_path, one, two).sections[0].blocks[0].rows]
    assert sorted(labels) == ["x, contrast 0.01", "x, contrast 0.04"]


def test_photos_of_other_data_have_their_own_sections(tmp_path):
    report = gathered(tmp_path / "apart", photos("x"), photos("y", data_sha256="34"))
    assert [len(section.blocks[0].rows) for section in report.sections] == [1] * 4
