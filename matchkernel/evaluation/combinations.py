"""Methods by test sets: every method on each set it was not trained on, and the paper's Table 2 from such results."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance
from matchkernel.evaluation.methods import Method, Planned, chosen_distance, model_methods
from matchkernel.evaluation.patch_sets import QUERIES, data_digest, score_patch_set
from matchkernel.storage.progress import Progress, Say


def evaluate_patch_sets(
    methods: Sequence[Method],
    tests: Mapping[str, PatchSet],
    *,
    distance: Distance | None = None,
    queries: int | None = QUERIES,
    seed: int = 0,
    before: Planned | None = None,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Score methods on every test set they were not trained on.

    Args:
        methods: see choose_methods.
        tests: test set -> patches.
        distance: "l1" or "l2" (default: each method's own).
        queries: at most so many in retrieval, see score_patch_set.
        seed: of the draw of the queries.
        before: called with what each result will say of itself, before the work; may refuse it by an error.
        say: called with what is being described.
        progress: called with the number of its patches done and their total.

    Returns:
        A result of score_patch_set for each method and test set, with the method's facts added.
    """
    distances = [chosen_distance(method.name, method.distance, distance) for method in methods]
    jobs = [
        (method, chosen, name, patches)
        for method, chosen in zip(methods, distances, strict=True)
        for name, patches in tests.items()
        if not method.was_trained_on(name, patches)
    ]
    if not jobs:
        raise ArgumentError(
            f"nothing to test on: {methods[0].name if methods else 'no method'} was trained on each set"
        )
    if before is not None:
        draw = {"retrieval_queries": queries, "retrieval_seed": seed}
        before([draw | _planned(*job) for job in jobs])
    results = []
    for method, chosen, name, patches in jobs:
        say(f"{method.name} on {name}")
        rows = method.describe(patches.patches, progress)
        result = score_patch_set(method.name, rows, patches, test_set=name, distance=chosen, queries=queries, seed=seed)
        results.append({**result, **method.facts, "warnings": [*result["warnings"], *method.warnings]})
    return results


def _planned(method: Method, distance: Distance, name: str, patches: PatchSet) -> dict[str, Any]:
    """What a result says of itself, known before the work."""
    data = {"kind": "phototourism", "test_set": name, "data_sha256": data_digest(patches)}
    return {**data, "descriptor": method.name, "distance": distance, **method.facts}


def evaluate_combinations(
    weights: Mapping[str, Sequence[str | Path]],
    tests: Mapping[str, PatchSet],
    *,
    device: str | None = None,
    queries: int | None = QUERIES,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Score trained weights on every test set they were not trained on.

    Args:
        weights: training set -> weight files, one a seed (see model_methods).
        tests: test set -> patches; three sets in both places give the six combinations of the paper's Table 2.
        device: where to describe, as of `describe`.
        queries: in retrieval, see score_patch_set.
        say, progress: see evaluate_patch_sets.
    """
    methods = model_methods([(name, file) for name, files in weights.items() for file in files], device=device)
    return evaluate_patch_sets(methods, tests, queries=queries, say=say, progress=progress)


def combination_table(results: Iterable[Mapping[str, Any]], pairs: str = "m50") -> dict[str, Any]:
    """The paper's Table 2 from results: FPR@95 of each train/test combination, mean and deviation over seeds.

    Args:
        results: of evaluate_combinations, in any order.
        pairs: the pair list by name, or by the part of its name before the first underscore; of a set that has only
            one list, that one.

    Returns:
        configuration -> `parameters`, `columns` ("liberty -> notredame" -> `values` by seed, `mean`, `std`) and `mean`
        over the columns, per seed and then over seeds. `std` is of a sample (n - 1), None for one seed.
    """
    table: dict[str, Any] = {}
    for result in results:
        missing = [key for key in ("configuration", "train_set", "test_set", "seed", "parameters") if key not in result]
        if missing:
            raise ArgumentError(f"a result of {result.get('descriptor')!r} says no {missing[0]}: not of a combination")
        row = table.setdefault(result["configuration"], {"parameters": result["parameters"], "columns": {}})
        column = row["columns"].setdefault(f"{result['train_set']} -> {result['test_set']}", {})
        if str(result["seed"]) in column:
            where = f"{result['configuration']}, {result['train_set']} -> {result['test_set']}"
            raise ArgumentError(f"{where}: two results of seed {result['seed']}")
        column[str(result["seed"])] = result["pairs"][_pair_list(result, pairs)]["fpr95"]
    for row in table.values():
        by_seed = list(row["columns"].values())
        shared = sorted(set.intersection(*(set(values) for values in by_seed)))
        row["columns"] = {name: _summary(values) for name, values in sorted(row["columns"].items())}
        row["mean"] = _summary({seed: statistics.fmean(values[seed] for values in by_seed) for seed in shared})
    return table


def _pair_list(result: Mapping[str, Any], wanted: str) -> str:
    names = list(result["pairs"])
    fitting = [name for name in names if wanted in (name, name.split("_")[0])] or (names if len(names) == 1 else [])
    if len(fitting) != 1:
        raise ArgumentError(
            f"{result['test_set']} has the pair lists {', '.join(names) or 'none'}, wanted one {wanted!r}"
        )
    return fitting[0]


def _summary(values: Mapping[str, float]) -> dict[str, Any]:
    numbers = list(values.values())
    return {
        "values": dict(sorted(values.items())),
        "mean": statistics.fmean(numbers) if numbers else None,
        "std": statistics.stdev(numbers) if len(numbers) > 1 else None,
    }
