"""Verdicts on made results: each rule can say yes and no."""

import json

import claims
import hpatches_claims
import numpy as np
import pytest
import results
import verdicts
from claims import BY_FIRST
from data import SEQUENCES
from jobs import DUAL_GRID, FIGURE_3, best_of_grid
from verdicts import FAILS, HOLDS, LEVEL, MIXED, NOTHING, ONE_TRAINING, PART

BASE = {"verification": 0.8, "matching": 0.4, "retrieval": 0.5}


@pytest.fixture
def stored(monkeypatch, tmp_path):
    """A way to store results in place of real ones."""
    for path in results.RESULTS.glob("*.json"):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.read.cache_clear()
    verdicts.largest_spread.cache_clear()

    def store(experiment, models, seeds=3):
        made = {
            f"{name}-seed{seed}": {"scores": scores(seed), "settings": {"seed": seed}, "configuration": {}}
            for name, scores in models.items()
            for seed in range(seeds)
        }
        (tmp_path / f"{experiment}.json").unlink()
        (tmp_path / f"{experiment}.json").write_text(json.dumps(made))
        results.read.cache_clear()

    yield store
    results.read.cache_clear()
    verdicts.largest_spread.cache_clear()


def tasks(gain, seed=0):
    return {task: value + gain + 0.0005 * seed for task, value in BASE.items()}


def on_test(gain):
    def scores(seed):
        by_sequence = {name: tasks(gain, seed) for names in SEQUENCES["test"].values() for name in names}
        return {"test": {**tasks(gain, seed), "by_sequence": by_sequence}, "validation": tasks(gain, seed)}

    return scores


def row(parts, words):
    (found,) = [claim for claim in parts if words in claim.text]
    return found


def figure_3(stored, gains, usual=0.0, seeds=3):
    stored("full", {f"{name}-n32": on_test(gains.get(name, usual)) for name in FIGURE_3}, seeds)


def test_the_best_is_better_than_all_others(stored):
    figure_3(stored, {"dual-s2": 0.02})
    best, beats = hpatches_claims.best_of_all(), hpatches_claims.beats_fc()
    assert (best.verdict, beats.verdict) == (HOLDS, HOLDS)
    assert (
        beats.figures
        == "+2.00* (0.05) / +2.00* (0.05) / +2.00* (0.05); matching better in 9 of 9 sequences, worse in 0"
    )
    assert hpatches_claims.sum_is_behind("", "").verdict == FAILS  # level with `fc`
    figure_3(stored, {"dual-s2": 0.02}, seeds=1)
    assert hpatches_claims.beats_fc().verdict == HOLDS + ONE_TRAINING
    assert hpatches_claims.beats_fc().figures.endswith("; 1 seed")


def test_the_best_is_not_the_best_when_another_is(stored):
    figure_3(stored, {"dual-s2": 0.02, "polar-s2": 0.03})
    best = hpatches_claims.best_of_all()
    assert best.verdict == FAILS
    assert "; beaten in all three by `polar-s2`" in best.figures
    figure_3(stored, {"dual-s2": 0.02, "polar-s2": 0.02})
    best = hpatches_claims.best_of_all()
    assert best.verdict == FAILS
    assert best.figures.endswith(", in none by `polar-s2`")


def test_simple_ones_with_batch_norm_are_judged_apart(stored):
    gains = {"sum": -0.2, "sum-batch": 0.0, "sum-m": 0.0}
    figure_3(stored, gains, 0.1)
    found = [*hpatches_claims.on_hpatches(), *hpatches_claims.projected_sums()]
    assert row(found, "`sum` is far").verdict == HOLDS
    assert row(found, "`sum` with BatchNorm is far").verdict == HOLDS
    assert row(found, "gives nothing, both with B").verdict == HOLDS
    figure_3(stored, {**gains, "sum-m": 0.01}, 0.1)
    assert row(hpatches_claims.projected_sums(), "gives nothing, both with B").verdict == FAILS
    models = {f"{name}-n32": on_test(gains.get(name, 0.1)) for name in FIGURE_3}

    def better_in_retrieval(seed):
        found = models["sum-batch-n32"](seed)
        return {**found, "test": {**found["test"], "retrieval": found["test"]["retrieval"] + 0.01}}

    stored("full", {**models, "sum-m-n32": better_in_retrieval})
    assert row(hpatches_claims.projected_sums(), "gives nothing, both with B").verdict == FAILS  # one task is enough


@pytest.mark.parametrize(("gain", "verdict"), [(0.02, FAILS), (0.0, HOLDS)])
def test_m_without_batch_norm_is_compared_with_sum_without_it(stored, gain, verdict):
    figure_3(stored, {"sum": -0.2, "sum-m-plain": -0.2 + gain, "sum-m": 0.0, "sum-batch": 0.0})
    found = row(hpatches_claims.projected_sums(), "gives nothing, both without")
    assert found.verdict == verdict
    assert found.figures.startswith(f"{results.signed(100 * gain)}{'*' * bool(gain)} (0.05) / ")


@pytest.mark.parametrize(
    ("lost", "kept", "verdict"),
    [(0.05, 0.0, HOLDS), (0.05, 0.04, FAILS), (0.005, 0.0, HOLDS), (0.0, 0.0, NOTHING), (-0.05, 0.02, NOTHING)],
)
def test_what_is_recovered_is_a_share_of_what_is_lost(stored, lost, kept, verdict):
    figure_3(stored, {"sum-batch": -lost, "cartesian-s1": -kept})
    assert hpatches_claims.recovered("-batch", " with BatchNorm").verdict == verdict


@pytest.mark.parametrize(("gain", "verdict"), [(0.02, HOLDS), (0.0, HOLDS), (-0.02, FAILS)])
def test_fewer_parameters_are_enough_where_no_task_gets_worse(stored, gain, verdict):
    stored("full", {"cartesian-s1-n32": on_test(gain), "fc-n32": on_test(0.0)})
    found = hpatches_claims.lighter()
    assert found.verdict == verdict
    assert "433,568 against 1,334,560" in found.figures


def test_fewer_parameters_are_not_enough_where_one_task_gets_worse(stored):
    def worse_in_retrieval(seed):
        found = on_test(0.0)(seed)
        return {**found, "test": {**found["test"], "retrieval": found["test"]["retrieval"] - 0.02}}

    stored("full", {"cartesian-s1-n32": worse_in_retrieval, "fc-n32": on_test(0.0)})
    assert hpatches_claims.lighter().verdict == FAILS


def test_s_is_compared_at_its_best_settings(stored):
    gains = {"dual-s1-kappa1-double": 0.03, "dual-s2-kappa16-preset": 0.05}
    stored("dual_grid", {name: on_test(gains.get(name, 0.0)) for name in DUAL_GRID}, seeds=1)
    for gain, verdict in ((0.02, HOLDS), (0.01, LEVEL), (0.0, FAILS)):
        stored("confirmed", {"dual-s1-kappa1-double": on_test(0.01), "dual-s2-kappa16-preset": on_test(gain)})
        found = hpatches_claims.best_s()
        assert found.verdict == verdict
        assert "`dual-s2-kappa16-preset` against `dual-s1-kappa1-double`" in found.figures


def test_what_is_confirmed_follows_from_the_grid(stored):
    gains = {"dual-s1-kappa8-double": 0.03, "dual-s2-kappa1-preset": 0.05}
    stored("dual_grid", {name: on_test(gains.get(name, 0.0)) for name in DUAL_GRID}, seeds=1)
    assert list(best_of_grid(results.read("dual_grid")).values()) == list(gains)
    stored("dual_grid", {name: on_test(0.0) for name in list(DUAL_GRID)[1:]}, seeds=1)
    assert best_of_grid(results.read("dual_grid")) == {}


def test_sizes_are_judged_on_large_regions(stored):
    for gain, verdict in ((0.01, HOLDS), (0.0, LEVEL), (-0.01, FAILS)):
        sizes = {f"{n}-n{k}": on_test(gain if k == 64 else 0.0) for n in hpatches_claims.AT_64 for k in (32, 64)}
        stored("full_large", sizes)
        assert row(hpatches_claims.sizes(), "64 px or more").verdict == verdict


def test_large_regions_are_judged_by_what_was_trained_on_them(stored):
    sizes = {f"{n}-n{k}": on_test(0.01 if k == 64 else 0.0) for n in hpatches_claims.AT_64 for k in (32, 64)}
    stored("full_large", {name: scores for name, scores in sizes.items() if not name.startswith("cartesian")}, 1)
    found = row(hpatches_claims.sizes(), "64 px or more")
    assert found.verdict == f"{HOLDS}, `fc` and `dual-s2`{ONE_TRAINING}"
    assert found.figures.startswith("`fc` (1×) ")
    assert "cartesian" not in found.figures
    stored("full_large", sizes)
    assert "`cartesian-s1` +1.00" in row(hpatches_claims.sizes(), "64 px or more").figures


def test_a_size_trained_once_limits_the_verdict_whichever_it_is(stored):
    names = " and ".join(f"`{name}`" for name in hpatches_claims.AT_64)
    for small, large in ((1, 2), (2, 1)):
        stored("full", {f"{n}-n32": on_test(0.0) for n in hpatches_claims.AT_64}, small)
        stored("full_64", {f"{n}-n64": on_test(0.01) for n in hpatches_claims.AT_64}, large)
        found = row(hpatches_claims.sizes(), "all regions")
        assert found.verdict == f"{HOLDS}, {names}{ONE_TRAINING}"
        assert found.figures.count(" (1×) ") == len(hpatches_claims.AT_64)


def separable(rate, patches=420, amounts=9):
    """Patches of six sequences, each found first at this rate; AUC is the same for all rates."""

    def scores(seed):
        random = np.random.default_rng(seed)
        first = (random.random((amounts, patches)) < rate).sum(0)
        missing = np.random.default_rng(seed + 100).integers(900, 1000, patches)
        part = {
            "amounts": [*range(amounts + 1)],
            "first_by_patch": " ".join(map(str, first)),
            "auc_missing_by_patch": " ".join(map(str, missing)),
        }
        return {"separability": dict.fromkeys(("shift", "rotation", "scale"), part), "pole": {"pole": part}}

    return scores


def store_tolerance(stored, polar, seeds=3, **others):
    """Those of `cartesian` find 0.7 of the patches first, the others what is given."""
    full = {f"{name}-n32": 0.7 for name in FIGURE_3 if not name.startswith("polar")} | others
    rates = {**full, "cartesian-s2-plain": 0.7, "polar-fields-s2-plain": 0.5, **polar}
    stored("full", {name: separable(rate) for name, rate in rates.items() if name.endswith("n32")}, seeds)
    for experiment in ("turned", "full_turned"):
        stored(experiment, {name: separable(rate) for name, rate in rates.items() if name.endswith("plain")}, seeds)


def polar(two, one, plain):
    return {"polar-s2-n32": two, "polar-s1-n32": one, "polar-s2-plain": plain}


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((0.8, 0.8, 0.8), [HOLDS + BY_FIRST, HOLDS + BY_FIRST, FAILS + BY_FIRST]),
        ((0.7, 0.7, 0.7), [LEVEL, LEVEL, LEVEL]),
        ((0.8, 0.7, 0.7), [PART + BY_FIRST, PART + BY_FIRST, FAILS + BY_FIRST]),
        ((0.8, 0.7, 0.6), [MIXED + BY_FIRST, MIXED + BY_FIRST, MIXED + BY_FIRST]),
    ],
)
def test_tolerance_is_decided_by_patches_found_first(stored, rates, expected):
    for seeds in (3, 1):
        store_tolerance(stored, polar(*rates), seeds)
        found = list(claims.tolerance())
        once = f", s=2 and s=1 and unaugmented{ONE_TRAINING}"
        wanted = [v + once if seeds == 1 and v != LEVEL else v for v in expected]
        assert [row(found, f"tolerates {word}").verdict for word in ("rotation", "scale", "shift")] == wanted
        assert found[0].figures.count(f" ({seeds}×) ") == 3 * (seeds == 1)
        assert "; AUC: level" in found[0].figures


def test_auc_can_share_a_verdict():
    assert claims.with_auc(HOLDS, HOLDS) == HOLDS
    assert claims.with_auc(HOLDS, FAILS) == HOLDS + BY_FIRST


def test_turns_about_the_pole_and_a_pole_in_the_centre_are_shown_and_decide_nothing(stored):
    store_tolerance(stored, polar(0.8, 0.8, 0.8))
    rotation, scale = (row(claims.tolerance(), f"tolerates {word}") for word in ("rotation", "scale"))
    assert rotation.verdict == HOLDS + BY_FIRST
    own = rotation.figures.partition("grid's pole, 1.5 px aside: ")[2].partition("; ")[0]
    assert own.count("[") == 3
    assert "pole centred −" in rotation.figures
    assert "pole" not in scale.figures


@pytest.mark.parametrize(
    ("rate", "verdict"), [(0.75, HOLDS), (0.7, HOLDS), (0.65, PART + BY_FIRST), (0.5, FAILS + BY_FIRST)]
)
def test_the_combined_encoding_is_compared_with_the_better_one(stored, rate, verdict):
    store_tolerance(stored, {"polar-s2-n32": 0.6, "combined-s2-n32": rate})
    found = claims.both_tolerances()
    assert found.verdict == verdict
    assert [f"to `{name}`" in found.figures for name in ("cartesian", "polar")] == [True, True]


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [((0.6, 0.6), HOLDS), ((0.6, 0.7), PART), ((0.8, 0.6), MIXED), ((0.7, 0.7), LEVEL), ((0.8, 0.7), FAILS)],
)
def test_concat_is_compared_with_and_without_batch_norm(stored, rates, verdict):
    store_tolerance(stored, dict(zip(("concat-n32", "concat-batch-n32"), rates, strict=True)))
    found = claims.more_tolerant("cartesian-s2", ("concat", "concat-batch"), "`concat`", ("shift",))
    assert found.verdict == (verdict if verdict == LEVEL else verdict + BY_FIRST)


def test_fc_is_compared_under_every_change(stored):
    store_tolerance(stored, {"fc-n32": 0.5})
    found = claims.more_tolerant("dual-s2", ("fc",), "`fc`", tuple(results.CHANGES))
    assert found.verdict == HOLDS + BY_FIRST
    assert all(change in found.figures for change in results.CHANGES)


def test_sequences_are_drawn_before_their_patches():
    """What holds in one sequence of six only is not beyond chance."""

    def runs(first):
        part = {"amounts": [0, 1], "first_by_patch": " ".join(map(str, first))}
        return [{"scores": {"separability": {"shift": part}}}]

    patches = np.zeros((6, 70), int)
    in_one, in_all = patches.copy(), patches.copy()
    in_one[2], in_all[:, ::6] = 1, 1
    gaps = [results.paired(runs(ours.ravel()), runs(patches.ravel()), "shift", "first") for ours in (in_one, in_all)]
    assert [gap.mean for gap in gaps] == pytest.approx([100 / 6, 100 * 12 / 70])
    assert gaps[0].low == 0
    assert gaps[1].low > 10


def test_a_verdict_for_one_training_says_so():
    def verdict(found, trainings):
        claim = verdicts.with_trainings(verdicts.Claim(3, "text", found, "figures", "rule"), trainings)
        return claim.verdict, claim.figures

    assert verdict(HOLDS, 1) == (HOLDS + ONE_TRAINING, "figures; 1 seed")
    assert verdict(PART, 1)[0] == PART + ONE_TRAINING
    assert verdict(FAILS, 1)[0] == FAILS + ONE_TRAINING
    assert verdict(LEVEL, 1)[0] == LEVEL
    assert verdict(HOLDS, 2) == (HOLDS, "figures; 2 seeds")
    assert verdict(HOLDS, 3) == (HOLDS, "figures")


def geometric(low):
    def scores(seed):
        draws = (low + 0.001 * np.random.default_rng(0).standard_normal(results.GEOMETRY_DRAWS)).tolist()
        part = {"fpr95": low + 0.0001 * seed, "draws": draws}
        return {"geometry": {group: {"ordinary": part, "hard": part} for group in "BC"}}

    return scores


def ordinary():
    return [claim for claim in claims.transferred_by_geometry() if "ordinary" in claim.text]


def test_fpr_by_geometry_is_decided_by_samples(stored):
    for two, one, expected in (
        (0.010, 0.0151, [HOLDS, HOLDS]),
        (0.015, 0.0164, [LEVEL, HOLDS]),
        (0.018, 0.0200, [FAILS, FAILS]),
    ):
        models = {"fc": geometric(0.015), "dual-s2": geometric(two), "dual-s1": geometric(one)}
        stored("full", {f"{name}-n32": scores for name, scores in models.items()})
        stored("full_transfer", {f"{name}-on-{group}": scores for name, scores in models.items() for group in "BC"})
        assert [claim.verdict for claim in ordinary()] == expected


def test_fpr_by_geometry_is_the_mean_over_groups_that_a_model_was_trained_on(stored):
    names = {"fc": 0.015, "dual-s2": 0.010, "dual-s1": 0.015}
    stored("full", {f"{name}-n32": geometric(low) for name, low in names.items()}, seeds=2)
    on_c = {"fc": 0.030, "dual-s2": 0.020, "dual-s1": 0.030}
    trained = {f"{name}-on-B": geometric(low) for name, low in names.items()}
    stored("full_transfer", trained | {f"{name}-on-C": geometric(low) for name, low in on_c.items()}, seeds=1)
    two, one = ordinary()
    assert {two.verdict, one.verdict} == {"holds, on B and on C for one training"}
    assert two.figures.startswith("1.33 against 2.00, −0.67")  # (1.005 + 1 + 2) / 3, (1.505 + 1.5 + 3) / 3
    assert [part.split(" [")[0] for part in two.figures.split("; ")[1:]] == [
        "A (2×) −0.50",
        "B (1×) −0.50",
        "C (1×) −1.00",
    ]
    assert one.figures.startswith("2.00 against 2.00, +0.00")


def test_both_sizes_are_compared_with_fc_of_their_own_and_smaller_ones(stored):
    def at_64(gain, fc_at_32=0.0):
        stored("full_64", {"dual-s2-n64": on_test(gain), "fc-n64": on_test(0.0)}, seeds=1)
        figure_3(stored, {"fc": fc_at_32, "dual-s2": 0.02})
        return row(hpatches_claims.abstract(), "64×64 is ahead of all")

    stored("confirmed", {"dual": on_test(0.0)})
    assert at_64(0.02).verdict == HOLDS + ONE_TRAINING
    assert at_64(0.02, fc_at_32=0.02).verdict == PART + ONE_TRAINING
    assert at_64(-0.02).verdict == FAILS  # below a baseline
    assert row(hpatches_claims.abstract(), "32×32 is ahead of all").verdict == HOLDS


def test_large_regions_have_rows_of_their_own(stored):
    models = {"dual-s2-n32": -0.02, "fc-n32": 0.0, "dual-s2-n64": 0.02, "fc-n64": 0.0}
    stored("full_large", {name: on_test(gain) for name, gain in models.items()})
    found = list(hpatches_claims.abstract())
    assert row(found, "32×32 is ahead of `fc`, regions of 64 px").verdict == FAILS
    large = row(found, "64×64 is ahead of `fc`, regions of 64 px")
    assert large.verdict == HOLDS
    assert large.figures.count("+2.00* (") == 6


def test_every_statement_has_a_test_that_says_what_it_cannot_see():
    assert {test.number for test in claims.tests()} == {claim.number for claim in claims.paper_claims()}
    assert all(test.what and test.unseen for test in claims.tests())


def test_intervals_hold_the_difference():
    rng = np.random.default_rng(1)
    sides = []
    for rate in (0.6, 0.5):
        runs = []
        for _ in range(3):
            first = (rng.random((10, 504)) < rate).sum(0)
            part = {"amounts": [*range(11)], "first_by_patch": " ".join(map(str, first))}
            runs.append({"scores": {"separability": {"shift": part}}})
        sides.append(runs)
    gap = results.paired(*sides, "shift", "first")
    assert gap.low < gap.mean < gap.high
    assert gap.mean == pytest.approx(10, abs=2)
    back = results.paired(*sides[::-1], "shift", "first")
    assert back.mean == pytest.approx(-gap.mean)
    assert back.high < 0
    assert gap.text().count("+") == 3
