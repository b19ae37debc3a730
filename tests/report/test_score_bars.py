"""Results as bars of a chart."""

import pytest
from made_results import hpatches, pairs, written

from matchkernel.errors import ArgumentError
from matchkernel.report.score_bars import score_bars

TASKS = ["verification", "matching", "retrieval"]


def test_bars_of_results(tmp_path):
    ours = [hpatches("fc", seed=seed, configuration="fc-n32", parameters=9) for seed in range(3)]
    other = hpatches("sift", hand_crafted=True, parameters=0)
    bars, tasks = score_bars([written(tmp_path / "results", *ours, other, pairs("orb", "A", 0.1))])
    assert tasks == TASKS
    found = {bar.name: bar for bar in bars}
    assert (found["fc"].is_ours, found["fc"].is_reference, found["fc"].parameters) == (True, True, 9)
    assert (found["sift"].is_ours, found["sift"].is_hand_crafted) == (False, True)
    assert not found["fc"].is_tie_safe
    assert [len(score.values) for score in found["fc"].scores] == [3, 3, 3]
    expected = 100 * other["matching"]["mean"]["all"]["ap_trapezoid"]
    assert found["sift"].scores[1].mean == pytest.approx(expected)


def test_a_value_raised_by_ties_counts_with_its_safe_value(tmp_path):
    raised = hpatches("ties")
    raised["retrieval"]["python"]["mean"]["20000"] |= {"ap_trapezoid": 1.0, "ap_trapezoid_tie_safe": 0.25}
    (bar,), _ = score_bars([written(tmp_path / "results", raised)])
    assert bar.scores[2].mean == 25
    assert bar.is_tie_safe


def test_results_that_share_no_chart(tmp_path):
    with pytest.raises(ArgumentError, match="no results of `matchkernel evaluate hpatches`"):
        score_bars([written(tmp_path / "pairs", pairs("sift", "A", 0.1))])
    mixed = written(tmp_path / "mixed", hpatches("a", set="one"), hpatches("b", set="two"))
    with pytest.raises(ArgumentError, match="give those of one set, split, distance and choice of tasks"):
        score_bars([mixed])
