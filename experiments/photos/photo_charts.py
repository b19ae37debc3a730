"""The chart of docs/photos.md: poses against seconds per photo."""

from typing import TYPE_CHECKING

from candidates import BUDGET, PEERS, SCENES
from choose import final_rows
from matplotlib.transforms import Bbox
from measured import read
from photo_tables import label, seconds_of
from rules import taken_model

from matchkernel.plots.canvas import BLUE, GRAY, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


OFFSETS = [(6, 3), (6, -9), (-6, 3), (-6, -9), (6, 12), (6, -18), (-6, 12), (-6, -18), (6, 21), (-6, 21)]  # points


def write_names(axes: "Axes", places: dict[str, tuple[float, float]]) -> None:
    """Write names beside their points, where they cover no other name or point if there is such a place."""
    axes.figure.draw_without_rendering()
    points = axes.transData.transform(list(places.values()))
    taken: list[Bbox] = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in points]
    for name, place in places.items():
        tried = []
        for offset in OFFSETS:
            side = "left" if offset[0] > 0 else "right"
            text = axes.annotate(name, place, xytext=offset, textcoords="offset points", fontsize=8, ha=side)
            box = text.get_window_extent()
            tried.append((sum(box.overlaps(other) for other in taken), text, box))
            text.set_visible(False)
            if not tried[-1][0]:
                break
        _, text, box = min(tried, key=lambda one: one[0])
        text.set_visible(True)
        taken.append(box)


def charts() -> dict:
    """Name -> function, of those whose results are there."""
    return {"photos_poses.png": draw_poses} if all(read(name).rows for name in NEEDED) else {}
