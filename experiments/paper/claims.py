"""The paper's claims, one by one: what was measured here, and a stated rule that decides whether each holds."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from data import SEQUENCES
from gather import TASKS, Everything, Spread, by_name, kind_score, parameters, score, signed
from image_pairs import PAIRS, means_of_sequences, pair_targets
from jobs import AGAIN, DESCRIPTORS, PACKAGE
from kernel_claims import map_claims, memory_claims, projected_sum_claims, tolerance_claims
from tables import transfer_mean, transfer_runs
from verdicts import ASKED_ABOVE_FC, Claim, above, better, gains, on_test, say, say_test, verdict

from matchkernel.model.table_1 import CountedRow, table_1


def parameter_claims(everything: Everything) -> list[Claim]:
    """Counted from live models."""
    rows = _table_1()
    free = [row for row in rows if row.variant != "fc"]
    same, independent = sum(row.agrees for row in rows), sum(row.independent_of_size for row in free)
    counts = f"{same} of {len(rows)} rows equal; `dual` s=2 {_total('dual', 2):,}, `fc` {_total('fc'):,}"
    return [
        Claim("1", "Parameter counts of Table 1", "every row equal", verdict([same == len(rows)]), counts),
        Claim(
            "1",
            "The count does not depend on the patch size",
            "as many at 2N, all spatial encodings",
            verdict([independent == len(free)]),
            f"{independent} of {len(free)} equal; `fc` grows to {_total('fc', N=64):,} at N = 64",
        ),
    ]


@cache
def _table_1() -> list[CountedRow]:
    return table_1()


def _total(variant: str, s: int | None = None, N: int = 32) -> int:
    configuration = {"variant": variant, "patch_size": N} | ({} if s is None else {"s": s})
    return parameters({"configuration": configuration}) or 0


def transfer_claims(everything: Everything) -> list[Claim]:
    """Table 2's protocol, mean of the six combinations."""
    two_in_paper, one_in_paper = "1.36 ± .01 against 1.43 ± .02", "1.53 ± .03"
    return _transfer_claims(everything, "ordinary", f"; paper, on its sets: {two_in_paper}", f"; paper: {one_in_paper}")


def hard_transfer_targets(everything: Everything) -> list[Claim]:
    """The same on hard pairs, which the paper does not have: ordinary ones leave hardly an error to count."""
    return [replace(claim, number="–") for claim in _transfer_claims(everything, "hard", "", "")]


def _transfer_claims(everything: Everything, pairs: str, two_in_paper: str, one_in_paper: str) -> list[Claim]:
    runs = transfer_runs(everything)
    fc, one, two = (transfer_mean(runs.get(name, []), ("fpr95", pairs)) for name in ("fc", "dual-s1", "dual-s2"))
    known = {"fc": fc, "dual-s1": one, "dual-s2": two}
    figures = "; ".join(f"`{name}` {v.shown(3 if pairs == 'ordinary' else 2)}" for name, v in known.items() if v)
    level = one.mean <= 1.1 * fc.mean if one is not None and fc is not None else None
    return [
        Claim(
            "2",
            f"`dual` s=2 has a lower FPR@95 than `fc` ({pairs} pairs{two_in_paper})",
            "lower beyond the spread",
            verdict([better(two, fc, low=True)]),
            figures,
        ),
        Claim(
            "2",
            f"`dual` s=1 about equals `fc` with fewer parameters ({pairs} pairs{one_in_paper})",
            "at most a tenth above `fc`, fewer parameters",
            verdict([level, _total("dual", 1) < _total("fc")]),
            figures,
        ),
    ]


def sum_and_concat_claims(everything: Everything) -> list[Claim]:
    """HPatches tasks without position (`sum`), and with all positions kept apart (`concat`)."""
    three = {name: on_test(everything, name) for name in DESCRIPTORS}
    others = [name for name in DESCRIPTORS if name != "sum"]
    behind = [better(three[name][k], three["sum"][k]) for name in others for k in range(3)]
    far = above(three["fc"][1], three["sum"][1], 0.05)
    beaten = [_any(better(three[n][k], three["concat"][k]) for n in DESCRIPTORS if n != "concat") for k in range(3)]
    shares = [_recovered(*(three[name][k] for name in ("cartesian-s1", "sum", "fc"))) for k in range(3)]
    recovered = " / ".join("–" if share is None else f"{100 * share:.0f} %" for share in shares)
    return [
        Claim(
            "3",
            "`sum` is far behind",
            "below all others beyond the spread in all tasks, and more than 5 mAP below `fc` in matching",
            verdict([*behind, far]),
            say_test(everything, "sum", "fc"),
        ),
        Claim(
            "3",
            "`concat` is no top performer in spite of 8192 numbers",
            "in each task another is better beyond the spread",
            verdict(beaten),
            say_test(everything, "concat", "fc", "dual-s2"),
        ),
        Claim(
            "3",
            "`cartesian` s=1 recovers most of what `sum` loses",
            "more than half of `fc` − `sum` in each task",
            verdict(None if share is None else share > 0.5 for share in shares),
            f"{recovered} recovered" if any(s is not None for s in shares) else "",
        ),
    ]


def _any(answers: Iterable[bool | None]) -> bool | None:
    """True as soon as one is; False only when all are known."""
    known = list(answers)
    return True if True in known else None if None in known else False


def _recovered(a: Spread | None, low: Spread | None, high: Spread | None) -> float | None:
    if a is None or low is None or high is None or None in (a.std, low.std, high.std):
        return None
    return (a.mean - low.mean) / (high.mean - low.mean) if high.mean > low.mean else 0.0


def dual_claims(everything: Everything) -> list[Claim]:
    """HPatches tasks: `dual` against the others, and 64 against 32 pixels."""
    three = {name: on_test(everything, name) for name in DESCRIPTORS}
    dual = three["dual-s2"]
    others = [name for name in DESCRIPTORS if name != "dual-s2"]
    beaten = {name: [better(dual[k], three[name][k]) for k in range(3)] for name in others}
    unbeaten = [f"`{name}`" for name, answers in beaten.items() if False in answers]
    large = {name: on_test(everything, name, 64) for name in ("fc", "cartesian-s1", "dual-s2")}
    grown = [better(large[name][k], three[name][k]) for name in large for k in range(3)]
    figures = "; ".join(f"`{n}` {gains(large[n], three[n])}" for n in large if any(large[n]))
    ahead = [f"`{name}`" for name in others if all(better(three[name][k], dual[k]) for k in range(3))]
    rival = f"; does not beat in all three: {', '.join(unbeaten)}" if unbeaten else ""
    rival += f"; better than it in all three: {', '.join(ahead)}" if ahead else ""
    beyond = "better beyond the spread in all three tasks"
    return [
        Claim(
            "3",
            "`dual` s=2 beats `fc`",
            beyond,
            verdict(beaten["fc"]),
            say_test(everything, "dual-s2", "fc") + _sequences_won(everything, "dual-s2", "fc"),
        ),
        Claim(
            "3",
            "`dual` s=2 is the best on all three tasks",
            f"{beyond}, against each other descriptor at N = 32",
            verdict(answer for answers in beaten.values() for answer in answers),
            say_test(everything, "dual-s2") + rival,
        ),
        Claim(
            "3",
            "64×64 patches are better than 32×32",
            f"{beyond}, each of `fc`, `cartesian`, `dual`",
            verdict(grown),
            figures,
        ),
    ]


def _sequences_won(everything: Everything, new: str, old: str) -> str:
    """In how many test sequences one descriptor is better in matching beyond the spread, and in how many worse."""
    groups = by_name(everything.get("descriptors", {}))
    names = [name for kind in SEQUENCES["test"].values() for name in kind]
    runs = [groups.get(f"{name}-n32", []) for name in (new, old)]
    pairs = [[kind_score(found, "test", (name,)) for found in runs] for name in names]
    won, lost = (sum(better(*ends) is True for ends in order) for order in (pairs, [pair[::-1] for pair in pairs]))
    known = sum(better(a, b) is not None for a, b in pairs)
    return f"; matching better beyond the spread in {won} of {known} sequences, worse in {lost}" if known else ""


def baseline_targets(everything: Everything) -> list[Claim]:
    """More than 2 mAP above the baselines that the paper's field knows."""
    ours, baselines = on_test(everything, "dual-s2"), everything.get("baselines", {})
    theirs = {
        f"`{name}`": [score([baselines[name]] if name in baselines else [], "test", task) for task in TASKS]
        for name in ("rootsift", "mkd", "tfeat")
    }
    answers = [above(a, b, 0.02) for three in theirs.values() for a, b in zip(ours, three, strict=True)]
    text, rule = "`dual` s=2 is above RootSIFT, MKD and TFeat", "by more than 2 mAP in all three tasks"
    return [Claim("–", text, rule, verdict(answers), say(**{"`dual-s2`": ours}, **theirs))]


def shipped_targets(everything: Everything) -> list[Claim]:
    """The default weights against `fc` by the paper's recipe on the same data, in all and by kind of change."""
    ship, jobs = everything.get("ship", {}), [PACKAGE[name] for name in ("dual", "fc")]
    runs = [[ship[job]] if job in ship else [] for job in jobs]
    a, b = (score(found, "test", "matching") for found in runs)
    figures = f"`dual` {a}; `fc` {b}; {signed(a.mean - b.mean)}" if a is not None and b is not None else ""
    again = [ship.get(f"{job}{AGAIN}") for job in jobs]
    c, d = (score([run] if run else [], "test", "matching") for run in again)
    figures += f"; trained again {signed(c.mean - d.mean)}" if c is not None and d is not None else ""
    answers, words = [], []
    for kind, names in SEQUENCES["test"].items():
        new, old = (kind_score(found, "test", names) for found in runs)
        allowed = _spread_of_kind(everything, names) if len(names) == 1 else 0.0
        answers.append(above(new, old, -allowed) if allowed is not None else None)
        words += [f"{kind} {signed(new.mean - old.mean)}"] if new is not None and old is not None else []
    return [
        Claim(
            "–",
            "Shipped `dual` is above shipped `fc` in matching",
            f"by {100 * ASKED_ABOVE_FC:g} mAP or more, mean of sequences",
            verdict([a.mean - b.mean >= ASKED_ABOVE_FC if a is not None and b is not None else None]),
            figures,
        ),
        Claim(
            "–",
            "Shipped `dual` is above shipped `fc` in each kind of change",
            "matching; where a kind is one sequence, it may be below within the spread of `dual-s2` there over seeds",
            verdict(answers),
            ", ".join(words),
        ),
    ]


def _spread_of_kind(everything: Everything, names: tuple[str, ...]) -> float | None:
    found = kind_score(by_name(everything.get("descriptors", {})).get("dual-s2-n32", []), "test", names)
    return found.std if found is not None else None


def image_targets(everything: Everything) -> list[Claim]:
    """The default weights on pairs of photos."""
    return pair_targets(means_of_sequences(PAIRS))


PAPER: tuple[Callable[[Everything], list[Claim]], ...] = (
    parameter_claims,
    transfer_claims,
    dual_claims,
    sum_and_concat_claims,
    tolerance_claims,
    map_claims,
    memory_claims,
    projected_sum_claims,
)
OWN: tuple[Callable[[Everything], list[Claim]], ...] = (
    hard_transfer_targets,
    baseline_targets,
    shipped_targets,
    image_targets,
)


def claims_of(everything: Everything, makers: Iterable[Callable[[Everything], list[Claim]]] = PAPER) -> list[Claim]:
    """All claims, in the order of the specification."""
    return [claim for maker in makers for claim in maker(everything)]
