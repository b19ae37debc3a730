"""The rules of verdicts by themselves: what differs beyond chance."""

from pathlib import Path

import numpy as np
import pytest
import results
import verdicts
from prose import counted_as
from verdicts import FAILS, HOLDS, LEVEL, MIXED, PART, THESE_SEQUENCES

from matchkernel.evaluation.spread import Spread


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [((1, 1, 1), HOLDS), ((1, 0, 0), PART), ((1, -1, 0), MIXED), ((0, 0, 0), LEVEL), ((0, -1, -1), FAILS)],
)
def test_a_verdict_counts_what_is_beyond_the_spread(differences, verdict):
    theirs = Spread((10.0, 10.2))
    ours = [Spread((10.0 + 0.5 * d, 10.2 + 0.5 * d)) for d in differences]
    assert verdicts.judged([(a, theirs) for a in ours]) == verdict


def test_single_trainings_need_more_than_the_largest_spread():
    largest = verdicts.largest_spread()
    assert 0.1 < largest < 1
    assert not verdicts.better(Spread((10.0 + 0.9 * largest,)), Spread((10.0,)))
    assert verdicts.better(Spread((10.0 + 1.1 * largest,)), Spread((10.0,)))


@pytest.mark.parametrize(("seeds", "one_of"), [(2, 3), (3, 5)])
def test_equal_models_may_differ_beyond_the_spread(seeds, one_of):
    """What the page says of its own rule."""
    draws = np.random.default_rng(0).normal(size=(10_000, 2, seeds)).tolist()
    pairs = [(Spread(tuple(a)), Spread(tuple(b))) for a, b in draws]
    differ = [verdicts.better(a, b) or verdicts.better(b, a) for a, b in pairs]
    assert np.mean(differ) == pytest.approx(1 / one_of, abs=0.02)
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"1 in {one_of} with {seeds}" in page


def test_what_other_sequences_could_change_is_said():
    def scored(*sequences):
        mean = sum(sequences) / len(sequences)
        return results.TaskScore((mean, mean), sequences=sequences)

    fc = scored(*[50.0] * 9)
    sure, unsure = scored(*[51.0] * 9), scored(*[49.8] * 8, 60.6)
    assert sure.mean == pytest.approx(unsure.mean)
    assert verdicts.gaps([sure, unsure], [fc, fc]) == "+1.00* (0.00) / +1.00 (0.00)"
    assert verdicts.gaps([fc], [sure]) == "−1.00* (0.00)"
    assert not verdicts.keeps_sign(results.TaskScore((60.0,), sequences=fc.sequences), sure)  # of another sign
    assert verdicts.on_sequences(HOLDS, [(sure, fc)]) == HOLDS
    assert verdicts.on_sequences(HOLDS, [(sure, fc), (unsure, fc)]) == HOLDS + THESE_SEQUENCES
    assert verdicts.on_sequences(PART, [(unsure, fc)]) == PART


def test_limits_are_counted_of_what_holds_only():
    assert counted_as(HOLDS) == "*holds*"
    assert counted_as(HOLDS + THESE_SEQUENCES) == "hold with a limit"
    assert counted_as(PART + " by the share found first") == "*holds in part*"
    assert counted_as(FAILS + verdicts.ONE_TRAINING) == "*does not hold*"
