"""Patch sets in the manner of PhotoTourism: FPR@95 of pair lists, retrieval, and train/test combinations over seeds."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.config import DescriptorConfig
from matchkernel.counting import count_parameters
from matchkernel.data.packed import PatchSet
from matchkernel.describe import describe
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance, comparable_rows, row_distances
from matchkernel.evaluation.metrics import fpr_at_recall
from matchkernel.evaluation.results import FORMAT
from matchkernel.evaluation.retrieval import retrieval_range
from matchkernel.weights import load, read_card

QUERIES = 10_000
PIECE = 2**14  # pairs at a time
NOTICEABLE = 5e-5  # what ties may change without a word: not seen in percent with two decimals


def score_patch_set(
    name: str,
    descriptors: np.ndarray | Tensor,
    patches: PatchSet,
    *,
    test_set: str | None = None,
    distance: Distance = "l2",
    queries: int | None = QUERIES,
    seed: int = 0,
) -> dict[str, Any]:
    """Score the descriptors of a patch set.

    Args:
        name: of the descriptor.
        descriptors: (K, D) of the set's patches in their order; bits packed in uint8 for hamming.
        patches: the set.
        test_set: its name in the result (default: its folder's).
        distance: "l2", "l1" or "hamming".
        queries: at most so many in retrieval (None: every patch that has a match).
        seed: of the draw of the queries.

    Returns:
        A result to be written as JSON: `pairs`/<list>/`fpr95` with ties counted as errors, and `fpr95_lowest`, what
        another order of tied pairs could give; `retrieval_map` and `retrieval_map_highest` in the same way (None where
        no label has two patches); `warnings`, where ties make a difference.
    """
    if len(descriptors) != len(patches):
        raise ArgumentError(
            f"{name}: {len(descriptors)} descriptors for the {len(patches)} patches of {patches.folder}"
        )
    rows = comparable_rows(descriptors, distance, f"{name} on {patches.folder}")
    result: dict[str, Any] = {
        "format": FORMAT,
        "kind": "phototourism",
        "descriptor": name,
        "dimension": rows.shape[1],
        "test_set": test_set or patches.folder.name,
        "patches": len(patches),
        "distance": distance,
        "pairs": {
            key: _score_pairs(rows, pairs, distance, f"{patches.folder}, {key}") for key, pairs in patches.pairs.items()
        },
    }
    has_matches = len(np.unique(patches.labels)) < len(patches)
    lowest, highest = (None, None)
    if has_matches:
        lowest, highest = retrieval_range(descriptors, patches.labels, queries=queries, seed=seed, distance=distance)
    result.update(retrieval_map=lowest, retrieval_map_highest=highest, retrieval_queries=queries, retrieval_seed=seed)
    result["warnings"] = _warnings(result)
    return result


def evaluate_combinations(
    weights: Mapping[str, Sequence[str | Path]],
    tests: Mapping[str, PatchSet],
    *,
    device: str | torch.device | None = None,
    queries: int | None = QUERIES,
    progress: Callable[[str], object] | None = None,
) -> list[dict[str, Any]]:
    """Score trained weights on every test set they were not trained on.

    Args:
        weights: training set -> weight files, one a seed (the seed is the card's, else the place in the list).
        tests: test set -> patches; three sets in both places give the six combinations of the paper's Table 2.
        device: where to describe, as of `describe`.
        queries: in retrieval, see score_patch_set.
        progress: called with a line before each combination.

    Returns:
        A result of score_patch_set for each weight file and test set, with `configuration`, `parameters`, `train_set`,
        `seed` and `weights` added.
    """
    results = []
    for train_set, files in weights.items():
        for place, file in enumerate(files):
            model = load(file)
            card = read_card(file)
            configuration = configuration_name(model.config)
            for test_set, patches in tests.items():
                if test_set == train_set:
                    continue
                if progress is not None:
                    progress(f"{configuration}, {train_set} -> {test_set}, {Path(file).name}")
                rows = describe(np.asarray(patches.patches), model, resize=True, device=device)
                result = score_patch_set(configuration, rows, patches, test_set=test_set, queries=queries)
                result.update(
                    configuration=configuration,
                    parameters=count_parameters(model),
                    train_set=train_set,
                    seed=int(card["seed"]) if card.get("seed", "").isdecimal() else place,
                    weights=Path(file).name,
                )
                results.append(result)
    return results


def configuration_name(config: DescriptorConfig) -> str:
    """What tables call a configuration: the variant, s where it has one, and the patch size."""
    return "-".join([config.variant, *([] if config.s is None else [f"s{config.s}"]), f"n{config.patch_size}"])


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


def _score_pairs(rows: Tensor, pairs: np.ndarray, distance: Distance, where: str) -> dict[str, Any]:
    values = rows.cpu().numpy()
    distances = np.empty(len(pairs), np.float32)
    kind: Distance = "l2" if distance == "hamming" else distance  # bits are unpacked here, the order is the same
    for start in range(0, len(pairs), PIECE):
        part = pairs[start : start + PIECE]
        distances[start : start + PIECE] = row_distances(values[part[:, 0]], values[part[:, 1]], kind)
    is_match = pairs[:, 2] == 1
    try:
        worst, best = (fpr_at_recall(distances, is_match, ties=ties) for ties in ("pessimistic", "optimistic"))
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None
    matches = int(is_match.sum())
    return {"matches": matches, "non_matches": len(pairs) - matches, "fpr95": worst, "fpr95_lowest": best}


def _warnings(result: Mapping[str, Any]) -> list[str]:
    words = [
        f"{key}: tied distances leave FPR@95 between {100 * part['fpr95_lowest']:.2f} and {100 * part['fpr95']:.2f} %; "
        "the higher one is the result"
        for key, part in result["pairs"].items()
        if part["fpr95"] - part["fpr95_lowest"] > NOTICEABLE
    ]
    low, high = result["retrieval_map"], result["retrieval_map_highest"]
    if low is not None and high - low > NOTICEABLE:
        words.append(
            f"retrieval: tied distances leave the mAP between {100 * low:.2f} and {100 * high:.2f} %; "
            "the lower one is the result"
        )
    return words
