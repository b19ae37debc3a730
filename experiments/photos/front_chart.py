"""The chart of small networks in docs/models.md: matching and poses on validation against microseconds per patch."""

import json
from typing import TYPE_CHECKING, NamedTuple

from candidates import DESDIS, SCENES, SMALLER_DESDIS
from choose import final_rows
from measured import RESULTS, read
from own_jobs import FROM_POSES, FROM_STUDENTS, PACKAGE  # of experiments/paper
from photo_names import write_names
from results import look
from results import read as read_paper

from matchkernel.plots.canvas import BLUE, GRAY, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRONT = RESULTS / "front.json"
STUDENTS_RATIO = "ratio:0.93"  # that calibrated for `tiny`
SHORT = "-x6"  # ending of small networks trained longer; the others have a quarter of the updates of `light`


class Point(NamedTuple):
    """A descriptor: microseconds per patch, in int8 where it has that, and its scores in per cent."""

    us: float
    us_int8: float | None
    matching: float | None
    poses: float | None
    colour: str
    filled: bool


def points() -> dict[str, Point]:
    """Every descriptor that was timed."""
    content = json.loads(FRONT.read_text(encoding="utf-8"))
    poses = poses_by_name()
    found = {}
    for timed, us in content["us"].items():
        name, _, engine = timed.partition(", ")
        if engine in ("", "onnx") and not name.startswith("kornia"):
            is_ours = engine == "onnx"
            matching = own_matching(name) if is_ours else other_matching(name, content)
            colour = BLUE if is_ours else GRAY if name == "rootsift" else ORANGE
            is_filled = not is_ours or name in shipped_jobs() or name.endswith(SHORT)
            found[name] = Point(
                us, content["us"].get(f"{name}, onnx-int8"), matching, poses.get(name), colour, is_filled
            )
    return found


def shipped_jobs() -> dict[str, tuple[str, str]]:
    """Model of the package -> experiment and job."""
    parts = {"ship": PACKAGE, "poses": FROM_POSES, "students": FROM_STUDENTS}
    return {name: (experiment, job) for experiment, part in parts.items() for name, job in part.items()}


def own_matching(name: str) -> float:
    """Matching of one of ours on the validation sequences."""
    experiment, job = shipped_jobs().get(name, ("students", name))
    return 100 * look(read_paper(experiment)[job], "validation", "matching")


def other_matching(name: str, content: dict) -> float:
    """Matching of another method on the validation sequences."""
    scored = content["matching"].get(name)
    return 100 * (look(read_paper("baselines")[name], "validation", "matching") if scored is None else scored)


def poses_by_name() -> dict[str, float]:
    """mAA(10°) on validation at 2,000 keypoints, all with the same keypoints."""
    final, students, found = read("final"), read("students"), {}
    default = next(row for row in final_rows() if "magnification" in row.changes)
    now = {name: value for name, value in default.changes.items() if name != "magnification"}
    for row in final_rows():
        same = row.changes == default.changes or (
            row.changes == now and row.method in ("rootsift", DESDIS, *SMALLER_DESDIS)
        )
        if same and row.filter.startswith("ratio") and row.key in final.rows and row.method not in found:
            found[row.method] = 100 * final.score(row.key, SCENES["validation"]).mean
    for key in students.rows:
        if key.endswith(STUDENTS_RATIO):
            found.setdefault(key.split(" | ")[0], 100 * students.score(key, SCENES["validation"]).mean)
    return found


def draw_front() -> "Figure":
    """Two panels with the same horizontal axis."""
    figure = new_figure(11.0, 5.2)
    panels = figure.subplots(1, 2)
    for axes, kind, words in zip(
        panels, ("matching", "poses"), ("matching mAP, %", "mAA(10°) of poses, %"), strict=True
    ):
        places = {}
        for name, point in points().items():
            score = getattr(point, kind)
            if score is None:
                continue
            face = point.colour if point.filled else "white"
            axes.plot(point.us, score, "o", color=point.colour, markerfacecolor=face, markersize=6)
            if point.us_int8 is not None and point.filled:
                axes.plot([point.us_int8, point.us], [score, score], "-", color=point.colour, linewidth=0.8, alpha=0.6)
                axes.plot(point.us_int8, score, "|", color=point.colour, markersize=8)
            places[name] = (point.us, score)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.15, y=0.08)
        axes.set_xlabel("µs per patch, one thread (bar to the left: int8)")
        axes.set_title(f"{words}, validation", fontsize=11, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRAY, alpha=0.25, linewidth=0.6)
        write_names(axes, places)
    return figure
