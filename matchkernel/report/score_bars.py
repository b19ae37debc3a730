"""Results of the HPatches tasks as bars: methods with their parameters, one score per task."""

from collections.abc import Sequence
from pathlib import Path

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import Bar
from matchkernel.report.blocks import Grid, ReportedMethod
from matchkernel.report.hpatches import HEADLINES, hpatches_sections
from matchkernel.report.runs import read_runs


def score_bars(paths: Sequence[str | Path]) -> tuple[list[Bar], list[str]]:
    """Bars of all methods, and the tasks they are scored in. Where ties raise a value, its tie-safe value is taken.

    Args:
        paths: results of `matchkernel evaluate hpatches`, or folders of them; all on the same set, splits and tasks.
    """
    runs = [run for run in read_runs(paths) if run.result["kind"] == "hpatches"]
    if not runs:
        raise ArgumentError("no results of `matchkernel evaluate hpatches` among these files")
    sections = hpatches_sections(runs)
    if len(sections) > 1:
        titles = "; ".join(section.title for section in sections)
        raise ArgumentError(
            f"these results cannot share a chart: {titles}; give those of one set, split, distance and choice of tasks"
        )
    grids = {block.title.lower(): block for block in sections[0].blocks if isinstance(block, Grid)}
    tasks = [task for task in HEADLINES if task in grids]
    methods = list(grids[tasks[0]].rows)
    return [_bar(method, [grids[task] for task in tasks]) for method in methods], tasks


def _bar(method: ReportedMethod, grids: Sequence[Grid]) -> Bar:
    is_reference = method.configuration.startswith("fc-")
    scores = [_score(grid, method) for grid in grids]
    is_raised = any(grid.is_raised(method, "mean") for grid in grids)
    return Bar(method.name, method.parameters, scores, method.is_ours, method.hand_crafted, is_reference, is_raised)


def _score(grid: Grid, method: ReportedMethod) -> Spread:
    rows = grid.safe if grid.is_raised(method, "mean") else grid.rows
    return rows[method]["mean"]
