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


def pair_tables(path: Path) -> list[str]:
    """A row for each descriptor: means of sequences, where they ran, and right matches and homographies by kind."""
    return [
        means_table(path),
        f"*{machine(path)}*",
        "By kind of change (sequences in brackets): right matches, and homographies within 3 px in %:",
        kinds_table(json.loads(path.read_text(encoding="utf-8"))["pairs"]),
    ]


def means_table(path: Path) -> str:
    """A row for each descriptor: means of sequences."""
    rows = []
    for model, found in means_of_sequences(path).items():
        shown = [times * found[column] for column, times in COLUMNS.values()]
        rows.append([f"`{model}`", *(f"{value:.0f}" for value in shown[:2]), *(f"{value:.1f}" for value in shown[2:])])
    return markdown(["descriptor", *COLUMNS], rows)


def machine(path: Path) -> str:
    """Where the results of a file were made."""
    written = json.loads(path.read_text(encoding="utf-8"))
    precision = ", in bfloat16" if written["bf16"] else ""
    time = f"{written['seconds']:,} s" if "seconds" in written else "time not recorded"
    where = f"{written['machine']}, OpenCV {written['versions']['opencv']}{precision}, {time}"
    return f"{where}; from `experiments/{path.parent.name}/{path.name}`."


def kinds_table(pairs: list[dict]) -> str:
    """Right matches and homographies within 3 px of each descriptor by kind of change, means of sequences."""
    kinds: dict[str, dict[str, None]] = defaultdict(dict)  # kind -> its sequences, in order
    cells: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for pair in pairs:
        kinds[pair["kind"]][pair["sequence"]] = None
        cells[pair["model"], pair["sequence"]].append(pair)
    rows = []
    for model in dict.fromkeys(pair["model"] for pair in pairs):
        row = [f"`{model}`"]
        for names in kinds.values():
            right, share = (
                fmean(fmean(pair[column] for pair in cells[model, name]) for name in names)
                for column in ("right", "H 3 px")
            )
            row.append(f"{right:.0f} / {100 * share:.1f}")
        rows.append(row)
    return markdown(["descriptor", *(f"{kind} ({len(names)})" for kind, names in kinds.items())], rows)


def pair_targets(means: Means) -> list[Claim]:
    """The default against SIFT, RootSIFT and `fc` on the same keypoints: right matches, and homographies."""
    wanted = {
        "more right matches": ("right", "more a pair than each, mean of sequences", "{:.1f}"),
        "better homographies": ("H 3 px", "within 3 px more often than each, mean of sequences", "{:.2%}"),
    }
    claims = []
    for words, (column, rule, form) in wanted.items():
        there = all(model in means for model in ("dual", *RIVALS))
        answers = [means["dual"][column] > means[model][column] for model in RIVALS] if there else [None]
        figures = [f"`{m}` {form.format(means[m][column])}" for m in ("dual", *RIVALS)] if there else []
        text = f"Shipped `dual` has {words} on photos than SIFT, RootSIFT and `fc`"
        claims.append(Claim("–", text, rule, verdict(answers), "; ".join(figures)))
    return claims
