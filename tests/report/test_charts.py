"""Charts and tables show the numbers of their blocks, mark the best, and never prefer a value that ties raise."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import refuses
from made_results import gathered, grids, hpatches, pairs, row, written

from matchkernel.data.hpatches import HPatchesTasks, PatchList, draw_verification
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.canvas import svg_of
from matchkernel.plots.scores import Bar, ReportedMethod, draw_scores
from matchkernel.report.blocks import (
    RAISED,
    Best,
    Curves,
    Grid,
    PerSequence,
    Scatter,
    TextTable,
    by_parameters,
)
from matchkernel.report.hpatches import score_bars
from matchkernel.report.write import _markdown_table, gather, report_results

SIFT = ReportedMethod("sift", 0, hand_crafted=True)
OURS = ReportedMethod("ours", 433_568, is_ours=True)
OTHER = ReportedMethod("other <&> net", 1_334_560)
MATH = ReportedMethod("costs $5_{ and $ and " + 200 * "more", 7)
UNKNOWN = ReportedMethod("from files")


def grid(**more):
    rows = {
        OTHER: {"mean": Spread((50.0,)), "e": Spread((60.0,))},
        OURS: {"mean": Spread((40.0, 44.0)), "e": Spread((61.0, 63.0))},
        SIFT: {"mean": Spread((25.0,))},
    }
    return Grid("Matching", ("mean", "e"), rows, **{"bars": "mean", **more})


def best_cells(block):
    return [cell for line in block.table()[1] for cell in line if isinstance(cell, Best)]


def test_methods_are_sorted_by_parameters():
    assert by_parameters([UNKNOWN, OTHER, SIFT, OURS]) == [SIFT, OURS, OTHER, UNKNOWN]
    assert by_parameters([ReportedMethod("b", 5), ReportedMethod("a", 5)])[0].name == "a"


def test_bars_are_as_long_as_their_means():
    figure, description = grid(marks=("e",)).chart({})
    assert [bar.get_width() for bar in figure.axes[0].patches if bar.get_width() > 0] == [25, 50, 42]
    assert "other <&> net 50.00" in description


def test_a_curve_goes_through_its_points():
    figure, _ = Curves("ROC", {OURS: ([1e-4, 1e-2, 1.0], [0.5, 0.75, 1.0])}).chart({OURS: 0})
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0.01, 50], [1, 75], [100, 100]]


def test_one_point_for_each_known_value_the_hardest_sequence_last():
    block = PerSequence("m", ("a", "b", "c"), {OURS: (10.0, 90.0, None), SIFT: (20.0, 80.0, None)})
    figure, _ = block.chart({OURS: 1, SIFT: 0})
    sift, ours = figure.axes[0].lines
    assert sift.get_xydata()[:2].tolist() == [[80, 0], [20, 1]]
    assert ours.get_xydata()[:2].tolist() == [[90, 0], [10, 1]]
    assert np.isnan(ours.get_xdata()[2])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a", "c"]


def test_charts_of_many_methods_have_room_for_axes_and_legend():
    """As many as the paper's Figure 3, and of every kind, in a chart of which three stand side by side."""
    kinds = ({"hand_crafted": True}, {"is_ours": True}, {"is_ours": True, "configuration": "fc-n32"}, {})
    methods = [ReportedMethod(f"number-{k}-of-many", k, **kinds[k % 4]) for k in range(17)]
    sequences = PerSequence("m", ("a", "b"), dict.fromkeys(methods, (10.0, 90.0)))
    bars = draw_scores([Bar(method, [Spread((50.0,))]) for method in methods], ["mAP"], width=4.2)
    for figure in (sequences.chart({method: k for k, method in enumerate(methods)})[0], bars):
        svg_of(figure)  # which lays it out
        (axes,), (legend,) = figure.axes, figure.legends
        assert axes.get_window_extent().height > 20
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())
        assert legend.get_window_extent().x0 >= 0
        assert legend.get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.parametrize(("costs", "scale", "shown"), [((1.4, 3.8), "linear", "2"), ((0.4, 5.0), "log", "0.5")])
def test_seconds_have_plain_ticks(costs, scale, shown):
    points = dict(zip((SIFT, OURS), [(cost, Spread((50.0,), 1.0)) for cost in costs], strict=True))
    figure, _ = Scatter("s", "seconds", points, "mAA(10°), %").chart({SIFT: 0, OURS: 1})
    (axes,) = figure.axes
    svg_of(figure)  # which writes the ticks
    ticks = [label.get_text() for label in axes.get_xticklabels(which="both")]
    assert (axes.get_xscale(), axes.get_ylabel()) == (scale, "mAA(10°), %")
    assert shown in ticks
    assert not any("$" in text for text in ticks)  # as in 2 × 10⁰


@pytest.mark.parametrize(
    "block",
    [
        grid(),
        Grid("g", ("mean",), {MATH: {"mean": Spread((5.0,))}}, bars="mean"),
        Curves("ROC", {MATH: ([0.0, 1.0], [0.0, 1.0])}),
        PerSequence("m", ("$a",), {MATH: (1.0,)}),
        Scatter("s", "seconds", {MATH: (0.5, Spread((40.0,), 1.0))}, "%"),
    ],
)
def test_a_chart_is_svg_without_scripts_and_the_same_bytes_each_time(block):
    one, two = (svg_of(block.chart({MATH: 9})[0]) for _ in range(2))
    assert one == two
    assert not [element for element in ElementTree.fromstring(one).iter() if element.tag.endswith("script")]


def test_tables_mark_the_best_and_say_what_is_missing():
    assert _markdown_table(grid()).splitlines() == [
        "| method | parameters | mean | e |",
        "|---|---:|---:|---:|",
        "| sift (h) | 0 | 25.00 | – |",
        "| ours | 433,568 | 42.00 ± 2.83 | **62.00 ± 1.41** |",
        "| other <&> net | 1,334,560 | **50.00** | 60.00 |",
    ]
    assert best_cells(grid(lower_is_better=True)) == ["25.00", "60.00"]
    assert best_cells(Grid("t", ("mean",), {SIFT: {"mean": Spread((1.0,))}})) == []  # nothing to compare with
    equal = {SIFT: {"mean": Spread((1.001,))}, OURS: {"mean": Spread((1.004,))}}
    assert best_cells(Grid("t", ("mean",), equal)) == ["1.00", "1.00"]


def test_a_cell_cannot_break_a_markdown_table():
    assert "| a\\|b c |" in _markdown_table(TextTable("t", ("x",), (("a|b\nc",),)))


def test_bars_of_results(tmp_path):
    ours = [hpatches("fc", seed=seed, configuration="fc-n32", parameters=9) for seed in range(3)]
    other = hpatches("sift", hand_crafted=True, parameters=0)
    raised = hpatches("ties")
    raised["retrieval"]["python"]["mean"]["20000"] |= {"ap_trapezoid": 1.0, "ap_trapezoid_tie_safe": 0.25}
    bars, tasks = score_bars([written(tmp_path / "results", *ours, other, raised, pairs("orb", "A", 0.1))])
    assert tasks == ["verification", "matching", "retrieval"]
    found = {bar.method.name: bar for bar in bars}
    assert found["fc"].method == ReportedMethod("fc", 9, is_ours=True, configuration="fc-n32")
    assert found["sift"].method == ReportedMethod("sift", 0, hand_crafted=True)
    assert [len(score.values) for score in found["fc"].scores] == [3, 3, 3]
    assert found["sift"].scores[1].mean == pytest.approx(100 * other["matching"]["mean"]["all"]["ap_trapezoid"])
    assert (found["ties"].scores[2].mean, found["ties"].is_tie_safe, found["fc"].is_tie_safe) == (25, True, False)


@pytest.mark.parametrize(
    "results",
    [[pairs("sift", "A", 0.1)], [hpatches("a", set="one"), hpatches("b", set="two")]],
    ids=["no HPatches", "two sets"],
)
def test_results_that_cannot_share_a_chart_are_refused(results, tmp_path):
    with refuses(ArgumentError):
        score_bars([written(tmp_path, *results)])


# Ties: the worst case is a constant descriptor, to which the official retrieval protocol gives 100 %.


def tied_grid(honest=40.0, official=90.0, safe=10.0):
    constant = ReportedMethod("constant", 0)
    rows = {OURS: {"mean": Spread((honest,))}, constant: {"mean": Spread((official,))}}
    ties = {OURS: {"mean": Spread((honest,))}, constant: {"mean": Spread((safe,))}}
    return Grid("t", ("mean",), rows, bars="mean", safe=ties)


def test_the_best_value_is_never_one_that_ties_raise():
    assert best_cells(tied_grid()) == ["40.00"]
    assert f"| 90.00 {RAISED} |" in _markdown_table(tied_grid())
    assert best_cells(tied_grid(safe=50.0)) == []  # still better than the honest one: neither is bold
    assert best_cells(tied_grid(safe=89.996)) == ["90.00"]  # the difference cannot be seen
    assert [bool(tied_grid(safe=safe).footnote) for safe in (89.996, 89.994)] == [False, True]


def test_a_bar_shows_the_tie_safe_value():
    axes = tied_grid().chart({})[0].axes[0]
    assert sorted(bar.get_width() for bar in axes.patches if bar.get_width()) == [10, 40]
    assert f"constant {RAISED}   0" in [label.get_text() for label in axes.get_yticklabels()]


def scored(name, of_patch):
    """A real result of the descriptor that `of_patch` gives for a (16, N) array of patch numbers."""
    counts = {"i_one": 9, "v_one": 12}
    places = {key: np.arange(16)[:, None] * 100 + np.arange(count) for key, count in counts.items()}
    rows = {key: of_patch(place).astype(np.float32) for key, place in places.items()}
    names = np.concatenate([np.full(count, key) for key, count in counts.items()])
    indices = np.concatenate([np.arange(count) for count in counts.values()])
    is_query = indices % 3 == 0
    queries, others = (PatchList(names[p], np.zeros(p.sum(), np.int64), indices[p]) for p in (is_query, ~is_query))
    tasks = HPatchesTasks("made", list(counts), [], draw_verification(counts, list(counts), 40), queries, others)
    return score_split(stack_descriptors(name, rows), tasks)


def test_a_constant_descriptor_wins_nothing(tmp_path):
    random = np.random.default_rng(0)
    constant = scored("constant", lambda place: np.ones((*place.shape, 4)))
    noise = scored("noise", lambda place: random.standard_normal((*place.shape, 4)))
    folder = written(tmp_path / "in", constant, noise)
    (retrieval,) = grids(gather([folder]), "Retrieval")
    assert row(retrieval, "constant")["mean"].mean == 100
    assert f"100.00 {RAISED}" in retrieval.table()[1][0]
    *_, numbers = report_results([folder], tmp_path / "out")
    blocks = json.loads(numbers.read_text())["sections"][0]["blocks"]
    score = next(b for b in blocks if b["title"] == "Retrieval")["rows"][0]["scores"]["mean"]
    assert score["mean"] == 100
    assert score["tie_safe"][0] < 50


def test_tie_safe_columns_of_all_three_tasks(tmp_path):
    result = hpatches()
    (table,) = grids(gathered(tmp_path, result), "The same in other conventions (%)")
    scores = row(table, "float")
    assert scores["verif. tie-safe"].values == (100 * result["verification"]["mean"]["ap_trapezoid_tie_safe"],)
    assert scores["match. tie-safe"].values == (100 * result["matching"]["mean"]["all"]["ap_trapezoid_tie_safe"],)
    safe = result["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid_tie_safe"]
    assert scores["retr. tie-safe"].values == (100 * safe,)
