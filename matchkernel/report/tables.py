"""Tables in Markdown and HTML.

`markdown_table` is for any script that writes a page: cells are strings, numbers or `Spread`s, and the best `Spread` of
each column is bold. The `grid_` and `sequences_` functions draw the blocks of a report with the same cells.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape

from matchkernel.evaluation.uncertainty import Spread
from matchkernel.report.blocks import (
    RAISED,
    Grid,
    PerSequence,
    ReportedMethod,
    TextTable,
    best_of,
    by_parameters,
    say_parameters,
)  # fmt: skip

Cell = str | int | Spread | None
NOTHING = "–"  # in a cell without a value


def markdown_table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    lower_is_better: Collection[str] = (),
    not_compared: Collection[str] = (),
    text_columns: Collection[str] = (),
    digits: int = 2,
    scale: float = 1.0,
) -> str:
    """A Markdown table: the first column left-aligned, the others right-aligned, the best `Spread`s in bold.

    Args:
        head: names of the columns.
        rows: cells of each row; None gives a dash, whole numbers get thousands separators.
        lower_is_better: names of columns in which the lowest mean is the best.
        not_compared: first cells of the rows that do not compete for the best.
        text_columns: names of further columns that are left-aligned.
        digits: decimals of a `Spread`; means that are equal as printed are all the best.
        scale: what a `Spread` is multiplied by, 100 for shares to be shown in percent.
    """
    rows = [list(row) for row in rows]
    is_compared = [row[0] not in not_compared for row in rows]
    columns = []
    for k, name in enumerate(head):
        column = [row[k] for row in rows]
        means = [round(scale * cell.mean, digits) if isinstance(cell, Spread) else None for cell in column]
        compared = [mean for mean, is_in in zip(means, is_compared, strict=True) if is_in and mean is not None]
        best = None if len(compared) < 2 else min(compared) if name in lower_is_better else max(compared)
        texts = [cell.text(digits, scale) if isinstance(cell, Spread) else _plain(cell) for cell in column]
        columns.append(
            [
                f"**{text}**" if is_in and mean is not None and mean == best else text
                for text, mean, is_in in zip(texts, means, is_compared, strict=True)
            ]
        )
    rule = "".join("---|" if k == 0 or name in text_columns else "---:|" for k, name in enumerate(head))
    lines = [_markdown_row(head), f"|{rule}"]
    return "\n".join([*lines, *map(_markdown_row, zip(*columns, strict=True))])


def grid_rows(grid: Grid) -> Iterator[tuple[str, str, list[tuple[str, bool]]]]:
    """Name, parameters and cells of each row, sorted by parameters; hand-crafted methods are marked with an h.

    A cell is its text, and whether it is the best of its column.
    """
    best = {column: best_of(grid, column) for column in grid.columns}
    for method in by_parameters(list(grid.rows)):
        cells = [_grid_cell(grid, method, column, best[column]) for column in grid.columns]
        yield method.name + (" (h)" if method.hand_crafted else ""), say_parameters(method), cells


def _grid_cell(grid: Grid, method: ReportedMethod, column: str, best: float | None) -> tuple[str, bool]:
    score = grid.rows[method].get(column)
    if score is None:
        return NOTHING, False
    if grid.is_raised(method, column):
        return f"{score.text(grid.digits)} {RAISED}", False
    return score.text(grid.digits), round(score.mean, grid.digits) == best


def grid_markdown(grid: Grid) -> str:
    """A grid as a Markdown table with its footnote."""
    rows = [
        [name, parameters, *(f"**{cell}**" if is_best else cell for cell, is_best in cells)]
        for name, parameters, cells in grid_rows(grid)
    ]
    table = markdown_table(["method", "parameters", *grid.columns], rows)
    return "\n\n".join([table, *([grid.footnote] if grid.footnote else [])])


def grid_html(grid: Grid) -> str:
    """A grid as an HTML table with its caption, in a box that scrolls sideways on a narrow screen."""
    rows = []
    for name, parameters, cells in grid_rows(grid):
        rows.append([name, parameters, *(f"<b>{cell}</b>" if is_best else cell for cell, is_best in cells)])
    return _html_table(grid.title, ["method", "parameters", *grid.columns], rows, grid.footnote)


def sequences_markdown(block: PerSequence) -> str:
    """Values per sequence as a Markdown table, one row per sequence."""
    return markdown_table(*_sequence_rows(block))


def sequences_html(block: PerSequence) -> str:
    """Values per sequence as an HTML table."""
    return _html_table(block.title, *_sequence_rows(block))


def text_markdown(block: TextTable) -> str:
    """A table of strings in Markdown."""
    return markdown_table(block.head, block.rows)


def text_html(block: TextTable) -> str:
    """A table of strings in HTML."""
    return _html_table(block.title, block.head, [[first, *map(escape, rest)] for first, *rest in block.rows])


def _sequence_rows(block: PerSequence) -> tuple[list[str], list[list[str]]]:
    """Headings and rows."""
    methods = by_parameters(list(block.values))
    values = ([block.values[method][k] for method in methods] for k in range(len(block.sequences)))
    rows = [
        [sequence, *(NOTHING if value is None else f"{value:.1f}" for value in row)]
        for sequence, row in zip(block.sequences, values, strict=True)
    ]
    return ["sequence", *(method.name for method in methods)], rows


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], footnote: str = "") -> str:
    """Headings and first cells are escaped; the other cells are HTML."""
    headings = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "\n".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in rows
    )
    foot = f'<p class="foot">{escape(footnote)}</p>' if footnote else ""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{headings}</tr></thead>\n<tbody>{body}</tbody></table>{foot}</div>"
    )


def _plain(cell: str | int | None) -> str:
    return NOTHING if cell is None else f"{cell:,}" if isinstance(cell, int) else cell
