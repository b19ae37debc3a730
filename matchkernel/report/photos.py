"""Results on photos as sections: poses and homographies by scene, differences, and scores against seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scores import SCORES, difference
from matchkernel.evaluation.tables import HEADINGS, SHOWN, labels_of, short_licence
from matchkernel.evaluation.uncertainty import Estimate, Spread
from matchkernel.report.blocks import Block, ReportedMethod, Scatter, Section, TextTable
from matchkernel.report.runs import ScoredRun
from matchkernel.report.tables import NOTHING

TITLES = {"poses": "Relative poses of photos", "homographies": "Homographies of photos"}
NOTES = {
    "poses": (
        "mAA(10°) in %: the share of pairs whose rotation and direction of translation are within 1°, 2°, … 10° of the "
        "true ones, in the mean; every scene counts once. ± is one standard deviation over bootstrap samples of the "
        "pairs. Seconds per photo: finding and describing keypoints, median."
    ),
    "homographies": (
        "In %: the share of homographies whose corners are within 3 px of the true ones, by sequence; the mean over "
        "sequences of right matches (3 px) and of homographies within 1, 3 and 5 px. ± is one standard deviation over "
        "bootstrap samples of the pairs."
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
        results = [run.result for run in group]
        kinds = [{name: scene["kind"] for name, scene in result["scenes"].items()} for result in results]
        other = next((run.path for run, kind in zip(group, kinds, strict=True) if kind != kinds[0]), None)
        if other is not None:
            raise ArgumentError(f"{group[0].path} and {other}: scenes differ, though both say they have the same data")
        labels = labels_of(results)
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            both = [str(run.path) for run, label in zip(group, labels, strict=True) if label == twice]
            raise ArgumentError(f"{both[0]} and {both[1]}: two results of {twice!r}; drop one")
        for kind, title in TITLES.items():
            if any(scene["kind"] == kind for scene in results[0]["scenes"].values()):
                where = f": {', '.join(results[0]['scenes'])}" if len(groups) > 1 else ""
                blocks = tuple(_blocks(kind, dict(zip(labels, results, strict=True))))
                sections.append(Section(title + where, blocks, NOTES[kind]))
    return sections


def _blocks(kind: str, results: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    order = sorted(results, key=lambda label: (-results[label]["mean"][SHOWN[kind]]["mean"], label))
    heading = HEADINGS[SHOWN[kind]]
    blocks: list[Block] = [_scores(kind, {label: results[label] for label in order})]
    if len(order) > 1:
        best = results[order[0]]
        rows = [(label, _interval(results[label], best, SHOWN[kind])) for label in order[1:]]
        blocks.append(TextTable(f"{heading}: difference to {order[0]}", ("method", "points"), tuple(rows), DIFFERENCES))
    points = {
        ReportedMethod(label): (_seconds(results[label]), _spread(results[label], SHOWN[kind])) for label in order
    }
    return [*blocks, Scatter(f"{heading} against seconds per photo", "seconds per photo", points)]


def _scores(kind: str, results: Mapping[str, Mapping[str, Any]]) -> TextTable:
    first = next(iter(results.values()))
    scenes = [name for name, scene in first["scenes"].items() if scene["kind"] == kind]
    counts = ("matches", "inliers")
    head = ("method", *(HEADINGS[name] for name in SCORES[kind]), *scenes, *counts, "s/photo", "licence")
    rows = []
    for label, result in results.items():
        means = [Estimate(**result["mean"][name]).text() for name in SCORES[kind]]
        by_scene = [f"{100 * result['scenes'][name][SHOWN[kind]]:.1f}" for name in scenes]
        totals = [sum(result["scenes"][name][key] for name in scenes) / len(scenes) for key in counts]
        seconds = f"{result['seconds']['per_image']:.2f}"
        rows.append((label, *means, *by_scene, *(f"{total:.0f}" for total in totals), seconds, short_licence(result)))
    return TextTable(TITLES[kind], head, tuple(rows), f"{HEADINGS[SHOWN[kind]]} by scene.")


def _interval(result: Mapping[str, Any], best: Mapping[str, Any], name: str) -> str:
    try:
        found = difference(result, best, name)
    except ArgumentError:
        return NOTHING
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _seconds(result: Mapping[str, Any]) -> float:
    """Seconds per photo, within what a chart can show."""
    return float(min(max(result["seconds"]["per_image"], 1e-5), 1e6))


def _spread(result: Mapping[str, Any], name: str) -> Spread:
    found = result["mean"][name]
    return Spread((100 * found["mean"],), 100 * found["std"])
