"""Draw camera poses against seconds per pair.

    python experiments/photos/chart.py docs/images/photos_poses.png
    python experiments/photos/chart.py OUT.png --pairs

On validation scenes: methods with 2,000 keypoints, from the results of run.py (step `matchers`) and of
keypoint_seconds.py. With --pairs: a line by number of keypoints, from the results of keypoint_seconds.py, a finished
study (keypoints.json) and, for ALIKED with LightGlue, estimators.py.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from estimators import DEGREES, SCENES

from matchkernel.evaluation.uncertainty import Spread, estimate
from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, new_figure, save_png

OURS = "choice=largest contrast=0.01 magnification=6.0 orientations=all"
INT8 = "engine=onnx-int8 estimator=refined"
SHOWN = {  # by name: a row of the results
    "RootSIFT": "rootsift | choice=largest contrast=0.01 orientations=all | ratio:0.9 | estimator=refined",
    "tiny": f"tiny | {OURS} | ratio:0.93 | {INT8}",
    "tiny, context": f"tiny | {OURS} | context | {INT8}",
    "small-wide,\nthe default": f"small-wide | {OURS} | ratio:0.93 | {INT8}",
    "small-wide, aligned": f"small-wide | {OURS} | ratio:0.93 | aligned=True {INT8}",
    "small-wide, context": f"small-wide | {OURS} | context | {INT8}",
    "small-wide, context, aligned": f"small-wide | {OURS} | context | aligned=True {INT8}",
    "light-wide": f"light-wide | {OURS} | ratio:0.93 | {INT8}",
    "light-wide, aligned": f"light-wide | {OURS} | ratio:0.93 | aligned=True {INT8}",
    "light-wide, context, aligned": f"light-wide | {OURS} | context | aligned=True {INT8}",
    "XFeat + LighterGlue": "xfeat+lighterglue | none | estimator=refined",
    "ALIKED + LightGlue": "aliked-n16+lightglue | none | estimator=magsac pixels=0.25",
}
KINDS = {  # starts of names, in the order in which they are looked up
    ("ALIKED", "XFeat"): ("networks with keypoints of their own", ORANGE),
    ("RootSIFT",): ("RootSIFT", GRAY),
    ("",): ("networks at the keypoints of SIFT", BLUE),
}
BESIDE, LEFT, BELOW = (7, 4), (-7, 4), (7, -11)  # places of a name, in points
FAR = 20  # from there on a line leads to the name
PLACES = {
    "tiny": (-7, -11),
    "tiny, context": (-45, 10),
    "small-wide,\nthe default": (-45, 10),
    "small-wide, context": BELOW,
    "small-wide, context, aligned": (7, 12),
    "light-wide": BELOW,
    "light-wide, aligned": BELOW,
    "XFeat + LighterGlue": BELOW,
}
RESULTS = Path(__file__).parents[1] / "results"
LINES = {  # by method and filter of keypoint_seconds.json: colour, and the place of its labels
    "rootsift ratio": (GRAY, (6, -8)),
    "tiny ratio": (GREEN, (-6, 7)),
    "light-wide ratio": (BLUE, (6, -8)),
    "light-wide context": (BLACK, (-6, 7)),
}
PAIR_SECONDS = "seconds per pair: two photos, matching and pose; processor time of one thread"
PEER, PEER_ESTIMATORS = "aliked-n16+lightglue", {"refined 0.5": "refined", "magsac 0.25": "MAGSAC 0.25 px"}


def score(scenes: dict[str, Any], prefix: str = "") -> Spread:
    """mAA(10°) on the validation scenes from the characters of their poses."""
    values = {letter: 1 - number / len(DEGREES) for number, letter in enumerate(DEGREES)}
    parts = {name: scenes[prefix + name] for name in SCENES["validation"]}
    pairs = {
        name: np.array([values.get(letter, 0.0) for letter in part["poses"]]).reshape(-1, part["orders"]).mean(1)
        for name, part in parts.items()
    }
    return estimate(pairs)


def pair_seconds(row: dict[str, float]) -> float:
    """Of two photos and their pair."""
    return 2 * row["extract"] + row["match"] + row["estimate"]


def draw_budgets(axes: Any) -> None:
    """Lines by number of keypoints, and ALIKED with LightGlue at 2,000."""
    timed, poses, known = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
        for name in ("keypoint_seconds", "keypoints", "estimators")
    )
    for line, (colour, offset) in LINES.items():
        method, kept = line.split()
        points = []
        for key, row in timed.items():
            budget = key.removeprefix(f"{line} ")
            scored = poses.get(f"{method} largest {budget} {kept}", {"scenes": {}})["scenes"]
            if budget.isdigit() and set(SCENES["validation"]) <= set(scored):
                points.append((int(budget), pair_seconds(row), score(scored)))
        points.sort(key=lambda point: point[0])
        seconds, means = [x for _, x, _ in points], [100 * y.mean for _, _, y in points]
        deviations = [100 * (y.std or 0) for _, _, y in points]
        axes.errorbar(seconds, means, deviations, color=colour, label=line.replace(" ", ", "), fmt="o-", capsize=2)
        for (budget, x, _), y in zip(points, means, strict=True):
            look = {"color": colour, "fontsize": 8, "va": "center", "ha": "left" if offset[0] > 0 else "right"}
            axes.annotate(f"{budget:,}", (x, y), offset, textcoords="offset points", **look)
    for number, (estimator, text) in enumerate(PEER_ESTIMATORS.items()):
        found, x = score(known[estimator]["scenes"], f"{PEER}/"), pair_seconds(timed[f"{PEER} ratio 2000"])
        look = {"color": ORANGE, "fmt": "os"[number], "capsize": 2, "label": f"ALIKED + LightGlue, {text}"}
        axes.errorbar(x * 1.04**number, 100 * found.mean, 100 * (found.std or 0), **look)
        axes.annotate("2,000", (x * 1.04**number, 100 * found.mean), (6, 4), textcoords="offset points", fontsize=8)
    axes.set_xlabel(PAIR_SECONDS)
    axes.set_title("Relative poses on validation, by number of keypoints; estimator refined", fontsize=11, loc="left")


def draw_methods(axes: Any) -> None:
    """Methods of SHOWN."""
    timed, scored = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
        for name in ("matcher_seconds", "photos_matchers")
    )
    for name, key in SHOWN.items():
        seconds, found = pair_seconds(timed[key]), score(scored[key]["scenes"])
        kind, colour = next(look for starts, look in KINDS.items() if name.startswith(starts))
        look = {"color": colour, "label": kind, "fmt": "o", "capsize": 2, "markersize": 5}
        axes.errorbar(seconds, 100 * found.mean, 100 * (found.std or 0), **look)
        offset = PLACES.get(name, BESIDE)
        side = "left" if offset[0] > 0 else "right"
        far = {"arrowprops": {"arrowstyle": "-", "color": colour, "lw": 0.7}} if abs(offset[0]) > FAR else {}
        axes.annotate(name, (seconds, 100 * found.mean), offset, textcoords="offset points", ha=side, fontsize=8, **far)
    axes.set_xlabel(PAIR_SECONDS)
    axes.set_title(
        "Relative poses on validation, 2,000 keypoints, the best estimator of each method", fontsize=11, loc="left"
    )


def main() -> None:
    """Draw a chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", action="store_true", help="by number of keypoints")
    options = parser.parse_args()
    figure = new_figure(9.0, 5.6)
    axes = figure.subplots()
    (draw_budgets if options.pairs else draw_methods)(axes)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.2)
    axes.set_ylabel("mAA(10°), %")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(dict(zip(labels, handles, strict=True)).values(), dict.fromkeys(labels), loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
    save_png(figure, options.out)


if __name__ == "__main__":
    main()
