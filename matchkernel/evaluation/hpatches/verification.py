"""HPatches verification: do two patches show the same point? See docs/evaluation.md for the conventions."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from matchkernel.data.hpatches import NOISES, VerificationLists
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import check_distance, row_distances
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.metrics import precision_area
from matchkernel.photos.nearest import Distance

KINDS = ("inter", "intra")
SHARE = 0.2  # of the positives are used in the imbalanced protocol, from the start of the list
LEAST_PAIRS = 5  # so that a fifth of them is at least one
PIECE = 1024  # pairs per batch: half a megabyte, which stays in the cache


def verification(
    descriptors: HPatchesDescriptors, lists: VerificationLists, distance: Distance = "l2"
) -> dict[str, Any]:
    """Score the verification task.

    Args:
        lists: M pairs of each kind.

    Returns:
        `noise`/<e|h|t>/<inter|intra>/`balanced` and `imbalanced`, `mean` of the six, `per_sequence` (by the first
        patch's sequence). `auc` and `ap_trapezoid` are the official Python's, `ap_step` is the official MATLAB's (which
        puts positives first among ties); each comes with its `_tie_safe` value.
    """
    check_distance(distance, descriptors.rows.dtype)
    if len(lists) < LEAST_PAIRS:
        raise ArgumentError(f"verification needs {LEAST_PAIRS} pairs or more, the lists have {len(lists)}")
    numbers = _sequence_numbers(descriptors, lists)
    groups = _groups(descriptors, numbers["first"])
    result: dict[str, Any] = {"pairs": len(lists), "noise": {}, "per_sequence": {name: {} for name in groups}}
    for noise in NOISES:
        found = verification_distances(descriptors, lists, noise, distance, numbers)
        result["noise"][noise] = {kind: _score(found["positives"], found[kind]) for kind in KINDS}
        for name, members in groups.items():
            part = {kind: _score(found["positives"][members], found[kind][members]) for kind in KINDS}
            result["per_sequence"][name][noise] = {"pairs": len(members), **part}
    six = [result["noise"][noise][kind] for noise in NOISES for kind in KINDS]
    result["mean"] = {
        **{key: float(np.mean([part["balanced"][key] for part in six])) for key in six[0]["balanced"]},
        **{key: float(np.mean([part["imbalanced"][key] for part in six])) for key in six[0]["imbalanced"]},
    }
    return result


def verification_distances(
    descriptors: HPatchesDescriptors,
    lists: VerificationLists,
    noise: str,
    distance: Distance = "l2",
    numbers: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """(M,) float32 distances of the pairs of each list: `positives`, `intra`, `inter`.

    `numbers` are the lists' sequence numbers, if they are known from another noise level.
    """
    numbers = numbers or _sequence_numbers(descriptors, lists)
    places = {key: descriptors.rows_in_sequences(getattr(lists, key), numbers[key], noise) for key in numbers}
    first = places.pop("first")
    found: dict[str, np.ndarray] = {key: np.empty(len(lists), np.float32) for key in places}
    rows = descriptors.rows
    for start in range(0, len(first), PIECE):
        part = slice(start, start + PIECE)
        one = rows.take(first[part], 0)
        for key, place in places.items():
            found[key][part] = row_distances(one, rows.take(place[part], 0), distance)
    return found


def _sequence_numbers(descriptors: HPatchesDescriptors, lists: VerificationLists) -> dict[str, np.ndarray]:
    """(M,) the number of each patch's sequence, for the first patches and the three lists."""
    numbers = {}
    for field in dataclasses.fields(lists):
        patches = getattr(lists, field.name)
        if len(patches) != len(lists):
            raise ArgumentError(f"the list of {field.name} has {len(patches)} rows, the first patches {len(lists)}")
        numbers[field.name] = descriptors.sequence_numbers(patches, f"verification list of {field.name}")
    return numbers


def _groups(descriptors: HPatchesDescriptors, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of the list by the sequence of their first patch, in the list's order; only sequences with enough rows."""
    order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers, minlength=len(descriptors.counts))
    parts = np.split(order, np.cumsum(counts)[:-1])
    return {name: part for name, part in zip(descriptors.counts, parts, strict=True) if len(part) >= LEAST_PAIRS}


def _score(positives: np.ndarray, negatives: np.ndarray) -> dict[str, dict[str, float]]:
    """Both protocols on (M,) and (M,) distances. The official Python code puts negatives first, so it is tie-safe."""
    few = np.sort(positives[: int(len(positives) * SHARE)])
    others = np.sort(negatives)
    all_before = np.searchsorted(others, np.sort(positives), side="right")
    safe, lucky = (np.searchsorted(others, few, side=side) for side in ("right", "left"))
    auc = float(1 - all_before.mean(dtype=np.float64) / len(others))
    trapezoid = float(precision_area(safe, len(few)))
    return {
        "balanced": {"auc": auc, "auc_tie_safe": auc},
        "imbalanced": {
            "ap_trapezoid": trapezoid,
            "ap_trapezoid_tie_safe": trapezoid,
            "ap_step": float(precision_area(lucky, len(few), "step")),
            "ap_step_tie_safe": float(precision_area(safe, len(few), "step")),
        },
    }
