import json
import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.training.config import TrainingConfig
from matchkernel.training.optimizer import Optimizer, rate_at

HARDNET = {"steps": 48_830, "pairs": 1024, "epoch_pairs": 5_000_000}


def rates(schedule, steps, **settings):
    """The rates of all updates, and the one after the last."""
    optimizer = Optimizer(schedule=schedule, **settings)
    return [rate_at(u, optimizer, steps, 512) for u in range(1, steps + 2)]


def test_hardnets_rates_are_the_golden_ones_exactly(golden):
    recorded = json.loads((golden / "hardnet_loss.json").read_text())["learning_rate"]
    config = TrainingConfig.from_dict({"preset": "hardnet", "data": {"train": "x"}})
    sampling = config.sampling
    assert sampling.steps == recorded["updates"]
    assert recorded["rate_at_update"]
    for update, rate in recorded["rate_at_update"].items():
        assert rate_at(int(update), config.optimizer, sampling.steps, sampling.pairs, sampling.epoch_pairs) == rate
    after = rate_at(48_831, config.optimizer, sampling.steps, sampling.pairs, sampling.epoch_pairs)
    assert after == recorded["rate_left_after_last_update"]


def test_hardnets_rate_is_that_of_its_script():
    """Set after each update u to 10 (1 - (u - 1) 1024 / 50 million), so that updates 1 and 2 share the first."""
    optimizer = Optimizer(schedule="hardnet")
    for u in (1, 2, 3, 4, 4883, 4884, 48_830):
        exact = 10 * (1 - Fraction(max(u - 2, 0) * 1024, 50_000_000))
        assert rate_at(u, optimizer, **HARDNET) == pytest.approx(float(exact), abs=1e-14)
    assert rate_at(48_830, optimizer, **HARDNET) > 0


def test_hardnets_rate_counts_pairs_where_there_are_no_epochs():
    assert [rate_at(u, Optimizer(schedule="hardnet"), 4, 512) for u in (1, 2, 3, 4)] == [10, 10, 7.5, 5]


def test_the_papers_rate_falls_by_equal_steps_to_exactly_0_after_the_last():
    sequence = rates("linear", 39_060)
    assert sequence[0] == 10
    assert sequence[-2] == pytest.approx(10 / 39_060, rel=1e-11)
    assert sequence[-1] == 0
    for u in (1, 2, 100, 19_531, 39_060):
        assert sequence[u - 1] == pytest.approx(10 * (1 - (u - 1) / 39_060), rel=1e-11)
    assert sequence[19_530] == 5  # half-way
    assert all(later < earlier for earlier, later in pairwise(sequence))


@given(st.integers(1, 10**7), st.floats(1e-6, 1e6), st.sampled_from(["linear", "cosine"]), st.integers(0, 50))
def test_0_after_the_last_whatever_the_length_and_never_before(steps, rate, schedule, warmup):
    optimizer = Optimizer(rate=rate, schedule=schedule, warmup=warmup)
    assert rate_at(steps + 1, optimizer, steps, 512) == 0
    assert 0 < rate_at(steps, optimizer, steps, 512) <= rate
    assert 0 < rate_at(1, optimizer, steps, 512) <= rate


def test_cosine_is_half_a_wave():
    sequence = rates("cosine", 8, rate=2.0)
    assert sequence == pytest.approx([1 + math.cos(math.pi * k / 8) for k in range(9)], abs=1e-15)
    assert sequence[0] == 2
    assert sequence[4] == pytest.approx(1, abs=1e-15)
    assert sequence[8] == 0


def test_constant_is_constant():
    assert rates("constant", 5, rate=0.25) == [0.25] * 6


def test_warm_up_rises_linearly_from_rate_over_warmup_then_leaves_the_schedule_alone():
    assert rates("constant", 6, rate=1.0, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1, 1]
    cold, warm = rates("linear", 10), rates("linear", 10, warmup=4)
    assert warm[:4] == pytest.approx([rate * share for rate, share in zip(cold, (0.25, 0.5, 0.75, 1), strict=False)])
    assert warm[4:] == cold[4:]
    assert rates("linear", 10, warmup=1) == cold
