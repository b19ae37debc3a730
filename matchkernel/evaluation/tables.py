"""Short tables of results, and what their numbers mean."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.data.patch_set import PROTOCOL, kind_of, named_lists
from matchkernel.evaluation.photos.scores import difference, mean_of, measure_of, pairs_with, protocol_of
from matchkernel.evaluation.uncertainty import too_few

TEXT_COLUMNS = ("method", "trained on", "test set", "split", "licence")  # the others are numbers
MANY_SETS = 3  # longer lists of names are shortened
LONGEST_LICENCE = 40  # characters; the result has all of it
HPATCHES = {
    "verif. AP": ("verification", "mean", "ap_trapezoid"),
    "match. AP": ("matching", "mean", "all", "ap_trapezoid"),
    "retr. python": ("retrieval", "python", "mean", "20000", "ap_trapezoid"),
    "retr. matlab": ("retrieval", "matlab", "mean", "all", "ap_step"),
}
SHOWN = {"poses": "maa10", "homographies": "h3"}  # the score of a scene of photos
HEADINGS = {
    "maa5": "mAA(5°)", "maa10": "mAA(10°)", "accuracy": "correct", "h1": "H 1 px", "h3": "H 3 px", "h5": "H 5 px",
}  # fmt: skip
TASK_NOTES = {
    "verification": "Verification: mean of six imbalanced APs, trapezoid.",
    "matching": "Matching: mean over image pairs, trapezoid.",
    "retrieval": "Retrieval python: pool of at most 20000, trapezoid; matlab: all distractors, step.",
}
SCENE_NOTES = {
    "poses": "mAA(10°): pairs whose second camera is placed right, in the mean over limits of 1° to 10°.",
    "homographies": (
        "Sequences with homographies: share of correct matches (3 px), and of homographies with corners within 3 px."
    ),
}


def table_of(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Table of the main results: headings and rows, scores in percent; a dash where a result has no score."""
    if results and results[0]["kind"] == "photos":
        rows = [_photo_row(label, result, results) for label, result in zip(labels_of(results), results, strict=True)]
    else:
        rows = [_patch_row(result) for result in results]
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    return headings, [[row.get(heading, "-") for heading in headings] for row in rows]


def note_of(results: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of table_of mean; all results are of one kind."""
    if not results:
        return ""
    if results[0]["kind"] == "hpatches":
        return " ".join(
            ["mAP in %.", *(note for task, note in TASK_NOTES.items() if any(task in result for result in results))]
        )
    if results[0]["kind"] == "phototourism":
        retrieval = "mAP of retrieval within the set: step, ties as errors."
        if any(result["pairs"] for result in results):
            lists = [named_lists(result["pairs"]) for result in results]
            several = any(len(named) > len({*map(kind_of, named)}) for named in lists)
            headline = f" {kind_of(PROTOCOL)} is {PROTOCOL}, the list that papers report." if several else ""
            return f"In %. FPR@95 with ties as errors; {retrieval}{headline}"
        return f"In %. {retrieval} Without lists of pairs there is no FPR@95."
    kinds = {scene["kind"] for result in results for scene in result["scenes"].values()}
    few = {too_few(pairs_with(result, SHOWN[kind])) for result in results for kind in kinds}
    return " ".join(
        [
            "Scores in %.",
            *(note for kind, note in SCENE_NOTES.items() if kind in kinds),
            *(f"Without ±: {why}." for why in sorted(few - {""})),
            *["±: one standard deviation, had other pairs been drawn."] * ("" in few),
            *["vs. best: [95 % interval]; if it holds 0, the two are too close to tell."]
            * ("" in few and len(results) > 1),
            "matches, inliers: per pair. s/photo: finding and describing keypoints, median.",
        ]
    )


def labels_of(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each result on photos: the descriptor, and those settings in which results differ."""
    labels = []
    varying = {key for key in ("keypoints", "filter") if len({result[key] for result in results}) > 1}
    for result in results:
        parts = [result["descriptor"]]
        if "keypoints" in varying:
            parts.append(keypoints_text(result["keypoints"]))
        if "filter" in varying:
            parts.append(result["filter"])
        parts += varying_parts(protocol_of(result), [protocol_of(other) for other in results])
        plain = ("descriptor", "keypoints", "filter")
        alike = [other for other in results if all(other[key] == result[key] for key in plain)]
        settings = result.get("settings") or {}
        for key in sorted({key for other in alike for key in other.get("settings") or {}}):
            values = {json.dumps((other.get("settings") or {}).get(key)) for other in alike}
            if len(values) > 1:
                value = settings.get(key)
                parts.append(f"no {key}" if value is None else f"{key} {str(value)[:12]}")
        labels.append(", ".join(parts))
    return labels


def varying_parts(own: Mapping[str, Any], protocols: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of a protocol is not the same in all, such as `pixels 20` or `magsac`."""
    varying = [key for key in own if any(protocol.get(key) != own[key] for protocol in protocols)]
    return [str(own[key]) if key == "estimator" else f"{key} {own[key]}" for key in varying]


def keypoints_text(most: int) -> str:
    """How many keypoints of a photo are used: at most so many, or all if it is 0."""
    return f"{most:,} keypoints" if most else "all keypoints"


def seconds_text(result: Mapping[str, Any], unknown: str) -> str:
    """The seconds for a photo; another text if they were not measured."""
    seconds = result["seconds"]["per_image"]
    return unknown if seconds is None else f"{seconds:.2f}"


def short_licence(result: Mapping[str, Any]) -> str:
    """The licence of a result's method, shortened for a table."""
    licence = str(result["licence"])
    return licence if len(licence) <= LONGEST_LICENCE else f"{licence[: LONGEST_LICENCE - 1].rstrip()}…"


def _photo_row(label: str, result: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Cells by heading: scenes, means with ±, and the paired difference to the best result on the same data."""
    scored = result["data_sha256"], measure_of(result)
    rivals = [other for other in results if (other["data_sha256"], measure_of(other)) == scored]
    row = {"method": label}
    for name, scene in result["scenes"].items():
        row[name] = f"{100 * scene[SHOWN[scene['kind']]]:.1f}"
    for name, heading in HEADINGS.items():
        if name in result["mean"]:
            row[heading] = mean_of(result, name).text(1)
            if len(rivals) > 1 and name in SHOWN.values():
                best = max(rivals, key=lambda other: other["mean"][name]["mean"])
                to_best = "-" if result is best else difference(result, best, name).interval_text()
                row[f"{heading} vs. best"] = to_best
    for key in ("matches", "inliers"):
        counts = [scene[key] for scene in result["scenes"].values()]
        row[key] = f"{sum(counts) / len(counts):.0f}"
    row["s/photo"] = seconds_text(result, "-")
    row["licence"] = short_licence(result)
    return row


def _patch_row(result: Mapping[str, Any]) -> dict[str, str]:
    row = {"method": str(result["descriptor"])}
    if result.get("train_set"):
        first, *others = str(result["train_set"]).split(", ")
        is_short = len(others) < MANY_SETS
        row["trained on"] = str(result["train_set"]) if is_short else f"{first} and {len(others)} more"
    if "configuration" in result:
        row["seed"] = str(result["seed"])
    if result["kind"] == "hpatches":
        row["split"] = str(result["split"])
        for heading, path in HPATCHES.items():
            if path[0] in result:
                value: Any = result
                for key in path:
                    value = value[key]
                row[heading] = f"{100 * value:.2f}"
        return row
    row["test set"] = str(result["test_set"])
    for short, name in named_lists(result["pairs"]).items():
        row[f"FPR@95 {short}"] = f"{100 * result['pairs'][name]['fpr95']:.2f}"
    row["mAP"] = "-" if result["retrieval_map"] is None else f"{100 * result['retrieval_map']:.2f}"
    return row
