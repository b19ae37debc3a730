"""The names and table rows of results on photos."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.evaluation.photos.bootstrap import Estimate
from matchkernel.evaluation.photos.rows import difference
from matchkernel.storage.files import json_digest

SHOWN = {"poses": "maa10", "homographies": "h3"}  # the score of a scene in a table
HEADINGS = {
    "maa5": "mAA(5°)", "maa10": "mAA(10°)", "accuracy": "right", "h1": "H 1 px", "h3": "H 3 px", "h5": "H 5 px",
}  # fmt: skip
PLAIN = ("descriptor", "keypoints", "filter")
LONGEST = 40  # characters of a licence in a table; the result has all of it


def file_name(result: Mapping[str, Any]) -> str:
    """The name of a result's file: descriptor, keypoints, filter, and a digest of all settings and of the data."""
    words = ["photos", result["descriptor"], result["keypoints"], result["filter"]]
    plain = [re.sub(r"[^A-Za-z0-9._=-]+", "_", str(word))[:60] for word in words]
    content = [result[key] for key in ("descriptor", "settings", "protocol", "data_sha256")]
    return "-".join([*plain, json_digest(content)[:8]])


def labels_of(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each result: the descriptor, and those settings in which results differ."""
    labels = []
    for result in results:
        words = [result["descriptor"]]
        if len({other["keypoints"] for other in results}) > 1:
            words.append(f"{result['keypoints']:,} keypoints")
        if len({other["filter"] for other in results}) > 1:
            words.append(result["filter"])
        alike = [other for other in results if all(other[key] == result[key] for key in PLAIN)]
        settings = result.get("settings") or {}
        for key in sorted({key for other in alike for key in other.get("settings") or {}}):
            values = {json.dumps((other.get("settings") or {}).get(key)) for other in alike}
            if len(values) > 1:
                words.append(f"{key} {str(settings.get(key))[:12]}")
        labels.append(", ".join(words))
    return labels


def photo_rows(results: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Cells by heading for each result: scenes, means with ±, the difference to the first result."""
    several = len(results) > 1
    return [_row(label, result, results[0], several) for label, result in zip(labels_of(results), results, strict=True)]


def _row(label: str, result: Mapping[str, Any], first: Mapping[str, Any], several: bool) -> dict[str, str]:
    row = {"method": label}
    for name, scene in result["scenes"].items():
        row[name] = f"{100 * scene[SHOWN[scene['kind']]]:.1f}"
    for name, heading in HEADINGS.items():
        if name in result["mean"]:
            row[heading] = Estimate(**result["mean"][name]).text()
            is_same = result["data_sha256"] == first["data_sha256"]
            if several and is_same and name in SHOWN.values():
                row[f"{heading} to first"] = "-" if result is first else _signed(difference(result, first, name))
    for key in ("matches", "inliers"):
        counts = [scene[key] for scene in result["scenes"].values()]
        row[key] = f"{sum(counts) / len(counts):.0f}"
    row["s/photo"] = f"{result['seconds']['per_image']:.2f}"
    row["licence"] = licence_words(result)
    return row


def licence_words(result: Mapping[str, Any]) -> str:
    """The licence of a result's method as a table shows it: its beginning, if it is long."""
    licence = str(result["licence"])
    return licence if len(licence) <= LONGEST else f"{licence[: LONGEST - 1].rstrip()}…"


def _signed(found: Estimate) -> str:
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
