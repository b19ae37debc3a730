"""The stored measurements of photos: every pair's error as one character, and the scores that follow from them.

A pose error counts by the degree below which it lies: "1" for at most 1°, ... "9", "a" for at most 10°, "-" for more or
for no pose at all. This is all that mAA(5°) and mAA(10°) need. Corner errors of homographies are kept as "1", "3", "5"
(pixels) or "-". A pair has one character for each order of its matches.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.evaluation.uncertainty import Estimate, estimate
from matchkernel.storage.files import replacing

DEGREES = "123456789a"
PIXELS = (1, 3, 5)
NONE = "-"
FORMAT = 1
RESULTS = Path(__file__).parents[1] / "results"

Scores = dict[str, np.ndarray]  # scene -> (P,) one score per pair, from 0 to 1


def degree(error: float | None) -> str:
    """The character of a pose error."""
    return DEGREES[max(math.ceil(error), 1) - 1] if error is not None and error <= len(DEGREES) else NONE


def pixels(error: float | None) -> str:
    """The character of a corner error."""
    return next((str(limit) for limit in PIXELS if error is not None and error <= limit), NONE)


def compact(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a result of evaluate_photos."""
    scenes = {}
    for name, scene in result["scenes"].items():
        rows = scene["pairs"]
        if scene["kind"] == "poses":
            worst = (_worst(*both) for row in rows for both in zip(row["rotation"], row["direction"], strict=True))
            part: dict[str, Any] = {"poses": "".join(map(degree, worst)), "orders": len(rows[0]["rotation"])}
        else:
            part = {"corners": "".join(pixels(error) for row in rows for error in row["corners"])}
            part |= {"orders": len(rows[0]["corners"]), "right": round(scene["right"], 2)}
            part["accuracy"] = round(scene["accuracy"], 5)
        scenes[name] = {**part, "matches": round(scene["matches"], 2), "inliers": round(scene["inliers"], 2)}
    kept = {key: result[key] for key in ("descriptor", "licence", "keypoints", "filter")}
    return {**kept, "seconds": result["seconds"], "scenes": scenes}


def _worst(rotation: float | None, direction: float | None) -> float | None:
    return None if rotation is None or direction is None else max(rotation, direction)


def accuracy(scene: Mapping[str, Any], limit: int = 10) -> np.ndarray:
    """(P,) mAA of each pair of a scene, the mean over the orders of its matches."""
    values = [max(0, limit - DEGREES.index(letter)) / limit if letter != NONE else 0.0 for letter in scene["poses"]]
    return np.array(values).reshape(-1, scene["orders"]).mean(1)


def within(scene: Mapping[str, Any], limit: int) -> np.ndarray:
    """(P,) share of the orders in which a pair's homography is right within so many pixels."""
    values = [letter != NONE and int(letter) <= limit for letter in scene["corners"]]
    return np.array(values, float).reshape(-1, scene["orders"]).mean(1)


class Measured:
    """A file of measurements: `about` what was measured, and rows by the key of their candidate."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.about: dict[str, Any] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.rows = content.pop("rows")
            self.about = content

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Add what was measured of a candidate, beside what is known of it on other scenes."""
        scenes = {**self.rows.get(key, {}).get("scenes", {}), **row["scenes"]}
        self.rows[key] = {**row, "scenes": scenes}

    def has(self, key: str, scenes: Iterable[str]) -> bool:
        """Whether a candidate was measured on all these scenes."""
        return set(scenes) <= set(self.rows.get(key, {}).get("scenes", {}))

    def write(self) -> None:
        """One line per row, so that files can be compared."""
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(self.rows.items()))
        head = json.dumps({"format": FORMAT, **self.about})[:-1]
        with replacing(self.path) as part:
            part.write_text(f'{head}, "rows": {{\n{lines}\n}}}}\n', encoding="utf-8")

    def scores(self, key: str, scenes: Iterable[str], limit: int = 10) -> Scores:
        """mAA of every pair of some scenes."""
        return {scene: accuracy(self.rows[key]["scenes"][scene], limit) for scene in scenes}

    def score(self, key: str, scenes: Iterable[str], limit: int = 10) -> Estimate:
        """mAA in the mean of some scenes."""
        return estimate(self.scores(key, scenes, limit))


def read(name: str, folder: Path | None = None) -> Measured:
    """`photos_NAME.json` of a folder, by default experiments/results; empty if it is not there."""
    return Measured((folder or RESULTS) / f"photos_{name}.json")


def mean_of(several: Iterable[Scores]) -> Scores:
    """The mean of several methods, pair by pair."""
    parts = list(several)
    return {scene: np.mean([part[scene] for part in parts], axis=0) for scene in parts[0]}


def minus(one: Scores, other: Scores) -> Scores:
    """The difference of two methods, pair by pair."""
    return {scene: one[scene] - other[scene] for scene in one}
