"""Charts: what is drawn stands for the numbers, and can be read by a program."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.report.blocks import Curves, Grid, PerSequence, ReportedMethod, best_of, by_parameters
from matchkernel.report.charts import LEFT, LETTER, RIGHT, bar_chart, curve_chart, legend, sequence_chart
from matchkernel.report.svg import apart, dot, path, shortened, ticks
from matchkernel.report.tables import grid_html, grid_markdown, markdown_table

SIFT = ReportedMethod("sift", 0, hand_crafted=True)
OURS = ReportedMethod("ours", 433_568, is_ours=True)
OTHER = ReportedMethod("other <&> net", 1_334_560)
UNKNOWN = ReportedMethod("from files")


def grid(**more):
    rows = {
        OTHER: {"mean": Spread((50.0,)), "e": Spread((60.0,))},
        OURS: {"mean": Spread((40.0, 44.0)), "e": Spread((61.0, 63.0))},
        SIFT: {"mean": Spread((25.0,))},
    }
    return Grid("Matching", ("mean", "e"), rows, **{"bars": "mean", **more})


def parsed(svg):
    return ElementTree.fromstring(svg)


def of_class(svg, name):
    return [element for element in parsed(svg).iter() if name in element.get("class", "").split()]


def test_scores():
    """Two runs, 40 and 44: the deviation with n - 1 is the root of 8."""
    assert Spread((40.0, 44.0)).mean == 42
    assert Spread((40.0, 44.0)).std == pytest.approx(8**0.5)
    assert Spread((3.0,)).std is None
    for wrong in ((), (float("nan"),), (1.0, float("inf"))):
        with pytest.raises(ArgumentError, match="finite"):
            Spread(wrong)


def test_methods_are_sorted_by_parameters():
    assert by_parameters([UNKNOWN, OTHER, SIFT, OURS]) == [SIFT, OURS, OTHER, UNKNOWN]
    assert by_parameters([ReportedMethod("b", 5), ReportedMethod("a", 5)])[0].name == "a"


def test_bars_are_as_long_as_their_means_and_hand_crafted_ones_hatched():
    svg = bar_chart(grid(), 3)
    bars = of_class(svg, "bar")
    widths = [float(bar.get("width")) for bar in bars]
    assert widths == pytest.approx([(RIGHT - LEFT) * share for share in (25 / 50, 42 / 50, 50 / 50)], abs=0.06)
    assert [bar.get("style") for bar in bars] == ["fill:url(#hatch3-other)", None, None]
    assert [bar.get("class") for bar in bars] == ["bar other", "bar own", "bar other"]
    names = [element.text for element in of_class(svg, "name")][::2]
    assert names == ["sift", "ours", "other <&> net"]


def test_whiskers_are_one_deviation_to_each_side():
    whiskers = of_class(bar_chart(grid(), 0), "whisker")
    assert len(whiskers) == 3  # one method has two runs: a line and its two ends
    low, high = float(whiskers[0].get("x1")), float(whiskers[0].get("x2"))
    per_point = (RIGHT - LEFT) / 50
    assert (low + high) / 2 == pytest.approx(LEFT + 42 * per_point, abs=0.1)
    assert high - low == pytest.approx(2 * 8**0.5 * per_point, abs=0.2)


def test_marks_stand_at_their_values():
    svg = bar_chart(grid(marks=("e",)), 0)
    scale = (RIGHT - LEFT) / 80  # ticks to 80, as 62 is the largest
    assert [float(tick.get("x1")) for tick in of_class(svg, "tick")] == pytest.approx(
        [LEFT + 62 * scale, LEFT + 60 * scale], abs=0.06
    )


def test_letters_of_close_scores_do_not_overprint_each_other():
    rows = {OURS: {"mean": Spread((60.0,)), "e": Spread((60.2,)), "h": Spread((60.0,)), "t": Spread((59.9,))}}
    svg = bar_chart(Grid("m", ("mean", "e", "h", "t"), rows, bars="mean", marks=("e", "h", "t")), 0)
    e, h, t = (float(letter.get("x")) for letter in of_class(svg, "tiny"))
    assert e - h >= LETTER
    assert h - t >= LETTER
    ticks_at = [float(tick.get("x1")) for tick in of_class(svg, "tick")]
    assert ticks_at == pytest.approx([LEFT + (RIGHT - LEFT) * value / 80 for value in (60.2, 60, 59.9)], abs=0.06)


@given(st.lists(st.floats(0, 100), max_size=6))
def test_places_are_moved_apart_in_their_order(places):
    moved = apart(places, 7)
    order = sorted(range(len(places)), key=places.__getitem__)
    assert all(moved[b] - moved[a] >= 7 - 1e-9 for a, b in pairwise(order))
    assert sum(moved) == pytest.approx(sum(places))
    assert apart(moved, 6.9) == pytest.approx(moved)


def test_words_for_those_who_do_not_see_it():
    root = parsed(bar_chart(grid(lower_is_better=True), 7))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "t7 d7"
    words = [child.text for child in root if child.tag in ("title", "desc")]
    assert words[0] == "Matching: mean"
    assert words[1] == "Bars, lower is better: sift 25.00, ours 42.00 ± 2.83, other <&> net 50.00."


def test_a_curve_goes_through_its_points_on_a_logarithmic_axis():
    svg = curve_chart(Curves("ROC", {OURS: ([1e-4, 1e-2, 1.0], [0.5, 0.75, 1.0])}), 0, {OURS: 0})
    (curve,) = of_class(svg, "curve")
    points = [float(word) for word in curve.get("d")[1:].replace("L", " ").split()]
    assert points == pytest.approx([46, 270, 228, 140, 410, 10], abs=0.06)


def test_a_long_curve_is_thinned_to_what_can_be_seen():
    rates = [k / 100_000 for k in range(100_001)]
    svg = curve_chart(Curves("ROC", {OURS: (rates, rates)}), 0, {OURS: 0})
    assert len(svg) < 30_000
    assert of_class(svg, "curve")[0].get("d").endswith("L410 10")


def test_one_dot_for_each_known_value_the_hardest_sequence_last():
    block = PerSequence("m", ("a", "b", "c"), {OURS: (10.0, 90.0, None), SIFT: (20.0, 80.0, None)})
    svg = sequence_chart(block, 0, {OURS: 1, SIFT: 0})
    said = [child[0].text for child in of_class(svg, "dot")]
    assert said == ["b, sift: 80.0", "b, ours: 90.0", "a, sift: 20.0", "a, ours: 10.0"]
    names = [element.text for element in parsed(svg).iter("text") if element.get("text-anchor") == "end"]
    assert names == ["b", "a", "c"]


def test_series_differ_by_more_than_colour():
    """Colours start again after eight: then the dash and the filling differ, and shapes differ before."""
    looks = {re.sub(r"M.*", "", path([(0, 0), (1, 1)], k)) for k in range(32)}
    assert len(looks) == 32
    assert len({dot(0, 0, k, "") for k in range(16)}) == 16
    assert "&lt;" in legend([OTHER], "dot", {OTHER: 0})


@given(st.floats(1e-6, 1e7))
def test_ticks_are_round_and_reach_the_top(top):
    found = ticks(top)
    assert found[0] == 0
    assert found[-1] >= top * (1 - 1e-8)
    assert found[-2] < top
    assert 2 <= len(found) <= 7


def test_long_words_keep_both_ends():
    assert shortened("short", 10) == "short"
    assert shortened("a-very-long-name-s=2", 11) == "a-ver…e-s=2"


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
