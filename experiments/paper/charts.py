"""The charts of docs/results.md: the paper's Figures 3 and 4, what each change of the recipe gave, and tolerances."""

from statistics import fmean
from typing import TYPE_CHECKING

from claims import UNAUGMENTED
from own_jobs import BEST, BEST_CHANGES, RECIPE
from results import CHANGES, FULL, FULL_TURNED, TASKS, look, parameters, percent, read, runs, score, signed

from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, PURPLE, new_figure
from matchkernel.plots.scores import Bar, draw_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Models of the chart of tolerances -> label, colour, style. Distinguishable for colour-blind readers (Okabe and Ito).
TOLERANCE = {
    (FULL, "fc-n32"): ("fc", BLACK, "-"),
    (FULL, "dual-s2-n32"): ("dual, s = 2", BLUE, "-"),
    (FULL, "cartesian-s2-n32"): ("cartesian, s = 2", ORANGE, "-"),
    (FULL, "polar-s2-n32"): ("polar, s = 2", GREEN, "-"),
    (FULL, "sum-n32"): ("sum", GRAY, "-"),
    (FULL, "sum-batch-n32"): ("sum-batch", GRAY, "--"),
    (FULL, "concat-n32"): ("concat", PURPLE, "-"),
    (FULL_TURNED, "cartesian-s2-plain"): (f"cartesian, {UNAUGMENTED}", ORANGE, ":"),
    (FULL_TURNED, "polar-s2-plain"): (f"polar, {UNAUGMENTED}", GREEN, ":"),
}
ENOUGH = 3  # standard deviations of `base`: more than the luckiest of a dozen single seeds would gain


def own_bar(experiment: str, name: str) -> Bar:
    """A descriptor of an experiment on the test sequences."""
    label = name.removesuffix("-n32").replace("-n64", ", 64 px").replace("-s", ", s = ")
    count = parameters(runs(experiment, name)[0]["configuration"])
    scores = [score(experiment, name, "test", task) for task in TASKS]
    return Bar(label, count, scores, is_ours=True, is_reference=name.startswith("fc-"))


def own_bars(*names: str) -> list[Bar]:
    """Descriptors with results on the test sequences: those that start with one of these names, or all."""
    found = dict.fromkeys(
        (experiment, job.rpartition("-seed")[0])
        for experiment in (FULL, "full_64")
        for job, result in read(experiment).items()
        if "test" in result["scores"]
    )
    return [own_bar(*pair) for pair in found if not names or pair[1].startswith(names)]


def draw_figure_3() -> "Figure":
    """Our descriptors, as in the paper's Figure 3, close up: they are near to one another."""
    return draw_scores(own_bars(), TASKS, zoom=True)


def draw_figure_4() -> "Figure":
    """Other descriptors beside three of ours at 32 and 64 px, as in the paper's Figure 4; tie-safe values."""
    others = []
    for name, result in read("baselines").items():
        if "test" in result["scores"]:
            scores = [percent([look(result, "test", "tie_safe", task)]) for task in TASKS]
            others.append(Bar(name, result["parameters"], scores, is_hand_crafted=result["hand_crafted"]))
    return draw_scores([*others, *own_bars("fc-n", "cartesian-s1-n", "dual-s2-n")], TASKS)


def draw_recipe() -> "Figure":
    """The effect of each change of the recipe on matching on validation; the band is what chance alone may give."""
    base = score("recipe", "base", "validation", "matching")
    names = [*(name for name in RECIPE if not name.startswith("base")), *(f"{BEST}{end}" for end in BEST_CHANGES)]
    gains = {name: score("recipe", name, "validation", "matching").mean - base.mean for name in names}
    rows = sorted(gains.items(), key=lambda item: -item[1])
    chance = ENOUGH * (base.std or 0)
    figure = new_figure(7.6, 1.1 + 0.29 * len(rows))
    axes = figure.subplots()
    axes.axvspan(-chance, chance, color=GRAY, alpha=0.16, linewidth=0)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    for place, (_, gain) in enumerate(rows):
        axes.barh(place, gain, height=0.72, color="#3d5a73" if abs(gain) > chance else "#c9c9c9")
        sign = 1 if gain > 0 else -1
        where = {"xytext": (4 * sign, 0), "textcoords": "offset points", "ha": "left" if sign > 0 else "right"}
        axes.annotate(signed(gain), (gain, place), va="center", fontsize=9, **where)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.16, y=0.02)
    axes.set_title("matching on validation, mAP points above or below base", fontsize=11, loc="left")
    axes.set_xlabel(f"gray: within {ENOUGH} standard deviations of base over its seeds, {chance:.2f}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color=GRAY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def draw_tolerance() -> "Figure":
    """How well changed patches are told from others, over shift, rotation and scale, mean over seeds."""
    figure = new_figure(10.5, 6.0)
    panels = figure.subplots(2, 3, sharey="row")
    rows = {"first": "match found first (%)", "auc": "other patches less similar (%)"}
    for line, (what, title) in zip(panels, rows.items(), strict=True):
        for axes, (change, unit) in zip(line, CHANGES.items(), strict=True):
            for (experiment, name), (label, colour, style) in TOLERANCE.items():
                curves = [look(run, "separability", change) for run in runs(experiment, name)]
                values = [100 * fmean(column) for column in zip(*(curve[what] for curve in curves), strict=True)]
                axes.plot(curves[0]["amounts"], values, color=colour, linestyle=style, linewidth=1.8, label=label)
            axes.set_xlabel(f"{change} ({unit})")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color=GRAY, alpha=0.25, linewidth=0.6)
        line[0].set_ylabel(title)
    panels[1][0].legend(frameon=False, fontsize=9, loc="lower left")
    return figure


CHARTS = {
    "figure_3.png": draw_figure_3,
    "figure_4.png": draw_figure_4,
    "results_recipe.png": draw_recipe,
    "results_tolerance.png": draw_tolerance,
}
