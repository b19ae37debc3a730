"""The measured similarity maps of the descriptors, as a table."""

from gather import Everything, Result, Spread, by_name, look, score
from jobs import CONTROL, MAPPED
from tables import markdown

SHOWN = 4  # cells from p, in the table


def map_runs(everything: Everything) -> dict[str, list[Result]]:
    """Descriptor -> models at N = 32 whose similarity maps were measured, the control last."""
    groups = by_name(everything.get("descriptors", {}))
    found = {name: [r for r in groups.get(f"{name}-n32", []) if look(r, "maps")] for name in (*MAPPED, CONTROL)}
    return {name: runs for name, runs in found.items() if runs}


def map_score(runs: list[Result], name: str) -> Spread | None:
    """One number of the maps over seeds."""
    return score(runs, "maps", name)


def by_distance(runs: list[Result]) -> list[float]:
    """Mean of the scaled maps at 0, 1, ... cells from p, mean over seeds."""
    rows = [look(run, "maps", "by_distance") for run in runs]
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def maps_table(everything: Everything) -> str:
    """Share of maps with their maximum near p, what chance would give, and the mean of the maps by distance."""
    rows = []
    for name, runs in map_runs(everything).items():
        shown = [f"{value:.2f}" for value in by_distance(runs)[:SHOWN]]
        mean = sum(look(run, "maps", "mean") for run in runs) / len(runs)
        near, chance = (map_score(runs, key) for key in ("near", "near_chance"))
        words = f"{100 * chance.mean:.2f}" if chance is not None else None
        rows.append([f"`{name}`", near, words, *shown, f"{mean:.2f}"])
    distances = [f"S at {k}" for k in range(SHOWN)]
    return markdown(["descriptor", "maximum within one cell (%)", "by chance", *distances, "S anywhere"], rows)
