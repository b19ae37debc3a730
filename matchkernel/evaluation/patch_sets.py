"""A patch set in the manner of PhotoTourism: FPR@95 and ROC curves of its pair lists, and retrieval."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance, comparable_rows, row_distances
from matchkernel.evaluation.metrics import fpr_at_recall
from matchkernel.evaluation.results import FORMAT, blank_words
from matchkernel.evaluation.retrieval import retrieval_range
from matchkernel.evaluation.roc import thinned_roc

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
        A result to be written as JSON: `pairs`/<list>/`fpr95` with ties counted as errors, `fpr95_lowest`, what
        another order of tied pairs could give, and `roc` (see thinned_roc); `retrieval_map` and `retrieval_map_highest`
        in the same way (None where no label has two patches); `blank`, the number of rows of zeros; `warnings`, where
        ties make a difference or patches are blank; `data_sha256`, which tells sets of one name apart.
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
    has_matches = len(np.unique(patches.labels)) < len(patches)
    lowest, highest = (None, None)
    if has_matches:
        lowest, highest = retrieval_range(descriptors, patches.labels, queries=queries, seed=seed, distance=distance)
    result.update(retrieval_map=lowest, retrieval_map_highest=highest, retrieval_queries=queries, retrieval_seed=seed)
    result["warnings"] = _warnings(result)
    return result


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
    return {
        "matches": matches,
        "non_matches": len(pairs) - matches,
        "fpr95": worst,
        "fpr95_lowest": best,
        "roc": thinned_roc(distances, is_match),
    }


def data_digest(patches: PatchSet) -> str:
    """Of what is scored: labels, pair lists, and the manifest's word for the patches."""
    known = patches.manifest.get("sha256")
    digest = hashlib.sha256(str(known.get("patches.npy") if isinstance(known, Mapping) else "").encode())
    for name, array in [("labels", patches.labels), *sorted(patches.pairs.items())]:
        digest.update(f"{name} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.hexdigest()


def _warnings(result: Mapping[str, Any]) -> list[str]:
    words = [
        f"{key}: tied distances leave FPR@95 between {100 * part['fpr95_lowest']:.3f} and {100 * part['fpr95']:.3f} %; "
        "the higher one is the result"
        for key, part in result["pairs"].items()
        if part["fpr95"] - part["fpr95_lowest"] > NOTICEABLE
    ]
    if result["blank"]:
        words.append(blank_words(result["blank"], result["patches"]))
    low, high = result["retrieval_map"], result["retrieval_map_highest"]
    if low is not None and high - low > NOTICEABLE:
        words.append(
            f"retrieval: tied distances leave the mAP between {100 * low:.3f} and {100 * high:.3f} %; "
            "the lower one is the result"
        )
    return words
