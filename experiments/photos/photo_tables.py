"""The tables of docs/photos.md, from the stored measurements; paper/tables.py fills them in."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import measured
from candidates import (
    BEFORE,
    BUDGET,
    BUDGETS,
    FILTERED,
    FRAMES,
    MAGNIFICATIONS,
    MEASURED_AT,
    ON_VALIDATION,
    PEERS,
    RATIO,
    SCENES,
    Candidate,
    family,
    groups_of,
    keypoint_settings,
)
from choose import final_rows
from measured import minus, read
from rules import (
    detection_seconds,
    is_worth,
    kinds_of,
    method_of,
    model_seconds,
    patch_scores,
    rank_filters,
    rank_frames,
    rank_keypoints,
    rank_models,
    taken_filters,
    taken_keypoints,
    taken_model,
    taken_row,
)

from matchkernel.evaluation.uncertainty import Estimate, estimate
from matchkernel.report.tables import NOTHING, markdown_table

NOT_YET = "*Not measured yet.*"
UNRELATED = "unrelated_photos.json"
SCENE_TABLES = ("sceaux", "fountain", "truck")  # of COLMAP


def percent(value: float, bold: bool = False) -> str:
    """A score."""
    text = f"{value:.1f}"
    return f"**{text}**" if bold else text


def shown(found: Estimate) -> str:
    """A score with its ±."""
    return found.text()


def signed(found: Estimate) -> str:
    """A difference with its standard error."""
    return f"{100 * found.mean:+.1f} ± {100 * found.std:.1f}".replace("-", "−")


def keypoints() -> str:
    """The value of every way to fill the budget, and its seconds of detection."""
    seconds = detection_seconds()
    rows = {row.name: row for row in rank_keypoints(read("keypoints"), seconds)}
    best = taken_keypoints()
    lines = []
    for (choice, turns, contrast), row in rows.items():
        is_taken = keypoint_settings()[row.name] == best
        lines.append(
            [
                f"`{choice}`",
                turns,
                f"{contrast}",
                percent(row.value, is_taken),
                f"{row.below:.1f} ± {row.error:.1f}" + (" =" if row.ties else ""),
                f"{row.cost:.2f}",
            ]
        )
    head = ["choice", "orientations", "contrast", "value", "below the best", "detection, s"]
    return markdown_table(head, lines, text_columns=["orientations"])


def keypoints_by_descriptor() -> str:
    """What the choice of keypoints gives each descriptor."""
    found, now = read("keypoints"), taken_keypoints()
    lines = []
    for method in ON_VALIDATION:
        for group in groups_of(method):
            kept = f"ratio:{RATIO}"
            keys = [Candidate(method, changes, kept).key for changes in (BEFORE, now)]
            scores = [found.scores(key, SCENES[group]) for key in keys]
            gain = estimate(minus(scores[1], scores[0]))
            lines.append([f"`{method}`", group, *(shown(estimate(part)) for part in scores), signed(gain)])
    head = ["descriptor", "scenes", "before", "taken", "difference"]
    return markdown_table(head, lines, text_columns=["scenes"])


def filters() -> str:
    """Every descriptor with every filter that was measured; the calibrated ratio in brackets."""
    found, now = read("filters"), MEASURED_AT
    order = {row.name: row for row in rank_filters(found, now)}
    best = taken_filters()["dual"].partition(":")[0]
    lines = []
    for method in FILTERED:
        kinds = {"none": "none", **kinds_of(found, method, now)}
        if method in ("sift", "rootsift"):  # the distance of the others, far above theirs, tests nothing
            kinds = {kind: kinds[kind] for kind in ("none", "ratio")}
        cells = []
        for kind in ("none", *order):
            if kind not in kinds:
                cells.append(NOTHING)
                continue
            score = found.score(Candidate(method, now, kinds[kind]).key, SCENES["validation"])
            ratio = f" ({kinds[kind].partition(':')[2]})" if kind == "ratio" else ""
            cells.append(shown(score) + ratio)
        lines.append([f"`{method}`", *cells])
    lines.append(["mean of ours", NOTHING, *(percent(row.value, row.name == best) for row in order.values())])
    lines.append(["below the best", NOTHING, *(f"{row.below:.1f} ± {row.error:.1f}" for row in order.values())])
    limits = {kind: kept.partition(":")[2].replace(",", ", ") for kind, kept in kinds_of(found, "dual", now).items()}
    head = [kind if kind == "ratio" else f"{kind} {limits[kind]}" for kind in order]
    return markdown_table(["descriptor", "none", *head], lines)


def models() -> str:
    """Models and magnifications."""
    found, now = read("models"), MEASURED_AT
    seconds, scores, best = model_seconds(), patch_scores(), taken_row()
    rows = {row.name: row for row in rank_models(found, seconds)}
    lines = []
    for name in dict.fromkeys(method_of(key) for key in found.rows):
        cells = []
        for size in MAGNIFICATIONS:
            key = next(
                (k for k in rows if k.startswith(Candidate(name, {**now, "magnification": size}, "").key + " ")), None
            )
            if key is None:
                cells.append(NOTHING)
                continue
            score = found.score(key, SCENES["validation"])
            text = f"**{shown(score)}**" if key == best else shown(score)
            cells.append(text + (" =" if rows[key].ties else ""))
        cost = seconds["light" if name.startswith("light") else "dual"]
        matching = f"{scores[name]:.2f}" if name in scores else NOTHING
        lines.append([f"`{name}`", *cells, matching, f"{cost:.1f}"])
    head = ["model", *(f"{size:g} σ" for size in MAGNIFICATIONS), "matching, patches", "s/photo"]
    return markdown_table(head, lines)


def frames() -> str:
    """Other frames, and whether they are worth their time."""
    found, default = read("frames"), taken_model()
    timed = read("seconds").rows
    names = {Candidate(default.method, {**default.changes, **c}, default.filter).key: n for n, c in FRAMES.items()}
    start = seconds_of(default, timed)
    base = found.score(default.key, SCENES["validation"])
    lines = [["as above", shown(base), NOTHING, _time(start), ""]]
    for key, difference in rank_frames(found, default):
        changes = {**default.changes, **FRAMES[names[key]]}
        took = seconds_of(Candidate(default.method, changes), timed)
        is_taken = took is not None and start is not None and is_worth(difference, took, start)
        score = shown(found.score(key, SCENES["validation"]))
        lines.append([names[key], score, signed(difference), _time(took), "yes" if is_taken else "no"])
    head = ["frames", "mAA(10°)", "difference", "s/photo", "taken"]
    return markdown_table(head, lines, text_columns=["taken"])


def seconds_of(candidate: Candidate, timed: dict[str, Any]) -> float | None:
    """Measured seconds per photo of a method at its keypoints, whatever its filter and the size of its regions.

    Weights that were not timed take as long as those of the same architecture.
    """
    plain = {name: value for name, value in candidate.changes.items() if name != "magnification"}
    names = dict.fromkeys([candidate.method, family(candidate.method)])
    keys = [Candidate(name, changes).key for name in names for changes in (candidate.changes, plain)]
    return next((timed[key]["seconds"] for key in keys if key in timed), None)


def _time(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def label(candidate: Candidate, default: Candidate) -> str:
    """A name in the table of all methods: what differs from the default."""
    name = f"`{candidate.method}`"
    if candidate.key == default.key:
        return f"**{name}, the new default**"
    if candidate.key == Candidate("dual", BEFORE, "distance").key:
        return f"{name}, the default before"
    words = []
    if candidate.method not in PEERS:
        if all(candidate.changes.get(key) == value for key, value in BEFORE.items()):
            words.append("strongest keypoints")
        for frame, changes in FRAMES.items():
            if candidate.changes == {**default.changes, **changes}:
                words.append(frame)
    if candidate.method == default.method and candidate.filter != default.filter:
        words.append(f"filter {candidate.filter.partition(':')[0]}")
    return ", ".join([name, *words])


def every_method(split: str) -> str:
    """All rows at 2,000 keypoints: scenes, mean, difference to the new default, seconds, licence."""
    found, default = read("test" if split == "test" else "final"), taken_model()
    rows = [row for row in final_rows() if row.budget == BUDGET and row.key in found.rows]
    scenes, timed = SCENES[split], read("seconds").rows
    base = found.scores(default.key, scenes)
    lines = []
    for row in rows:
        stored = found.rows[row.key]
        cells = [shown(found.score(row.key, [scene])) for scene in scenes]
        cells += [shown(found.score(row.key, scenes)), shown(found.score(row.key, scenes, 5))]
        difference = NOTHING if row.key == default.key else signed(estimate(minus(found.scores(row.key, scenes), base)))
        matches = sum(stored["scenes"][scene]["matches"] for scene in scenes) / len(scenes)
        facts = [f"{matches:.0f}", _time(seconds_of(row, timed)), stored["licence"]]
        lines.append([label(row, default), *cells, difference, *facts])
    head = ["method", *scenes, "mean", "mAA(5°)", "to the new default", "matches", "s/photo", "licence"]
    return markdown_table(head, lines, text_columns=["licence"])


def budgets(split: str) -> str:
    """mAA(10°) at other numbers of keypoints."""
    found, default = read("test" if split == "test" else "final"), taken_model()
    cells: dict[str, dict[int, str]] = {}
    for row in final_rows():
        budget = row.budget
        name = label(
            Candidate(row.method, {k: v for k, v in row.changes.items() if k != "keypoints"}, row.filter), default
        )
        if row.key in found.rows:
            cells.setdefault(name, {})[budget] = shown(found.score(row.key, SCENES[split]))
    lines = [[name, *(part.get(b, NOTHING) for b in BUDGETS)] for name, part in cells.items() if len(part) > 1]
    head = ["method", *(f"{budget:,} keypoints" for budget in BUDGETS)]
    return markdown_table(head, lines) if lines else NOT_YET


def reconstructions() -> str:
    """COLMAP's models of scenes from different features, with the settings of `colmap` before and now."""
    lines = []
    for scene in SCENE_TABLES:
        for when, file in (("before", f"colmap_{scene}.json"), ("now", f"colmap_{scene}_photos.json")):
            path = measured.RESULTS / file
            rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            for name, row in rows.items():
                model = name.partition(",")[0]  # the rest are the settings before
                if "COLMAP" in model and when == "now":
                    continue  # the same
                words = model if "COLMAP" in model else f"`{model}`, {when}"
                counts = [f"{row['keypoints']:,}", f"{row['registered']} of {row['images']}", f"{row['points']:,}"]
                lines.append([scene, words, *counts, f"{row['track_length']:.2f}", f"{row['error']:.3f}"])
    head = ["scene", "features", "keypoints", "registered", "points", "track length", "error, px"]
    return markdown_table(head, lines, text_columns=["features"])


def unrelated() -> str:
    """How many pairs of photos of one scene, and of two, `match` tells right."""
    path = measured.RESULTS / UNRELATED
    if not path.is_file():
        return NOT_YET
    rows = json.loads(path.read_text(encoding="utf-8"))["summary"]
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows], text_columns=["filter", "geometries"])


def sizes() -> str:
    """Images and pairs of every scene that was scored."""
    known: dict[str, Any] = {}
    for name in ("keypoints", "final", "test"):
        known |= read(name).about.get("scenes", {})
    lines = []
    for group, scenes in SCENES.items():
        lines += [
            [scene, group, f"{known[scene]['images']}", f"{known[scene]['pairs']}"]
            for scene in scenes
            if scene in known
        ]
    return markdown_table(["scene", "group", "images", "pairs"], lines, text_columns=["group"])


def if_measured(table: Callable[[], str], *names: str) -> Callable[[], str]:
    """A table that says so while one of the files that it needs is missing."""

    def made() -> str:
        return table() if all(read(name).rows for name in names) else NOT_YET

    return made


STEPS: Iterable[str] = ("keypoints", "seconds", "filters", "models")
TABLES: dict[str, Callable[[], str]] = {
    "photo-scenes": if_measured(sizes, "keypoints"),
    "photo-keypoints": if_measured(keypoints, "keypoints", "seconds"),
    "photo-keypoints-by-descriptor": if_measured(keypoints_by_descriptor, "keypoints", "seconds"),
    "photo-filters": if_measured(filters, "keypoints", "seconds", "filters"),
    "photo-models": if_measured(models, *STEPS),
    "photo-frames": if_measured(frames, *STEPS, "frames"),
    "photo-validation": if_measured(lambda: every_method("validation"), *STEPS, "final"),
    "photo-test": if_measured(lambda: every_method("test"), *STEPS, "test"),
    "photo-budgets": if_measured(lambda: budgets("test"), *STEPS, "test"),
    "photo-reconstructions": reconstructions,
    "photo-unrelated": unrelated,
}
