"""What the numbers in a table of results mean: a sentence for each of the columns that are shown."""

from collections.abc import Mapping, Sequence
from typing import Any

HPATCHES = {
    "verification": "Verification: mean of six imbalanced APs, trapezoid.",
    "matching": "Matching: mean over image pairs, trapezoid.",
    "retrieval": "Retrieval python: pool of at most 20000, trapezoid; matlab: all distractors, step.",
}
PAIRS = "In %. FPR@95 with ties as errors; mAP of retrieval within the set: step, ties as errors."
NO_PAIRS = "In %. mAP of retrieval within the set: step, ties as errors. Without lists of pairs there is no FPR@95."
MEANS = "Means over scenes with their standard deviation over bootstrap samples of the pairs."
PHOTOS = {
    "poses": "Scenes with cameras: mAA(10°).",
    "homographies": (
        "Sequences with homographies: share of right matches (3 px), and of homographies with corners within 3 px."
    ),
}
SECONDS = "Seconds per photo: finding and describing keypoints, median."


def note_of(results: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of a table of these results mean, which are of one kind; see table_of."""
    if not results:
        return ""
    if results[0]["kind"] == "hpatches":
        tasks = [words for task, words in HPATCHES.items() if any(task in result for result in results)]
        return " ".join(["mAP in %.", *tasks])
    if results[0]["kind"] == "phototourism":
        return PAIRS if any(result["pairs"] for result in results) else NO_PAIRS
    kinds = {scene["kind"] for result in results for scene in result["scenes"].values()}
    return " ".join(["In %.", *(words for kind, words in PHOTOS.items() if kind in kinds), MEANS, SECONDS])
