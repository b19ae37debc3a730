"""From the rows of pairs to a result: scores by scene, means over scenes with ±, calibrated limits, warnings."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from matchkernel.evaluation.photos.calibrate import RATIO, shares_of_right, threshold_of
from matchkernel.evaluation.photos.rows import COUNTS, SCORES, mean_score, score_of
from matchkernel.evaluation.photos.scenes import EvaluationScene


def summary(
    rows: dict[str, list[dict[str, Any]]], scenes: Sequence[EvaluationScene], trained_on: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """`scenes` with their scores and rows, `mean` of each score over scenes, `calibration`, `warnings`.

    Args:
        rows: of the pairs, by scene.
        scenes: that were scored.
        trained_on: names of scenes that the method's weights learned from.
    """
    seen = [np.array(row.pop("seen")) for part in rows.values() for row in part if "seen" in row]
    parts = {}
    for scene in scenes:
        pairs = rows[scene.name]
        scores = {name: float(np.mean(score_of(pairs, name))) for name in SCORES[scene.kind]}
        counts = {name: float(np.mean([np.mean(row[name]) for row in pairs])) for name in COUNTS[scene.kind]}
        parts[scene.name] = {"kind": scene.kind, "images": len(scene.images), **scores, **counts, "pairs": pairs}
    kinds = dict.fromkeys(scene.kind for scene in scenes)
    means = {name: asdict(mean_score(parts, name)) for kind in kinds for name in SCORES[kind]}
    calibration = {"calibration": _calibration(seen)} if seen else {}
    return {
        "scenes": parts,
        "mean": means,
        **calibration,
        "warnings": [*_learned(scenes, trained_on), *_warnings(scenes)],
    }


def _calibration(seen: list[np.ndarray]) -> dict[str, Any]:
    distance, ratio = threshold_of(seen), threshold_of(seen, RATIO)
    return {
        "match_threshold": None if distance is None else round(distance, 3),
        "match_ratio": None if ratio is None else round(ratio, 3),
        "right_below_ratio": shares_of_right(seen),
    }


def _learned(scenes: Sequence[EvaluationScene], trained_on: frozenset[str]) -> list[str]:
    known = [scene.name for scene in scenes if scene.name in trained_on]
    return [f"the weights were trained on {', '.join(known)}: scores there are too good"] if known else []


def _warnings(scenes: Sequence[EvaluationScene]) -> list[str]:
    warnings = []
    for scene in scenes:
        blind = {name for name, camera in scene.cameras.items() if camera.model is None}
        count = sum(not blind.isdisjoint(pair) for pair in scene.pairs)
        if count:
            warnings.append(
                f"{scene.name}: {count} of {len(scene.pairs)} pairs have a camera without intrinsics: their pose is "
                "derived from a fundamental matrix with an assumed focal length of 1.2 times the longer side"
            )
    return warnings
