"""Charts of docs/results.md: bars of the HPatches tasks, differences of recipes, curves over size and over change."""

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from choices import CHANGES, ENOUGH, curve, differences, seed_spread, sized_runs, sizes_of, tolerance_runs
from gather import TASKS, Everything, Result, score, signed, tasks_of
from maps import by_distance, map_runs
from tables import hpatches_rows

from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, new_figure, save_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour a descriptor in every chart, told apart by colour-blind readers (Okabe and Ito's palette).
COLOURS = {
    "fc": BLACK,
    "dual-s2": BLUE,
    "dual-s1": "#56b4e9",
    "cartesian-s1": ORANGE,
    "polar-s1": GREEN,
    "combined-s1": "#cc79a7",
    "concat": "#e69f00",
    "sum": GRAY,
    "sum-m": "#d4c400",
    "sum-m-plain": "#9c9000",
}
SPARE = ("#cc79a7", "#e69f00", GREEN, GRAY)  # of lines that are no such descriptor
BASELINE = "#c9c9c9"
NEUTRAL = "#3d5a73"  # where bars are not descriptors
Lines = Mapping[str, tuple[list[float], list[float]]]  # label -> places and values


def split_name(name: str) -> tuple[str, str]:
    """`dual-s2-n64` -> its descriptor and what a chart calls it, `dual s=2, 64 px`."""
    descriptor, _, size = name.partition("-n")
    if descriptor not in COLOURS or not size.isdigit():
        return name, name
    return descriptor, label(descriptor) + ("" if size == "32" else f", {size} px")


def label(descriptor: str) -> str:
    """`dual-s2` -> `dual s=2`."""
    return descriptor.replace("-s", " s=") if descriptor in COLOURS else descriptor


def bare(axes: "Axes", direction: Literal["x", "y"]) -> None:
    """No frame but the axis itself; a faint grid across the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=direction, color=GRAY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def draw_hpatches(everything: Everything) -> "Figure | None":
    """Bars of the three tasks, models of ours first, baselines in gray; whiskers are the spread over seeds."""
    rows = hpatches_rows(everything)
    if not rows:
        return None
    figure = new_figure(10.5, 1.1 + 0.29 * len(rows))
    panels = figure.subplots(1, 3, sharey=True)
    places = _places(list(rows))
    for k, (axes, task) in enumerate(zip(panels, TASKS, strict=True)):
        for place, (name, results) in zip(places, rows.items(), strict=True):
            _draw_bar(axes, place, name, results, k)
        axes.set_title(f"{task}, mAP (%)", fontsize=11, loc="left")
        axes.set_xlim(0, 1.16 * axes.dataLim.xmax)
        axes.tick_params(axis="y", length=0)
        bare(axes, "x")
    panels[0].set_yticks(places, [split_name(name)[1] for name in rows])
    panels[0].set_ylim(places[-1] + 0.7, places[0] - 0.7)
    return figure


def _places(names: list[str]) -> list[float]:
    """One below the other, a little apart where 64 px or the baselines begin."""
    kinds = ["64" if name.endswith("-n64") else "32" if split_name(name)[0] in COLOURS else "" for name in names]
    gaps = [0.0, *(1.0 if a == b else 1.5 for a, b in pairwise(kinds))]
    return list(accumulate(gaps))


def _draw_bar(axes: "Axes", place: float, name: str, results: list[Result], task: int) -> None:
    spread = tasks_of(results, "test")[task]
    if spread is None:
        return
    colour, width = COLOURS.get(split_name(name)[0], BASELINE), 100 * (spread.std or 0)
    axes.barh(place, 100 * spread.mean, height=0.72, color=colour)
    if width:
        for line, colour in ((3.2, "white"), (1.2, BLACK)):  # seen on dark bars and beside them
            axes.errorbar(100 * spread.mean, place, xerr=width, color=colour, capsize=0, linewidth=line)
    axes.annotate(
        f"{100 * spread.mean:.1f}",
        (100 * spread.mean + width, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )


def draw_recipe(everything: Everything) -> "Figure | None":
    """What each change of the recipe gives in matching on validation; the band is what chance may give."""
    found = differences(everything.get("recipe", {}))
    if not found:
        return None
    rows = sorted(found.items(), key=lambda item: -item[1])
    figure = new_figure(7.6, 1.1 + 0.29 * len(rows))
    axes = figure.subplots()
    spread = seed_spread(everything["recipe"])
    chance = ENOUGH * (spread or 0)
    if spread is not None:
        axes.axvspan(-100 * chance, 100 * chance, color=GRAY, alpha=0.16, linewidth=0)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    for place, (_, value) in enumerate(rows):
        axes.barh(place, 100 * value, height=0.72, color=NEUTRAL if abs(value) > chance else BASELINE)
        sign = 1 if value > 0 else -1
        offset: dict[str, Any] = {"xytext": (4 * sign, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(signed(value), (100 * value, place), ha="left" if sign > 0 else "right", **offset)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_title("matching on validation, mAP points above or below base", fontsize=11, loc="left")
    if spread is not None:
        words = f"gray: within {ENOUGH} standard deviations of base over its seeds, {100 * chance:.2f}"
        axes.set_xlabel(words, fontsize=9)
    bare(axes, "x")
    return figure


def draw_sizes(everything: Everything) -> "Figure | None":
    """The three tasks over the patch size a model is used at."""
    runs = sized_runs(everything)
    if not runs:
        return None
    figure = new_figure(10.5, 3.3)
    for axes, task in zip(figure.subplots(1, 3), TASKS, strict=True):
        lines = {}
        for name, results in runs.items():
            known = [(size, score(results, "sizes", str(size), task)) for size in sizes_of(runs)]
            places = [float(size) for size, spread in known if spread is not None]
            lines[name] = (places, [100 * spread.mean for _, spread in known if spread is not None])
        draw_lines(axes, lines, marker="o")
        axes.set_title(f"{task}, mAP (%)", fontsize=11, loc="left")
        axes.set(xticks=sizes_of(runs), xlabel="patch size used (px)")
    return figure


def draw_tolerance(everything: Everything) -> "Figure | None":
    """Similarity of matching patches, and share found first, over shift, rotation and scale."""
    runs = tolerance_runs(everything)
    if not runs:
        return None
    figure = new_figure(10.5, 6.0)
    panels = figure.subplots(2, 3, sharey="row")
    words = {"similarity": "similarity of matches", "first": "match found first (%)"}
    for line, (what, word) in zip(panels, words.items(), strict=True):
        for axes, (change, unit) in zip(line, CHANGES.items(), strict=True):
            lines = {}
            for name, results in runs.items():
                amounts, values = curve(results, change, what)
                lines[name] = (amounts, [100 * v for v in values] if what == "first" else values)
            draw_lines(axes, lines)
            axes.set_xlabel(f"{change} ({unit})")
        line[0].set_ylabel(word)
    return figure


def draw_maps(everything: Everything) -> "Figure | None":
    """Mean of the scaled similarity maps over the distance from p."""
    runs = map_runs(everything)
    if not runs:
        return None
    figure = new_figure(6.5, 3.6)
    axes = figure.subplots()
    lines = {name: by_distance(found) for name, found in runs.items()}
    draw_lines(axes, {name: ([float(k) for k in range(len(values))], values) for name, values in lines.items()})
    axes.set(xlabel="distance of q from p (cells)", xticks=range(max(map(len, lines.values()))))
    axes.set_title("mean of S, scaled to [0, 1] map by map", fontsize=11, loc="left")
    return figure


def draw_lines(axes: "Axes", lines: Lines, marker: str | None = None) -> None:
    """A line for each descriptor, its name at its right end, names moved apart where lines end together."""
    bare(axes, "y")
    spare = iter(SPARE)
    colours = {name: COLOURS.get(split_name(name)[0]) or next(spare, BASELINE) for name in lines}
    for name, (places, values) in lines.items():
        axes.plot(places, values, color=colours[name], linewidth=1.8, marker=marker, markersize=4)
    axes.margins(x=0.03, y=0.08)
    axes.autoscale_view()
    ends = {name: values[-1] for name, (_, values) in lines.items() if values}
    low, high = axes.dataLim.ymin, axes.dataLim.ymax
    for name, height in apart(ends, 0.075 * (high - low)).items():
        axes.annotate(
            split_name(name)[1] if name not in COLOURS else label(name),
            (1.01, height),
            xycoords=("axes fraction", "data"),
            color=colours[name],
            fontsize=9,
            va="center",
            annotation_clip=False,
        )


def apart(heights: Mapping[str, float], gap: float) -> dict[str, float]:
    """Heights moved as little as needed for neighbours to be `gap` apart: runs that touch share their centre."""
    runs: list[tuple[list[str], float]] = []  # names from low to high, and the height of their middle
    for name in sorted(heights, key=heights.__getitem__):
        names, middle = [name], heights[name]
        while runs and middle - runs[-1][1] < gap * (len(names) + len(runs[-1][0])) / 2:
            below, centre = runs.pop()
            middle = (middle * len(names) + centre * len(below)) / (len(names) + len(below))
            names = below + names
        runs.append((names, middle))
    return {n: middle + gap * (k - (len(names) - 1) / 2) for names, middle in runs for k, n in enumerate(names)}


CHARTS: dict[str, Callable[[Everything], "Figure | None"]] = {
    "results_hpatches.png": draw_hpatches,
    "results_recipe.png": draw_recipe,
    "results_sizes.png": draw_sizes,
    "results_tolerance.png": draw_tolerance,
    "results_maps.png": draw_maps,
}


def write_charts(everything: Everything, folder: Path) -> None:
    """Draw what there is; a chart of results that are gone is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in CHARTS.items():
        figure = draw(everything)
        if figure is None:
            (folder / name).unlink(missing_ok=True)
        else:
            save_png(figure, folder / name, dpi=130)
