"""Charts show the numbers of their blocks, and tables mark the best."""

from xml.etree import ElementTree

import pytest
from helpers import refuses
from made_results import hpatches, pairs, written

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.canvas import svg_of
from matchkernel.report.blocks import Curves, Grid, PerSequence, ReportedMethod, Scatter, best_of, by_parameters
from matchkernel.report.charts import bar_chart, chart, curve_chart, score_bars, sequence_chart
from matchkernel.report.tables import grid_html, grid_markdown, markdown_table

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


def test_methods_are_sorted_by_parameters():
    assert by_parameters([UNKNOWN, OTHER, SIFT, OURS]) == [SIFT, OURS, OTHER, UNKNOWN]
    assert by_parameters([ReportedMethod("b", 5), ReportedMethod("a", 5)])[0].name == "a"


def test_bars_are_as_long_as_their_means_and_hand_crafted_ones_hatched():
    figure, description = bar_chart(grid(lower_is_better=True, marks=("e",)))
    bars = [bar for bar in figure.axes[0].patches if bar.get_width() > 0]
    assert [bar.get_width() for bar in bars] == [25, 50, 42]
    assert [bool(bar.get_hatch()) for bar in bars] == [True, False, False]
    assert description == "Bars of mean, lower is better: sift 25.00, ours 42.00 ± 2.83, other <&> net 50.00."


def test_a_curve_goes_through_its_points():
    figure, _ = curve_chart(Curves("ROC", {OURS: ([1e-4, 1e-2, 1.0], [0.5, 0.75, 1.0])}), {OURS: 0})
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[0.01, 50], [1, 75], [100, 100]]


def test_one_point_for_each_known_value_the_hardest_sequence_last():
    block = PerSequence("m", ("a", "b", "c"), {OURS: (10.0, 90.0, None), SIFT: (20.0, 80.0, None)})
    figure, _ = sequence_chart(block, {OURS: 1, SIFT: 0})
    sift, ours = figure.axes[0].lines
    assert sift.get_xydata().tolist() == [[80, 0], [20, 1]]
    assert ours.get_xydata().tolist() == [[90, 0], [10, 1]]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a", "c"]


@pytest.mark.parametrize(
    "block",
    [
        grid(),
        Grid("g", ("mean",), {MATH: {"mean": Spread((5.0,))}}, bars="mean"),
        Curves("ROC", {MATH: ([0.0, 1.0], [0.0, 1.0])}),
        PerSequence("m", ("$a",), {MATH: (1.0,)}),
        Scatter("s", "seconds", {MATH: (0.5, Spread((40.0,), 1.0))}),
    ],
)
def test_a_chart_is_svg_without_scripts_and_the_same_bytes_each_time(block):
    one, two = (svg_of(chart(block, {MATH: 9})[0]) for _ in range(2))
    assert one == two
    assert not [element for element in ElementTree.fromstring(one).iter() if element.tag.endswith("script")]


def test_tables_mark_the_best_and_say_what_is_missing():
    text = grid_markdown(grid())
    assert text.splitlines() == [
        "| method | parameters | mean | e |",
        "|---|---:|---:|---:|",
        "| sift (h) | 0 | 25.00 | – |",
        "| ours | 433,568 | 42.00 ± 2.83 | **62.00 ± 1.41** |",
        "| other <&> net | 1,334,560 | **50.00** | 60.00 |",
    ]
    table = ElementTree.fromstring(grid_html(grid(lower_is_better=True)))
    assert [bold.text for bold in table.iter("b")] == ["25.00", "60.00"]
    assert best_of(grid(), "e") == 62
    assert best_of(Grid("t", ("mean",), {SIFT: {"mean": Spread((1.0,))}}), "mean") is None


def test_tables_of_any_script():
    rows = [
        ["sift", 0, Spread((0.25,)), Spread((0.5,))],
        ["a|b", 1_234_567, Spread((0.40, 0.44)), None],
        ["other", None, Spread((0.9,)), Spread((0.4,))],
    ]
    assert markdown_table(
        ["name", "size", "AP", "FPR"], rows, lower_is_better=["FPR"], not_compared=["other"], digits=1, scale=100
    ).splitlines() == [
        "| name | size | AP | FPR |",
        "|---|---:|---:|---:|",
        "| sift | 0 | 25.0 | 50.0 |",
        "| a\\|b | 1,234,567 | **42.0 ± 2.8** | – |",
        "| other | – | 90.0 | 40.0 |",
    ]


def test_equal_values_are_all_best():
    rows = {SIFT: {"mean": Spread((1.001,))}, OURS: {"mean": Spread((1.004,))}}
    assert grid_markdown(Grid("t", ("mean",), rows)).count("**1.00**") == 2


def test_bars_of_results(tmp_path):
    ours = [hpatches("fc", seed=seed, configuration="fc-n32", parameters=9) for seed in range(3)]
    other = hpatches("sift", hand_crafted=True, parameters=0)
    raised = hpatches("ties")
    raised["retrieval"]["python"]["mean"]["20000"] |= {"ap_trapezoid": 1.0, "ap_trapezoid_tie_safe": 0.25}
    bars, tasks = score_bars([written(tmp_path / "results", *ours, other, raised, pairs("orb", "A", 0.1))])
    assert tasks == ["verification", "matching", "retrieval"]
    found = {bar.name: bar for bar in bars}
    assert (found["fc"].is_ours, found["fc"].is_reference, found["fc"].parameters) == (True, True, 9)
    assert (found["sift"].is_ours, found["sift"].is_hand_crafted) == (False, True)
    assert [len(score.values) for score in found["fc"].scores] == [3, 3, 3]
    expected = 100 * other["matching"]["mean"]["all"]["ap_trapezoid"]
    assert found["sift"].scores[1].mean == pytest.approx(expected)
    assert (found["ties"].scores[2].mean, found["ties"].is_tie_safe, found["fc"].is_tie_safe) == (25, True, False)


@pytest.mark.parametrize(
    "results",
    [[pairs("sift", "A", 0.1)], [hpatches("a", set="one"), hpatches("b", set="two")]],
    ids=["no HPatches", "two sets"],
)
def test_results_that_share_no_chart(results, tmp_path):
    with refuses(ArgumentError):
        score_bars([written(tmp_path, *results)])
