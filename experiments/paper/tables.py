"""Tables of the HPatches experiment and of Table 2's protocol, as Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

from data import SEQUENCES
from gather import (
    NOISES,
    TASKS,
    Everything,
    Result,
    Results,
    Spread,
    by_name,
    kind_score,
    look,
    mean_of,
    parameters,
    percent,
    same_data,
    sampling,
    score,
    seed_of,
    spread_of,
    tasks_of,
    without_seed,
)

NOT_RUN = "Not run yet."
GROUPS = "ABC"
TIES = 5e-5  # a score that ties raise by less is not worth a word
COMPARED = ("fc", "dual-s1", "dual-s2")  # in Table 2's protocol
METRICS = {  # heading -> keys, whether less is better, decimals
    "FPR@95, ordinary pairs": (("fpr95", "ordinary"), True, 3),
    "FPR@95, hard pairs": (("fpr95", "hard"), True, 2),
    "retrieval mAP": (("map",), False, 2),
}


def cell(value: Any) -> str:
    """What a table shows of a value."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(
    head: Sequence[str], rows: Iterable[Sequence[Any]], low: Sequence[str] = (), beside: Sequence[str] = ()
) -> str:
    """A table; of two and more spreads in a column the best is bold.

    Args:
        head: names of the columns.
        rows: cells, a `Spread` where a score stands.
        low: columns in which less is better.
        beside: first cells of rows that do not compete for the best.
    """
    rows = [list(row) for row in rows]
    competing = [row for row in rows if row[0] not in beside]
    best = [_best([row[k] for row in competing], name in low) for k, name in enumerate(head)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        shown = [
            f"**{value}**" if value is not None and value is best[k] else cell(value) for k, value in enumerate(row)
        ]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _best(column: list[Any], low: bool) -> Spread | None:
    spreads = [value for value in column if isinstance(value, Spread)]
    if len(spreads) < 2:
        return None
    return (min if low else max)(spreads, key=lambda spread: spread.mean)


def length(results: Iterable[Result]) -> str:
    """`10,000 steps of 512 pairs`; several where they differ."""
    pairs: dict[int, set[int]] = {}
    for found in filter(None, map(sampling, results)):
        pairs.setdefault(found[0], set()).add(found[1])
    return "; ".join(
        f"{steps:,} steps of {' or '.join(f'{p:,}' for p in sorted(sizes))} pairs"
        for steps, sizes in sorted(pairs.items())
    )


def origin(results: Iterable[Result]) -> str:
    """One line under a table: length, seeds, seconds, machine, and the files it is from."""
    results = list(results)
    trained = [r for r in results if sampling(r)]
    seeds = sorted({seed for r in trained if (seed := seed_of(r)) is not None})
    seconds = sorted(r["seconds"] for r in trained if "seconds" in r)
    scoring = sorted(r["seconds"] for r in results if "seconds" in r and not sampling(r))
    files = dict.fromkeys(r["file"] for r in results)
    machines = sorted({f"{r['hardware']}, torch {r['torch']}" for r in results if "hardware" in r})
    parts = [
        length(trained) if trained else "Nothing trained here",
        f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else "".join(f"seed {s}" for s in seeds),
        f"{_range(seconds)} s of training a model" if seconds else "",
        f"{_range(scoring)} s of scoring a baseline" if scoring else "",
        *machines,
        "from " + ", ".join(f"`{file}.json`" for file in files),
    ]
    return f"*{'; '.join(filter(None, parts))}.*"


def _range(sorted_values: list[float]) -> str:
    """`60 to 75`, or `60`."""
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (sorted_values[0], sorted_values[-1])))


def caution(results: Iterable[Result], *parts: str, rows: str = "of this table") -> str:
    """A warning where rows were scored on different data, else nothing."""
    words = f"**Caution: not all rows {rows} were scored on the same data; those that were not cannot be compared.**"
    return "" if same_data(results, *parts) else words


def hpatches_rows(everything: Everything, part: str = "test") -> dict[str, list[Result]]:
    """Descriptors, then baselines, that have scores on the test sequences (or the strips)."""
    found = by_name(everything.get("descriptors", {}))
    found |= {name: [result] for name, result in everything.get("baselines", {}).items()}
    kept = {name: [r for r in results if look(r, part)] for name, results in found.items()}
    return {name: results for name, results in kept.items() if results}


def name_and_size(name: str, results: list[Result]) -> tuple[str, int | None]:
    """`dual-s2-n32` -> `dual-s2` and 32; a baseline has no size."""
    size = results[0].get("configuration", {}).get("patch_size")
    return f"`{name.removesuffix(f'-n{size}')}`", size


def hpatches_table(everything: Everything) -> str:
    """The three tasks on the test sequences."""
    rows = hpatches_rows(everything)
    head = ["descriptor", "N", "parameters", "D", "seeds", "verification", "matching", "retrieval"]
    body = [
        [
            *name_and_size(name, results),
            parameters(results[0]),
            results[0].get("configuration", {}).get("D"),
            len(results) if sampling(results[0]) else None,
            *tasks_of(results, "test"),
        ]
        for name, results in rows.items()
    ]
    return markdown(head, body)


def ties(everything: Everything) -> str:
    """One line on the baselines whose scores ties raise, nothing where there are none."""
    words = []
    for name, (result, *_) in hpatches_rows(everything).items():
        safe = look(result, "test", "tie_safe")
        if safe and any(look(result, "test", task) - safe[task] > TIES for task in TASKS):
            words.append(f"`{name}` {' / '.join(percent(safe[task]) for task in TASKS)}")
    return f"Ties raise some scores; counted against the method they are: {'; '.join(words)}." if words else ""


def kinds_table(everything: Everything) -> str:
    """Matching by kind of change and by noise."""
    kinds = SEQUENCES["test"]
    head = ["descriptor", "N", *(f"{kind} ({len(names)})" for kind, names in kinds.items()), *NOISES.values()]
    body = [
        [
            *name_and_size(name, results),
            *(kind_score(results, "test", names) for names in kinds.values()),
            *(score(results, "test", "by_noise", "matching", noise) for noise in NOISES),
        ]
        for name, results in hpatches_rows(everything).items()
    ]
    return markdown(head, body)


def strips_table(everything: Everything) -> str:
    """Matching on the strips of a real HPatches sequence."""
    head = ["descriptor", "N", *NOISES.values(), "all"]
    body = [
        [*name_and_size(name, results), *(score(results, "strips", noise) for noise in (*NOISES, "all"))]
        for name, results in hpatches_rows(everything, "strips").items()
    ]
    return markdown(head, body)


def transfer_runs(everything: Everything) -> dict[str, list[Result]]:
    """Descriptor -> models of Table 2's protocol, whichever file they are in."""
    runs: dict[str, list[Result]] = {name: [] for name in COMPARED}
    for results in (everything.get("descriptors", {}), everything.get("transfer", {})):
        for name, result in _with_groups(results).items():
            if name in runs:
                runs[name] += result
    return {name: found for name, found in runs.items() if found}


def _with_groups(results: Results) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for name, result in results.items():
        if look(result, "groups"):
            short = without_seed(name).split("-on-")[0].removesuffix("-n32")
            found.setdefault(short, []).append(result)
    return found


def transfer_score(runs: list[Result], train: str, test: str, keys: tuple[str, ...]) -> Spread | None:
    """A score of the models trained on one group and tested on another."""
    return score([r for r in runs if r["train"] == train], "groups", test, *keys)


def transfer_mean(runs: list[Result], keys: tuple[str, ...]) -> Spread | None:
    """The mean of the six combinations, of every seed that has all six."""
    seeds = sorted({seed for r in runs if (seed := seed_of(r)) is not None})
    means = []
    for seed in seeds:
        of_seed = {r["train"]: r for r in runs if seed_of(r) == seed}
        pairs = [(a, b) for a in GROUPS for b in GROUPS if a != b]
        means.append(mean_of(look(of_seed[a], "groups", b, *keys) if a in of_seed else None for a, b in pairs))
    return spread_of(means)


def transfer_table(everything: Everything, metric: str) -> str:
    """One score, a row for each combination, a column for each descriptor."""
    keys, low, decimals = METRICS[metric]
    runs = transfer_runs(everything)
    rows: list[list[Any]] = [
        [f"{a} → {b}", *(transfer_score(found, a, b, keys) for found in runs.values())]
        for a in GROUPS
        for b in GROUPS
        if a != b
    ]
    rows.append(["mean of six", *(transfer_mean(found, keys) for found in runs.values())])
    lines = [_bold_in_row(row, low, decimals) for row in rows]
    return markdown(["train → test", *(f"`{name}`" for name in runs)], lines)


def _bold_in_row(row: list[Any], low: bool, decimals: int) -> list[str]:
    best = _best(row, low)
    shown = [value.shown(decimals) if isinstance(value, Spread) else cell(value) for value in row]
    return [f"**{words}**" if best is not None and row[k] is best else words for k, words in enumerate(shown)]
