"""The rules of the verdicts: what each can say, that intervals cover, and that their stored error rates are theirs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "paper"))
import verdict_rates  # noqa: E402
import verdicts  # noqa: E402
from verdict_rates import SCENARIOS, clear_scenarios, right_verdicts  # noqa: E402
from verdicts import CLAIMS, EQUAL, FAILS, HOLDS, OPEN, PART, Comparison, intervals, verdict  # noqa: E402

RATES = json.loads((verdicts.RESULTS / "verdict_rates.json").read_text())["rates"]
WORDS = 1600


def found(*rows):
    """Intervals, those of the family a tenth wider at both ends."""
    return np.array([((low + high) / 2, low, high, low - 0.1, high + 0.1) for low, high in rows])


@pytest.mark.parametrize(
    ("rule", "rows", "said"),
    [
        ("better", [(0.05, 1), (0.2, 2)], HOLDS),
        ("better", [(-1, -0.2), (0.2, 2)], FAILS),
        ("better", [(-1, -0.05), (-1, 2)], OPEN),  # below 0 by itself, not together with the other
        ("better", [(-0.4, 0.4), (-0.1, 0.3)], EQUAL),
        ("better", [(-0.4, 0.4), (0.2, 0.7)], PART),
        ("better", [(-0.4, 0.4), (-0.2, 0.7)], OPEN),
        ("not worse", [(0.1, 3), (0.6, 1)], HOLDS),  # the margin is in the comparison
        ("not worse", [(-2, -0.2), (0.1, 1)], FAILS),
        ("not worse", [(-2, 0.1), (0.1, 1)], OPEN),
        ("no gain", [(-3, 0.4), (0.1, 0.2)], HOLDS),
        ("no gain", [(0.7, 3), (-1, 0)], FAILS),
        ("no gain", [(0.1, 0.6), (-1, 0)], OPEN),
    ],
)
def test_what_each_rule_says(rule, rows, said):
    assert verdict(found(*rows), rule, 0.5) == said


@pytest.mark.parametrize("name", CLAIMS)
def test_every_row_can_get_every_verdict_and_seldom_errs(name):
    """Of stored simulations: the right verdict of each kind where data are precise, a wrong one seldom as they are."""
    claim, rates = CLAIMS[name], RATES[name]
    for scenario in clear_scenarios(claim):
        right = set(right_verdicts(claim, scenario)) - {OPEN}
        assert sum(rates[f"{scenario}, precise"].get(said, 0) for said in right) >= 0.8, scenario
    for scenario in SCENARIOS:
        said = {
            verdict: share
            for verdict, share in rates[scenario].items()
            if verdict not in right_verdicts(claim, scenario)
        }
        wrong = said if claim.rule != "better" or SCENARIOS[scenario][0] <= 0 else {FAILS: said.get(FAILS, 0)}
        assert sum(wrong.values()) - wrong.get(OPEN, 0) <= 0.15, (scenario, said)


def test_intervals_cover_units_and_trainings():
    """95 % of those of made scores hold the truth, and those of a family hold it together; few trainings, few units."""
    random, alone, together = np.random.default_rng(0), 0, 0
    pairs = [Comparison((("a/x", 1.0), (f"b/{k}", -1.0)), "matching") for k in range(6)]
    times = 300
    for time in range(times):
        units = random.normal(0, 5, 9)
        values = {}
        for source in ("a/x", *(f"b/{k}" for k in range(6))):
            own, trainings = random.normal(0, 1, 9), random.normal(0, 0.3, (3, 1))
            values[source, "matching"] = [units + own + trainings + random.normal(0, 0.1, (3, 9))]
        rows = intervals(pairs, values, draws=300, seed=time)
        alone += ((rows[:, 1] <= 0) & (rows[:, 2] >= 0)).sum() / len(pairs)
        together += bool(((rows[:, 3] <= 0) & (rows[:, 4] >= 0)).all())
    assert 0.92 <= alone / times <= 0.99
    assert 0.92 <= together / times <= 1.0


def test_the_stored_rates_are_those_of_the_script():
    again = verdict_rates.rates("m after sum, batch", 40)
    for scenario in verdict_rates.SCENARIOS:
        for said in (HOLDS, FAILS):
            share = RATES["m after sum, batch"][scenario].get(said, 0)
            assert abs(again[scenario].get(said, 0) - share) <= 4 * (0.25 / 40) ** 0.5, scenario


def test_rows_of_the_fair_table_are_judged_when_all_their_variants_have_chosen_settings(monkeypatch, capsys):
    monkeypatch.setattr(verdicts, "chosen", lambda results: {"fc": "full/fc-n32", "dual-s2": "fair/dual-s2-kappa1"})
    monkeypatch.setattr(sys, "argv", ["verdicts.py", "--fair"])
    verdicts.decided.cache_clear()
    verdicts.main()
    said = capsys.readouterr().out
    assert "`dual` s=2 beats `fc`: holds; of 3" in said
    assert "with chosen settings: no settings chosen yet for dual-s1\n" in said
    assert "`concat` is no top performer: no settings chosen yet for concat\n" in said
    assert "64 px" not in said  # not of the fair table
    verdicts.decided.cache_clear()


def test_the_page_is_short():
    words = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split()
    assert sum(any(letter.isalnum() for letter in word) for word in words) <= WORDS  # not the bars of tables
