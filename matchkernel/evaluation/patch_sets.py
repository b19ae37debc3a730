"""Score patch sets as with PhotoTourism: FPR@95 and ROC curves of their pair lists, and retrieval."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import PatchSet, group_by_label
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import comparable_rows, count_closer, row_distances
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.metrics import fpr95, precision_area, thinned_roc
from matchkernel.evaluation.results import FORMAT, NOTICEABLE, CheckPlans, blank_warning
from matchkernel.photos.nearest import Distance, Distances
from matchkernel.storage.work import Progress, Say

QUERIES = 10_000
PIECE = 2**14  # pairs at a time
TILE = 2**24  # distances at a time in retrieval: 128 MiB


def evaluate_patch_sets(
    methods: Sequence[Method],
    tests: Mapping[str, PatchSet],
    *,
    distance: Distance | None = None,
    queries: int | None = QUERIES,
    seed: int = 0,
    check_plans: CheckPlans = lambda plans: None,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Score methods on every test set they were not trained on.

    Args:
        tests: test set -> patches.
        queries: maximum number of retrieval queries, see score_patch_set.

    Returns:
        A result of score_patch_set for each method and test set, with the method's facts added.
    """
    jobs = [
        (method, method.chosen_distance(distance), name, patches)
        for method in methods
        for name, patches in tests.items()
        if not method.was_trained_on(name, patches)
    ]
    if not jobs:
        raise ArgumentError(
            f"nothing to test on: {methods[0].name if methods else 'no method'} was trained on every set given"
        )
    draw = {"kind": "phototourism", "retrieval_queries": queries, "retrieval_seed": seed}
    check_plans(
        [
            draw
            | {"test_set": name, "data_sha256": data_digest(patches), "descriptor": method.name, "distance": chosen}
            | method.facts
            for method, chosen, name, patches in jobs
        ]
    )
    results = []
    for method, chosen, name, patches in jobs:
        say(f"{method.name} on {name}")
        rows = method.describe(patches.patches, progress)
        result = score_patch_set(method.name, rows, patches, test_set=name, distance=chosen, queries=queries, seed=seed)
        warnings = [*result["warnings"], *method.warnings, *method.doubts(name, patches)]
        results.append({**result, **method.facts, "warnings": warnings})
    return results


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
        queries: maximum number of retrieval queries (None: every patch that has a match).
        seed: for drawing the queries.

    Returns:
        A result to be written as JSON: `pairs`/<list>/`fpr95` with ties counted as errors, `fpr95_lowest`, the lowest
        value that another order of tied pairs could give, and `roc` (see thinned_roc); `retrieval_map` and
        `retrieval_map_highest` likewise (None where no label has two patches); `blank`, the number of rows of zeros;
        `warnings`, where ties make a difference or patches are blank; `data_sha256`, which distinguishes sets of the
        same name.

    Example:
        >>> import numpy as np
        >>> from matchkernel.data.patch_set import open_patch_set
        >>> from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
        >>> from matchkernel.evaluation.patch_sets import score_patch_set
        >>> _ = build_synthetic("set", SyntheticSettings(points=5, patches=2, size=16))
        >>> patches = open_patch_set("set")
        >>> rows = np.asarray(patches.patches, np.float32).reshape(10, -1)  # raw pixels as descriptors
        >>> result = score_patch_set("pixels", rows, patches)
        >>> result["dimension"], result["patches"], 0 <= result["retrieval_map"] <= 1
        (256, 10, True)
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
        "data_sha256": data_digest(patches),
        "patches": len(patches),
        "blank": int((~rows.any(1)).sum()),
        "distance": distance,
        "pairs": {
            key: _score_pairs(rows, pairs, distance, f"{patches.folder}, {key}") for key, pairs in patches.pairs.items()
        },
    }
    lowest, highest = None, None
    if len(np.unique(patches.labels)) < len(patches):
        lowest, highest = retrieval_map(descriptors, patches.labels, queries=queries, seed=seed, distance=distance)
    result.update(retrieval_map=lowest, retrieval_map_highest=highest, retrieval_queries=queries, retrieval_seed=seed)
    result["warnings"] = _warnings(result)
    return result


def retrieval_map(
    descriptors: np.ndarray | Tensor,
    labels: np.ndarray | Tensor,
    *,
    queries: int | None = None,
    seed: int = 0,
    distance: Distance = "l2",
) -> tuple[float, float]:
    """Mean average precision over queries, each against all other patches of the set.

    A query is a patch that shares its label with another one; its matches are all other patches of its label. Distances
    that rounding in float64 cannot distinguish count as tied. Needs about 3 x 8 x TILE bytes in addition to the
    descriptors in float64.

    Args:
        descriptors: (K, D) numbers, or bits packed in uint8 for hamming; computed on their own device.
        labels: (K,) whole numbers.
        queries: maximum number of queries, drawn without repetition (default: all).

    Returns:
        The lowest value that an order of tied distances can give, in which ties count as errors, and the highest.
    """
    totals, count = [0.0, 0.0], 0
    for part, *both in _precisions(descriptors, labels, queries, seed, distance):
        totals = [total + float(values.sum()) for total, values in zip(totals, both, strict=True)]
        count += len(part)
    return totals[0] / count, totals[1] / count


def average_precisions(
    descriptors: np.ndarray | Tensor, labels: np.ndarray | Tensor, *, queries: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(Q,) the patches that are queries, and (Q,) their average precision, ties as errors; see retrieval_map."""
    parts = list(_precisions(descriptors, labels, queries, seed, "l2"))
    return np.concatenate([part for part, _, _ in parts]), np.concatenate([lowest for _, lowest, _ in parts])


def _precisions(
    descriptors: np.ndarray | Tensor,
    labels: np.ndarray | Tensor,
    queries: int | None,
    seed: int,
    distance: Distance,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Some queries at a time: their numbers, and their average precision with ties as errors and as successes."""
    rows = comparable_rows(descriptors, distance).double()
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (len(rows),) or values.dtype.kind not in "ui":
        raise ArgumentError(f"expected {len(rows)} labels, whole numbers, got {values.dtype} of shape {values.shape}")
    groups = group_by_label(values)
    ranks = groups.ranks()
    starts, sizes = groups.starts[ranks], groups.sizes[ranks]  # of each patch's label
    chosen = np.flatnonzero(sizes > 1)
    if not len(chosen):
        raise ArgumentError(f"none of the {len(rows)} patches shares its label with another: nothing can be retrieved")
    if queries is not None and queries < 1:
        raise ArgumentError(f"queries must be 1 or more, got {queries}")
    if queries is not None and queries < len(chosen):
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, queries, replace=False))
    distances = Distances(rows, rows, distance)
    step = max(1, TILE // max(1, len(rows)))
    for start in range(0, len(chosen), step):
        part = chosen[start : start + step]
        closer, as_close = _count_part(distances, part, (groups.order, starts[part], sizes[part]))
        lowest, highest = (precision_area(before, sizes[part] - 1, "step") for before in (as_close, closer))
        yield part, lowest, highest


def _score_pairs(rows: Tensor, pairs: np.ndarray, distance: Distance, where: str) -> dict[str, Any]:
    values = rows.cpu().numpy()
    if len(pairs) and not 0 <= pairs[:, :2].min() <= pairs[:, :2].max() < len(values):
        raise ArgumentError(f"{where}: a pair refers to a patch that the set does not have")
    distances = np.empty(len(pairs), np.float32)
    kind: Distance = "l2" if distance == "hamming" else distance  # bits are unpacked here, the order is the same
    for start in range(0, len(pairs), PIECE):
        part = pairs[start : start + PIECE]
        distances[start : start + PIECE] = row_distances(values[part[:, 0]], values[part[:, 1]], kind)
    is_match = pairs[:, 2] == 1
    try:
        worst, best = (fpr95(distances, is_match, ties) for ties in ("pessimistic", "optimistic"))
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None
    matches = int(is_match.sum())
    return {
        "matches": matches,
        "non_matches": len(pairs) - matches,
        "fpr95": worst,
        "fpr95_lowest": best,
        "roc": thinned_roc(distances, is_match),
    }


def data_digest(patches: PatchSet) -> str:
    """sha256 of what is scored: labels, pair lists, and the sha256 of the patches in the manifest."""
    known = patches.manifest.get("sha256")
    digest = hashlib.sha256(str(known.get("patches.npy") if isinstance(known, Mapping) else "").encode())
    for name, array in [("labels", patches.labels), *sorted(patches.pairs.items())]:
        digest.update(f"{name} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.hexdigest()


def _warnings(result: Mapping[str, Any]) -> list[str]:
    ties = [(f"{key}: FPR@95", part["fpr95"], part["fpr95_lowest"]) for key, part in result["pairs"].items()]
    if result["retrieval_map"] is not None:
        ties.append(("retrieval: mAP", result["retrieval_map"], result["retrieval_map_highest"]))
    warnings = [
        f"{what} is {100 * worst:.3f} %; another order of tied distances could give {100 * best:.3f} %"
        for what, worst, best in ties
        if abs(worst - best) > NOTICEABLE
    ]
    return warnings + ([blank_warning(result["blank"], result["patches"])] if result["blank"] else [])


def _count_part(
    distances: Distances, part: np.ndarray, groups: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Non-matches before each match of the queries `part`: (Q, T) with matches first among ties, (Q, T) last.

    T is the largest number of matches of a query; -1 where a query has fewer.
    """
    device = distances.a.device
    order, starts, sizes = groups
    slots = np.arange(sizes.max())
    is_member = slots < sizes[:, None]
    query, slot = np.nonzero(is_member)
    member = order[starts[query] + slot]
    values = distances.tile(torch.from_numpy(part).to(device))
    query_on, member_on = torch.from_numpy(query).to(device), torch.from_numpy(member).to(device)
    values[query_on, member_on] = torch.inf
    thresholds = torch.full(is_member.shape, torch.inf, dtype=torch.float64, device=device)
    own = torch.from_numpy(part).to(device)
    exact = distances.exact(own[query_on], member_on)
    exact[own[query_on] == member_on] = torch.inf  # the query itself is moved to the end and cut off
    thresholds[query_on, torch.from_numpy(slot).to(device)] = exact
    thresholds = thresholds.sort(1).values[:, :-1]
    less, at_most = count_closer(values, thresholds, distances.error)
    is_match = slots[:-1] < sizes[:, None] - 1
    return np.where(is_match, less.cpu().numpy(), -1), np.where(is_match, at_most.cpu().numpy(), -1)
