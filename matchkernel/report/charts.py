"""The charts of a report: bars with deviations, ROC curves, one row of dots per sequence, scores against costs."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from matchkernel.report.blocks import (
    RAISED,
    Curves,
    Grid,
    PerSequence,
    ReportedMethod,
    Scatter,
    by_parameters,
    say_parameters,
)  # fmt: skip
from matchkernel.report.svg import (
    WIDTH,
    apart,
    dot,
    drawing,
    hatch,
    line,
    path,
    rectangle,
    shortened,
    text,
    ticks,
)

LEFT, RIGHT = 138, 352  # of the plot; names stand left of it, values right
ROW = 32
LETTER = 8  # least distance of two letters under a bar
LOWEST_RATE = 1e-4
Series = Mapping[ReportedMethod, int]  # a method's colour and shape, the same in every chart of a page


def bar_chart(grid: Grid, number: int) -> str:
    """Bars of one column, sorted by parameters, hand-crafted ones hatched, with the deviation over runs.

    Where ties raise a value, the bar is filled up to the tie-safe value; the rest is a dashed outline.

    Args:
        grid: with `bars` and perhaps `marks` named.
        number: unique on the page.
    """
    column = grid.bars or grid.columns[0]
    methods = by_parameters([method for method, scores in grid.rows.items() if column in scores])
    scores = {method: grid.rows[method][column] for method in methods}
    reach = [score.mean + (score.std or 0) for score in scores.values()]
    marked = [grid.rows[m][mark].mean for m in methods for mark in grid.marks if mark in grid.rows[m]]
    scale = ticks(max([0.0, *reach, *marked]))
    height = ROW + 10 * bool(grid.marks)
    bottom = 8 + height * len(methods)
    parts = [hatch(number, "own"), hatch(number, "other"), *_axis(scale, 4, bottom)]
    for k, method in enumerate(methods):
        parts += _bar(grid, method, column, 8 + height * k, scale[-1], number)
        parts += _marks(grid, method, 8 + height * k, scale[-1])
    seen = ", ".join(
        f"{method.name} {score.text(grid.digits)}{' (raised by ties)' * grid.is_raised(method, column)}"
        for method, score in scores.items()
    )
    better = "lower is better" if grid.lower_is_better else "higher is better"
    return drawing(number, bottom + 20, f"{grid.title}: {column}", f"Bars, {better}: {seen}.", parts)


def curve_chart(curves: Curves, number: int, series: Series) -> str:
    """ROC curves, the false positive rate on a logarithmic axis, with a line at a recall of 95 %."""
    methods = by_parameters(list(curves.curves))
    found = [_visible(*curves.curves[method]) for method in methods]
    low = math.floor(10 * min([0.9, *(y for points in found for _, y in points)])) / 10
    parts = _rates_grid(low)
    for method, points in zip(methods, found, strict=True):
        parts.append(path([_place(*point, low) for point in points], series[method]))
    names = ", ".join(method.name for method in methods)
    return drawing(number, 306, curves.title, f"Recall over false positive rate for {names}.", parts)


def sequence_chart(block: PerSequence, number: int, series: Series) -> str:
    """One row per sequence, one dot per method, sequences sorted by their mean, the hardest last."""
    methods = by_parameters(list(block.values))
    order = sorted(range(len(block.sequences)), key=lambda k: (-_row_mean(block, k), block.sequences[k]))
    bottom = 8 + 17 * len(order)
    left, right = LEFT, WIDTH - 12
    scale = ticks(100)
    parts = _axis(scale, 4, bottom, right)
    for row, k in enumerate(order):
        y = 8 + 17 * row + 8
        values = {m: block.values[m][k] for m in methods}
        known = [value for value in values.values() if value is not None]
        parts.append(text(left - 6, y + 4, shortened(block.sequences[k], 22), "small", "end"))
        if known:
            ends = [left + (right - left) * value / 100 for value in (min(known), max(known))]
            parts.append(line(ends[0], y, ends[1], y, "range"))
        for method, value in values.items():
            if value is not None:
                words = f"{block.sequences[k]}, {method.name}: {value:.1f}"
                parts.append(dot(left + (right - left) * value / 100, y, series[method], words))
    names = ", ".join(method.name for method in methods)
    description = (
        f"One row for each of {len(order)} sequences with a dot for each of {names}; the table has the values."
    )
    return drawing(number, bottom + 20, block.title, description, parts)


def scatter_chart(block: Scatter, number: int, series: Series) -> str:
    """One point per method, its deviation as a vertical line; up and to the left is better."""
    methods = by_parameters(list(block.points))
    costs = [cost for cost, _ in block.points.values()]
    reach = [score.mean + sign * (score.std or 0) for _, score in block.points.values() for sign in (-1, 1)]
    low, high = max(0, math.floor(min(reach) / 10) * 10), min(100, math.ceil(max(reach) / 10) * 10)
    low, high = (low, high) if low < high else (low - 10, high + 10)
    steps = [factor * 10.0**power for power in range(-5, 7) for factor in (1, 2, 5)]
    first = max(step for step in steps if step <= min(costs))
    last = min(step for step in steps if step > max(costs))

    def place(cost: float, score: float) -> tuple[float, float]:
        across = math.log(cost / first) / math.log(last / first)
        return 46 + (WIDTH - 60) * across, 270 - 260 * (score - low) / (high - low)

    parts = []
    for step in (step for step in steps if first <= step <= last):
        x, y = place(step, low)
        parts += [line(x, 10, x, y, "grid"), text(x, y + 14, f"{step:g}", "small", "middle")]
    for score in range(round(low), round(high) + 1, 10):
        x, y = place(first, score)
        parts += [line(x, y, WIDTH - 14, y, "grid"), text(x - 5, y + 4, f"{score}", "small", "end")]
    for method in methods:
        cost, value = block.points[method]
        x, y = place(cost, value.mean)
        if value.std is not None:
            ends = [place(cost, min(max(value.mean + sign * value.std, low), high))[1] for sign in (-1, 1)]
            parts.append(path([(x, end) for end in ends], series[method]))
        parts.append(dot(x, y, series[method], f"{method.name}: {value.text(1)}, {cost:.3g}"))
    parts.append(text(228, 300, f"{block.cost} (logarithmic)", "small", "middle"))
    seen = ", ".join(f"{m.name} {block.points[m][1].text(1)} at {block.points[m][0]:.3g}" for m in methods)
    return drawing(number, 306, block.title, f"Points, up and to the left is better: {seen}.", parts)


def legend(methods: Sequence[ReportedMethod], kind: str, series: Series) -> str:
    """The names of the series beside their marks, as an HTML list; `kind` is "line" or "dot"."""
    items = []
    for method in by_parameters(list(methods)):
        index = series[method]
        mark = path([(1, 7), (23, 7)], index) if kind == "line" else dot(12, 7, index, method.name)
        items.append(
            f'<li><svg viewBox="0 0 24 14" aria-hidden="true">{mark}</svg>{escape(shortened(method.name, 40))}</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _bar(grid: Grid, method: ReportedMethod, column: str, y: float, top: float, number: int) -> list[str]:
    score, digits, is_raised = grid.rows[method][column], grid.digits, grid.is_raised(method, column)
    kind = "own" if method.is_ours else "other"
    width = (RIGHT - LEFT) * max(score.mean, 0) / top
    fill = f"url(#hatch{number}-{kind})" if method.hand_crafted else ""
    empty = [rectangle(LEFT, y + 4, width, 20, f"bar {kind} raised", "none")] if is_raised else []
    filled = (RIGHT - LEFT) * max(grid.safe[method][column].mean, 0) / top if is_raised else width
    parts = [
        text(LEFT - 6, y + 12, shortened(method.name, 20), "name", "end"),
        text(LEFT - 6, y + 25, f"{say_parameters(method)} parameters", "small", "end"),
        rectangle(LEFT, y + 4, filled, 20, f"bar {kind}", fill),
        *empty,
        text(RIGHT + 6, y + 14, f"{score.mean:.{digits}f}{f' {RAISED}' * is_raised}", "name"),
    ]
    if score.std is not None:
        reach = (RIGHT - LEFT) * score.std / top
        low, high = LEFT + max(width - reach, 0), LEFT + width + reach
        parts += [line(low, y + 14, high, y + 14, "whisker")]
        parts += [line(x, y + 10, x, y + 18, "whisker") for x in (low, high)]
        parts.append(text(RIGHT + 6, y + 26, f"± {score.std:.{digits}f}", "small"))
    return parts


def _marks(grid: Grid, method: ReportedMethod, y: float, top: float) -> list[str]:
    known = [mark for mark in grid.marks if mark in grid.rows[method]]
    places = [LEFT + (RIGHT - LEFT) * grid.rows[method][mark].mean / top for mark in known]
    parts = []
    for mark, x, moved in zip(known, places, apart(places, LETTER), strict=True):
        parts += [line(x, y + 20, x, y + 27, "tick"), text(moved, y + 36, mark, "tiny", "middle")]
    return parts


def _axis(scale: Sequence[float], top: float, bottom: float, right: float = RIGHT) -> list[str]:
    parts = []
    for value in scale:
        x = LEFT + (right - LEFT) * value / scale[-1]
        parts += [line(x, top, x, bottom, "grid"), text(x, bottom + 14, f"{value:g}", "small", "middle")]
    return parts


def _place(rate: float, recall: float, low: float) -> tuple[float, float]:
    """Where a point of a ROC curve is drawn; `low` is the lowest recall shown."""
    share = 1 - math.log10(rate) / math.log10(LOWEST_RATE)
    return 46 + (WIDTH - 56) * share, 270 - 260 * (recall - low) / (1 - low)


def _rates_grid(low: float) -> list[str]:
    parts = []
    for power in range(round(math.log10(LOWEST_RATE)), 1):
        x, y = _place(10.0**power, low, low)
        anchor = "end" if power == 0 else "middle"
        parts += [line(x, 10, x, y, "grid"), text(x, y + 14, f"{10.0 ** (power + 2):g} %", "small", anchor)]
    for step in range(round((1 - low) * 10) + 1):
        x, y = _place(LOWEST_RATE, low + step / 10, low)
        parts += [
            line(x, y, WIDTH - 10, y, "grid"),
            text(x - 5, y + 4, f"{100 * low + 10 * step:.0f} %", "small", "end"),
        ]
    x, y = _place(LOWEST_RATE, 0.95, low)
    parts += [line(x, y, WIDTH - 10, y, "mark"), text(x + 4, y + 12, "95 % recall", "small")]
    return [*parts, text(228, 300, "false positive rate (logarithmic)", "small", "middle")]


def _visible(rates: Sequence[float], recalls: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a curve that a chart can show: from LOWEST_RATE on, each 1 % further or half a point higher."""
    points = [(max(float(x), LOWEST_RATE), float(y)) for x, y in zip(rates, recalls, strict=True)]
    first = max((k for k, (x, _) in enumerate(points) if x == LOWEST_RATE), default=0)
    kept = points[first : first + 1]
    for point in points[first + 1 :]:
        if point[0] >= 1.01 * kept[-1][0] or point[1] >= kept[-1][1] + 0.005:
            kept.append(point)
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _row_mean(block: PerSequence, k: int) -> float:
    known = [value for values in block.values.values() if (value := values[k]) is not None]
    return math.fsum(known) / len(known) if known else -1.0
