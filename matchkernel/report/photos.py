"""Results on photos as sections: poses and homographies by scene, differences, and scores against seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scores import SCORES, difference, mean_of, measure_of, pairs_with
from matchkernel.evaluation.tables import (
    HEADINGS,
    SHOWN,
    keypoints_text,
    labels_of,
    seconds_text,
    short_licence,
    varying_parts,
)
from matchkernel.evaluation.uncertainty import too_few
from matchkernel.plots.scores import ReportedMethod
from matchkernel.report.blocks import NOTHING, Block, Scatter, Section, TextTable, bold_best
from matchkernel.report.headline import counted, headline, listed, ordered, scenes_of, timed
from matchkernel.report.runs import ScoredRun, refuse_conflicts

TITLES = {"poses": "Relative poses of photos", "homographies": "Homographies of photos"}
NOTES = {
    "poses": (
        "mAA(10°), %: of 100 pairs, in how many the second camera is placed right as seen from the first (rotation and "
        "direction), in the mean over limits of 1°, 2°, … 10°; mAA(5°), stricter: up to 5°."
    ),
    "homographies": (
        "In %: correct, of 100 matches those within 3 px of the true place; H 1, 3 and 5 px, of 100 pairs those whose "
        "homography puts the corners within so many pixels of the true ones."
    ),
}
POSE = "A pose is where the second photo of a pair was taken and which way it looks, as seen from the first. "
COUNTS = (
    "matches, inliers: points found in both photos of a pair, and those of them that agree with one motion of the "
    "camera, in the mean. s/photo: seconds to find and describe the keypoints of a photo, median."
)
BY_SCENE = " Columns of scenes: {}; every scene counts once."
SPREAD = " ±: one standard deviation, had other pairs been drawn (bootstrap)."
DIFFERENCES = "In points of %, on the same pairs."
IN_BRACKETS = (
    " In brackets the 95 % interval, had other pairs been drawn: if it holds 0, the two are too close to tell."
)
BARS = " Bars: ± one standard deviation."
OVERLAP = (
    " Bars may overlap and a difference still be beyond chance: both methods were tested on the same pairs. The table "
    "of differences decides."
)
BEYOND = "beyond chance"


def photo_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """For each set of scenes and each measure a section on poses and one on homographies, as far as there are any."""
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
        every = [run.result for run in group]
        names = dict(zip(group, labels_of(every), strict=True))
        refuse_conflicts(
            group,
            same=names.__getitem__,
            reason=lambda run: f"two results of {run.result['descriptor']!r} with the same settings; drop one",
        )
        measures: dict[str, dict[str, Mapping[str, Any]]] = {}
        for run, label in names.items():
            varying = varying_parts(measure_of(run.result), [measure_of(other) for other in every])
            measures.setdefault(", ".join(varying), {})[label] = run.result
        scenes = every[0]["scenes"]
        for measure, results in measures.items():
            named = [", ".join(scenes)] * (len(groups) > 1) + [measure] * (len(measures) > 1)
            where = f": {'; '.join(named)}" if named else ""
            for kind, title in TITLES.items():
                if any(scene["kind"] == kind for scene in scenes.values()):
                    parts = tuple(_blocks(kind, results)), _setup(kind, results), headline(kind, results)
                    sections.append(Section(title + where, *parts))
    return sections


def _setup(kind: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """What all results share, and is therefore not in their names."""
    scenes = scenes_of(kind, results)
    pairs = pairs_with(next(iter(results.values())), SHOWN[kind])
    shared = [f"{counted(pairs, 'pair')} of photos in {listed(list(scenes))}"]
    for key, say in (("keypoints", _most_keypoints), ("filter", "matches kept by: {}".format)):
        values = {result[key] for result in results.values()}
        shared += [say(value) for value in values if len(values) == 1]
    return f"{POSE * (kind == 'poses')}{'; '.join(shared)}."


def _most_keypoints(most: int) -> str:
    return f"at most {keypoints_text(most)} per photo" if most else "all keypoints of a photo"


def _blocks(kind: str, results: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    order = ordered(kind, results)
    name, heading = SHOWN[kind], HEADINGS[SHOWN[kind]]
    means = {label: mean_of(results[label], name) for label in order}
    best, is_enough = order[0], means[order[0]].std is not None
    blocks: list[Block] = [_scores(kind, {label: results[label] for label in order})]
    rows = [(label, *_compared(results[label], results[best], name)) for label in order[1:]]
    if rows:
        note = DIFFERENCES + IN_BRACKETS * is_enough
        title = f"{heading}: difference to {best}"
        blocks.append(TextTable(title, ("method", "points", "verdict"), tuple(rows), note=note))
    reached = means[best].mean - (means[best].std or 0)
    overlaps = any(
        verdict == BEYOND and means[label].mean + (means[label].std or 0) >= reached for label, _, verdict in rows
    )
    points = {}
    for label in timed(results, order):
        seconds = min(max(results[label]["seconds"]["per_image"], 1e-5), 1e6)  # what a chart can show
        points[ReportedMethod(label)] = seconds, means[label]
    if not points:
        return blocks
    note = f"Up and to the left is better.{BARS * is_enough}{OVERLAP * overlaps}"
    title = f"{heading} against seconds per photo"
    return [*blocks, Scatter(title, "seconds per photo", points, f"{heading}, %", note=note)]


def _scores(kind: str, results: Mapping[str, Mapping[str, Any]]) -> TextTable:
    """What decides comes first, for narrow screens: the main score and seconds, then other scores, scenes, counts."""
    main, scenes, counts = SHOWN[kind], list(scenes_of(kind, results)), ("matches", "inliers")
    others = [name for name in SCORES[kind] if name != main]
    by_scene = scenes if len(scenes) > 1 else []
    compared = ("s/photo", *(HEADINGS[name] for name in others), *by_scene)
    head = ("method", HEADINGS[main], *compared, *counts, "licence")
    rows = []
    for label, result in results.items():
        means = [mean_of(result, name).text(1) for name in (main, *others)]
        cells = [f"{100 * result['scenes'][name][main]:.1f}" for name in by_scene]
        totals = [sum(result["scenes"][name][key] for name in scenes) / len(scenes) for key in counts]
        numbers = (means[0], seconds_text(result, NOTHING), *means[1:], *cells, *(f"{total:.0f}" for total in totals))
        rows.append((label, *numbers, short_licence(result)))
    few = too_few(pairs_with(next(iter(results.values())), main))
    bold = [2] if few else range(1, 2 + len(compared))
    columns = [
        bold_best(column, name == "s/photo") if number in bold else column
        for number, (name, column) in enumerate(zip(head, zip(*rows, strict=True), strict=True))
    ]
    spread = f" Without ±: {few}." if few else SPREAD
    note = f"{NOTES[kind]} {COUNTS}{BY_SCENE.format(HEADINGS[main]) * bool(by_scene)}{spread}"
    table = tuple(zip(*columns, strict=True))
    return TextTable(TITLES[kind], head, table, note=note + " Bold is the best value." * (len(rows) > 1))


def _compared(result: Mapping[str, Any], best: Mapping[str, Any], name: str) -> tuple[str, str]:
    try:
        found = difference(result, best, name)
    except ArgumentError:
        return NOTHING, "scored on other pairs"
    verdict = too_few(pairs_with(result, name)) or ("too close to tell" if found.high >= 0 else BEYOND)
    return found.interval_text(), verdict
