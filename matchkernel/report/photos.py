"""Results on photos as sections: poses and homographies by scene, differences, and scores against seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scores import SCORES, difference
from matchkernel.evaluation.tables import HEADINGS, SHOWN, labels_of, mean_text, short_licence
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import ReportedMethod
from matchkernel.report.blocks import NOTHING, Block, Scatter, Section, TextTable, bold_best
from matchkernel.report.runs import ScoredRun, refuse_conflicts

TITLES = {"poses": "Relative poses of photos", "homographies": "Homographies of photos"}
FOUND = {"poses": "poses", "homographies": "homographies"}
NOTES = {
    "poses": (
        "mAA(10°) in %: the share of pairs whose rotation and direction of translation are within 1°, 2°, … 10° of the "
        "true ones, in the mean; every scene counts once. ± is one standard deviation over bootstrap samples of the "
        "pairs; bold is the best value. Seconds per photo: finding and describing keypoints, median."
    ),
    "homographies": (
        "In %: the share of homographies whose corners are within 3 px of the true ones, by sequence; the mean over "
        "sequences of right matches (3 px) and of homographies within 1, 3 and 5 px. ± is one standard deviation over "
        "bootstrap samples of the pairs; bold is the best value."
    ),
}
DIFFERENCES = (
    "Difference to the best method on the same pairs, with its 95 % interval over bootstrap samples: an interval "
    "without 0 is a difference beyond chance."
)


def photo_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """For each set of scenes a section on poses and one on homographies, as far as it has them."""
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        groups.setdefault(str(run.result.get("data_sha256")), []).append(run)
    sections = []
    for group in groups.values():
        refuse_conflicts(
            group,
            same=lambda run: None,
            must_agree=lambda run: {name: scene["kind"] for name, scene in run.result["scenes"].items()},
            reason=lambda run: "scenes differ, though both say they have the same data",
        )
        names = dict(zip(group, labels_of([run.result for run in group]), strict=True))
        refuse_conflicts(
            group,
            same=names.__getitem__,
            must_agree=lambda run: run,
            reason=lambda run: f"two results of {run.result['descriptor']!r} with the same settings; drop one",
        )
        results = {label: run.result for run, label in names.items()}
        scenes = group[0].result["scenes"]
        where = f": {', '.join(scenes)}" if len(groups) > 1 else ""
        for kind, title in TITLES.items():
            if any(scene["kind"] == kind for scene in scenes.values()):
                sections.append(
                    Section(title + where, tuple(_blocks(kind, results)), NOTES[kind], _summary(kind, results))
                )
    return sections


def _summary(kind: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Who finds how much more: the best method and RootSIFT, or the second where RootSIFT is missing or the best."""
    name, what = SHOWN[kind], FOUND[kind]
    best, *others = sorted(results, key=lambda label: (-results[label]["mean"][name]["mean"], label))
    if not others:
        return f"{best} finds {100 * results[best]['mean'][name]['mean']:.0f} % of the {what}."
    other = next((label for label in others if results[label]["descriptor"] == "rootsift"), others[0])
    try:
        found = difference(results[best], results[other], name)
    except ArgumentError:  # scored on other pairs
        return ""
    low, high, points = (round(100 * value) for value in (found.low, found.high, found.mean))
    if found.low <= 0:
        return f"{best} finds about as many {what} as {other} ({low} to {high} points more)."
    return f"{best} finds {points} point{'s' * (points != 1)} more {what} than {other} ({low} to {high})."


def _blocks(kind: str, results: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    order = sorted(results, key=lambda label: (-results[label]["mean"][SHOWN[kind]]["mean"], label))
    heading = HEADINGS[SHOWN[kind]]
    blocks: list[Block] = [_scores(kind, {label: results[label] for label in order})]
    if len(order) > 1:
        best = results[order[0]]
        rows = [(label, _interval(results[label], best, SHOWN[kind])) for label in order[1:]]
        blocks.append(
            TextTable(f"{heading}: difference to {order[0]}", ("method", "points"), tuple(rows), note=DIFFERENCES)
        )
    points = {}
    for label in order:
        seconds = min(max(results[label]["seconds"]["per_image"], 1e-5), 1e6)  # what a chart can show
        found = results[label]["mean"][SHOWN[kind]]
        points[ReportedMethod(label)] = seconds, Spread((100 * found["mean"],), 100 * found["std"])
    return [*blocks, Scatter(f"{heading} against seconds per photo", "seconds per photo", points)]


def _scores(kind: str, results: Mapping[str, Mapping[str, Any]]) -> TextTable:
    first = next(iter(results.values()))
    scenes = [name for name, scene in first["scenes"].items() if scene["kind"] == kind]
    counts = ("matches", "inliers")
    head = ("method", *(HEADINGS[name] for name in SCORES[kind]), *scenes, *counts, "s/photo", "licence")
    rows = []
    for label, result in results.items():
        means = [mean_text(result["mean"][name]) for name in SCORES[kind]]
        by_scene = [f"{100 * result['scenes'][name][SHOWN[kind]]:.1f}" for name in scenes]
        totals = [sum(result["scenes"][name][key] for name in scenes) / len(scenes) for key in counts]
        seconds = f"{result['seconds']['per_image']:.2f}"
        rows.append((label, *means, *by_scene, *(f"{total:.0f}" for total in totals), seconds, short_licence(result)))
    best = len(SCORES[kind]) + len(scenes)  # columns; then counts, seconds, licence, of which the seconds compare
    columns = [
        bold_best(column, is_seconds) if 0 < number <= best or is_seconds else column
        for number, column in enumerate(zip(*rows, strict=True))
        for is_seconds in [head[number] == "s/photo"]
    ]
    table = tuple(zip(*columns, strict=True))
    return TextTable(TITLES[kind], head, table, note=f"{HEADINGS[SHOWN[kind]]} by scene.")


def _interval(result: Mapping[str, Any], best: Mapping[str, Any], name: str) -> str:
    try:
        return difference(result, best, name).interval_text()
    except ArgumentError:
        return NOTHING
