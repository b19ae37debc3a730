"""Values that ties raise: marked, said, never bold. The worst case is a descriptor that is constant."""

import json

import numpy as np
import pytest
from made_results import grids, hpatches, row, written

from matchkernel.data.hpatches import HPatchesTasks, PatchList, draw_verification
from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.report.blocks import RAISED, Grid, ReportedMethod, best_of
from matchkernel.report.charts import bar_chart
from matchkernel.report.tables import grid_html, grid_markdown
from matchkernel.report.write import gather, report_results

COUNTS = {"i_one": 9, "v_one": 12}
HONEST, CONSTANT = ReportedMethod("honest", 1), ReportedMethod("constant", 0)


def grid(honest=40.0, official=90.0, safe=10.0):
    rows = {HONEST: {"mean": Spread((honest,))}, CONSTANT: {"mean": Spread((official,))}}
    ties = {HONEST: {"mean": Spread((honest,))}, CONSTANT: {"mean": Spread((safe,))}}
    return Grid("t", ("mean",), rows, bars="mean", safe=ties)


def scored(name, of_patch):
    """A real result of the descriptor that `of_patch` gives for a (16, N) array of patch numbers."""
    places = {key: np.arange(16)[:, None] * 100 + np.arange(count) for key, count in COUNTS.items()}
    rows = {key: of_patch(key, place).astype(np.float32) for key, place in places.items()}
    names = np.concatenate([np.full(count, key) for key, count in COUNTS.items()])
    indices = np.concatenate([np.arange(count) for count in COUNTS.values()])
    is_query = indices % 3 == 0
    queries, others = (PatchList(names[p], np.zeros(p.sum(), np.int64), indices[p]) for p in (is_query, ~is_query))
    tasks = HPatchesTasks("made", list(COUNTS), [], draw_verification(COUNTS, list(COUNTS), 40), queries, others)
    return score_split(stack_descriptors(name, rows), tasks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    random = np.random.default_rng(0)
    constant = scored("constant", lambda _, place: np.ones((*place.shape, 4)))
    noise = scored("noise", lambda _, place: random.standard_normal((*place.shape, 4)))
    return written(tmp_path_factory.mktemp("results"), constant, noise)


def test_a_constant_descriptor_wins_nothing(folder):
    report = gather([folder])
    (retrieval,) = grids(report, "Retrieval")
    assert row(retrieval, "constant")["mean"].mean == 100  # the official rule gives ties to the positives
    text = grid_markdown(retrieval)
    assert f"| 100.00 {RAISED} |" in text
    assert "**100" not in text
    assert text.endswith(retrieval.footnote)
    (note,) = (b.note for section in report.sections for b in section.blocks if b.title == "Retrieval by sequence")
    assert f"{RAISED} The order of tied distances alone raises the values of constant." in note


def test_the_page_and_the_json_say_it(folder, tmp_path):
    page, _, numbers = report_results([folder], tmp_path)
    assert f"<td>100.00 {RAISED}</td>" in page.read_text()
    blocks = json.loads(numbers.read_text())["sections"][0]["blocks"]
    score = next(b for b in blocks if b["title"] == "Retrieval")["rows"][0]["scores"]["mean"]
    assert score["mean"] == 100
    assert score["tie_safe"][0] < 50


def test_tie_safe_columns_of_all_three_tasks(tmp_path):
    result = hpatches()
    (table,) = grids(gather([written(tmp_path, result)]), "The same in other conventions (%)")
    scores = row(table, "float")
    assert scores["verif. tie-safe"].values == (100 * result["verification"]["mean"]["ap_trapezoid_tie_safe"],)
    assert scores["match. tie-safe"].values == (100 * result["matching"]["mean"]["all"]["ap_trapezoid_tie_safe"],)
    safe = result["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid_tie_safe"]
    assert scores["retr. tie-safe"].values == (100 * safe,)


def test_the_best_is_the_best_of_what_can_be_trusted():
    assert "**40.00**" in grid_markdown(grid())
    assert f"| 90.00 {RAISED} |" in grid_markdown(grid())
    assert "<b>40.00</b>" in grid_html(grid())
    assert best_of(grid(safe=50.0), "mean") == 50
    assert "**" not in grid_markdown(grid(safe=50.0))  # still better than the honest one: neither is bold


def test_what_cannot_be_seen_is_not_marked():
    assert "**90.00**" in grid_markdown(grid(safe=89.996))
    assert grid(safe=89.996).footnote == ""
    assert grid(safe=89.994).footnote.startswith(RAISED)


def test_a_bar_shows_the_tie_safe_value():
    axes = bar_chart(grid())[0].axes[0]
    assert sorted(bar.get_width() for bar in axes.patches if bar.get_width()) == [10, 40]
    assert f"constant {RAISED}   0" in [label.get_text() for label in axes.get_yticklabels()]
