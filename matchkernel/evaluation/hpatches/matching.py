"""HPatches matching: nearest neighbours of ref in each other image. See docs/evaluation.md for the conventions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from matchkernel.data.hpatches import NOISES
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import check_distance
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.metrics import FORMS, non_matches_before, precision_area
from matchkernel.photos.nearest import TILE, Distance, find_nearest
from matchkernel.storage.work import Progress, progress_counter

GROUPS = {"i": "illumination", "v": "viewpoint"}


def matching(
    descriptors: HPatchesDescriptors,
    test: Sequence[str],
    distance: Distance = "l2",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the matching task.

    Args:
        descriptors: of at least the sequences of `test`.
        test: the split's test sequences.

    Returns:
        `per_pair`/<sequence>/<e|h|t>/<1..5>: `ap_trapezoid` (official Python), `ap_step` (MATLAB), `sr` (share of
        correct nearest neighbours), each with its `_tie_safe` value, where a neighbour that is not the only nearest one
        is wrong and wrong ones come first among equals. `mean`/<e|h|t|all> over image pairs; `groups` and `article`,
        the mean of the six means over illumination and viewpoint sequences.
    """
    check_distance(distance, descriptors.rows.dtype)
    if not test:
        raise ArgumentError("the split has no test sequences")
    per_pair: dict[str, Any] = {}
    room = np.empty(max([TILE, *descriptors.counts.values()]), np.float32)
    add = progress_counter(progress, len(test))
    for name in test:
        rows = descriptors.sequence(name)
        if distance == "hamming":
            rows = np.unpackbits(rows, axis=-1).astype(np.float32)
        per_pair[name] = {
            noise: {str(k): _score(rows[0], rows[5 * level + k], distance, room) for k in range(1, 6)}
            for level, noise in enumerate(NOISES)
        }
        add(1)
    return {"per_pair": per_pair, **_means(per_pair)}


def _score(reference: np.ndarray, image: np.ndarray, distance: Distance, room: np.ndarray) -> dict[str, float]:
    found = find_nearest(reference, image, distance, wants_second=False, room=room)
    distances = found.first if distance == "l1" else np.sqrt(found.first)  # bits: the root of the Hamming distance
    is_right = found.index == np.arange(len(reference))
    is_safe = is_right & found.is_only
    scores = {"sr": float(is_right.mean()), "sr_tie_safe": float(is_safe.mean())}
    before = non_matches_before(distances, is_right)
    before_safe = non_matches_before(distances, is_safe, "pessimistic")
    for form in FORMS:
        scores[f"ap_{form}"] = float(precision_area(before, len(reference), form))
        scores[f"ap_{form}_tie_safe"] = float(precision_area(before_safe, len(reference), form))
    return scores


def _means(per_pair: Mapping[str, Any]) -> dict[str, Any]:
    mean = {noise: _mean(pair for part in per_pair.values() for pair in part[noise].values()) for noise in NOISES}
    mean["all"] = _mean(mean[noise] for noise in NOISES)
    groups = {}
    for prefix, group in GROUPS.items():
        members = [part for name, part in per_pair.items() if name.startswith(f"{prefix}_")]
        if members:
            groups[group] = {
                noise: _mean(pair for part in members for pair in part[noise].values()) for noise in NOISES
            }
    flat = [group[noise] for group in groups.values() for noise in NOISES]
    return {"mean": mean, "groups": groups, "article": _mean(flat) if flat else None}


def _mean(scores: Iterable[Mapping[str, float]]) -> dict[str, float]:
    listed = list(scores)
    return {key: float(np.mean([score[key] for score in listed])) for key in listed[0]}
