"""The shipped weights on pairs of photos, scored by experiments/homography_matching.py: a table, and our targets."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from tables import markdown
from verdicts import Claim, verdict

PAIRS = Path(__file__).parents[1] / "results" / "matching_test.json"
COLUMNS = {  # heading -> column, times
    "matches": ("matches", 1),
    "right matches": ("right", 1),
    "share right, %": ("accuracy 3 px", 100),
    "homography within 1 px, %": ("H 1 px", 100),
    "within 3 px, %": ("H 3 px", 100),
    "within 5 px, %": ("H 5 px", 100),
}
RIVALS = ("sift", "rootsift", "fc")
Means = dict[str, dict[str, float]]  # descriptor -> column -> mean of sequences


def means_of_sequences(path: Path) -> Means:
    """Means over the pairs of a sequence, then over sequences; nothing where there is no file."""
    if not path.exists():
        return {}
    cells: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for pair in json.loads(path.read_text(encoding="utf-8"))["pairs"]:
        cells[pair["model"]][pair["sequence"]].append(pair)
    return {
        model: {c: fmean(fmean(row[c] for row in rows) for rows in parts.values()) for c, _ in COLUMNS.values()}
        for model, parts in cells.items()
    }


def pairs_table(means: Means) -> str:
    """A row for each descriptor."""
    rows = []
    for model, found in means.items():
        shown = [times * found[column] for column, times in COLUMNS.values()]
        rows.append([f"`{model}`", *(f"{value:.0f}" for value in shown[:2]), *(f"{value:.1f}" for value in shown[2:])])
    return markdown(["descriptor", *COLUMNS], rows)


def pair_targets(means: Means) -> list[Claim]:
    """The default against SIFT, RootSIFT and `fc` on the same keypoints: right matches, and homographies."""
    wanted = {
        "more right matches": ("right", "more a pair than each, mean of sequences", "{:.1f}"),
        "better homographies": ("H 3 px", "within 3 px more often than each, mean of sequences", "{:.3f}"),
    }
    claims = []
    for words, (column, rule, form) in wanted.items():
        there = all(model in means for model in ("dual", *RIVALS))
        answers = [means["dual"][column] > means[model][column] for model in RIVALS] if there else [None]
        figures = [f"`{m}` {form.format(means[m][column])}" for m in ("dual", *RIVALS)] if there else []
        text = f"Shipped `dual` has {words} on photos than SIFT, RootSIFT and `fc`"
        claims.append(Claim("–", text, rule, verdict(answers), "; ".join(figures)))
    return claims
