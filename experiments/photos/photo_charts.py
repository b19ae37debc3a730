"""The charts drawn from the measurements of photos: poses against seconds per photo, and that of small networks."""

from typing import TYPE_CHECKING

from candidates import BUDGET, PEERS, SCENES
from choose import final_rows
from front_chart import FRONT, draw_front
from measured import read
from photo_names import write_names
from photo_tables import label, seconds_of
from rules import taken_model

from matchkernel.plots.canvas import BLUE, GRAY, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDED = ("keypoints", "seconds", "filters", "models", "final")


def draw_poses() -> "Figure":
    """mAA(10°) of every method at 2,000 keypoints against its seconds per photo; on test, if that was measured."""
    split = "test" if read("test").rows else "validation"
    found, default, timed = read("test" if split == "test" else "final"), taken_model(), read("seconds").rows
    figure = new_figure(9.0, 5.6)
    axes = figure.subplots()
    places: dict[str, tuple[float, float]] = {}
    for row in final_rows():
        seconds = seconds_of(row, timed)
        if row.budget != BUDGET or row.key not in found.rows or seconds is None:
            continue
        name = label(row, default).replace("`", "").replace("*", "")
        if "filter" in name:  # the same features
            continue
        score = found.score(row.key, SCENES[split])
        colour = ORANGE if row.method in PEERS else GRAY if row.method in ("sift", "rootsift") else BLUE
        axes.errorbar(seconds, 100 * score.mean, 100 * score.std, color=colour, fmt="o", capsize=2, markersize=5)
        places[name] = (seconds, 100 * score.mean)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.2)
    axes.set_xlabel("seconds per photo: detection and description without matching, processor time of one thread")
    axes.set_ylabel("mAA(10°), %")
    colours = "blue: networks and gray: SIFT at our keypoints, orange: peers"
    title = f"relative poses, {split} scenes, {BUDGET:,} keypoints; {colours}"
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
    write_names(axes, places)
    return figure


def charts() -> dict:
    """Name -> function, of those whose results are there."""
    if not all(read(name).rows for name in NEEDED):
        return {}
    return {"photos_poses.png": draw_poses, **({"models_front.png": draw_front} if FRONT.exists() else {})}
