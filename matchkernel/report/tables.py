"""The tables of a report, in Markdown and in HTML: methods by columns, the best of each column in bold."""

from collections.abc import Iterator
from html import escape

from matchkernel.report.blocks import RAISED, Grid, Method, PerSequence, best_of, by_parameters, say_parameters
from matchkernel.report.charts import say_score

Cell = tuple[str, bool]  # words, whether they are the best of their column


def grid_rows(grid: Grid) -> Iterator[tuple[str, str, list[Cell]]]:
    """Name, parameters and cells of each row, sorted by parameters; hand-crafted methods are marked with an h."""
    best = {column: best_of(grid, column) for column in grid.columns}
    for method in by_parameters(list(grid.rows)):
        cells = [_cell(grid, method, column, best[column]) for column in grid.columns]
        yield method.name + (" (h)" if method.hand_crafted else ""), say_parameters(method), cells


def _cell(grid: Grid, method: Method, column: str, best: float | None) -> Cell:
    score = grid.rows[method].get(column)
    if score is None:
        return "–", False
    words = say_score(score, grid.digits)
    if grid.is_raised(method, column):
        return f"{words} {RAISED}", False
    return words, round(score.mean, grid.digits) == best


def grid_markdown(grid: Grid) -> str:
    """A table of Markdown."""
    head = ["method", "parameters", *grid.columns]
    lines = [_markdown_row(head), "|---|" + "---:|" * (len(head) - 1)]
    for name, parameters, cells in grid_rows(grid):
        words = [f"**{cell}**" if is_best else cell for cell, is_best in cells]
        lines.append(_markdown_row([name, parameters, *words]))
    return "\n".join([*lines, *(["", grid.footnote] if grid.footnote else [])])


def grid_html(grid: Grid) -> str:
    """A table of HTML with its caption, in a box that scrolls sideways on a narrow screen."""
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in ("method", "parameters", *grid.columns))
    body = []
    for name, parameters, cells in grid_rows(grid):
        words = "".join(f"<td>{f'<b>{cell}</b>' if is_best else cell}</td>" for cell, is_best in cells)
        body.append(f'<tr><th scope="row">{escape(name)}</th><td>{parameters}</td>{words}</tr>')
    return _table(grid.title, head, body, grid.footnote)


def sequences_markdown(block: PerSequence) -> str:
    """A table of Markdown, one row per sequence."""
    methods = by_parameters(list(block.values))
    lines = [_markdown_row(["sequence", *(m.name for m in methods)]), "|---|" + "---:|" * len(methods)]
    for k, sequence in enumerate(block.sequences):
        lines.append(_markdown_row([sequence, *(_say(block.values[method][k]) for method in methods)]))
    return "\n".join(lines)


def sequences_html(block: PerSequence) -> str:
    """The same as HTML."""
    methods = by_parameters(list(block.values))
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in ("sequence", *(m.name for m in methods)))
    body = []
    for k, sequence in enumerate(block.sequences):
        cells = "".join(f"<td>{_say(block.values[method][k])}</td>" for method in methods)
        body.append(f'<tr><th scope="row">{escape(sequence)}</th>{cells}</tr>')
    return _table(block.title, head, body)


def _markdown_row(words: list[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|").replace("\n", " ") for word in words) + " |"


def _table(caption: str, head: str, body: list[str], footnote: str = "") -> str:
    rows = "\n".join(body)
    foot = f'<p class="foot">{escape(footnote)}</p>' if footnote else ""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>{foot}</div>"
    )


def _say(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
