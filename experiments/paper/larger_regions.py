"""Models trained on larger regions, on patches of validation and on photos: a table of docs/results.md."""

import json
from pathlib import Path

from choices import ENOUGH, seed_spread
from gather import TASKS, Everything, by_name, percent, tasks_of
from image_pairs import machine, means_of_sequences
from jobs import LARGER, PACKAGE
from tables import cell, markdown, origin

from matchkernel.geometry.conventions import SET_MAGNIFICATION

WORDS = """### Larger regions

The recipe of `dual` and `light` on patches cut larger, after the [ablation](#magnification-of-the-region): at 10 σ,
and at 10 or 12 σ with both patches of a pair zoomed into alike (`zoom_octaves`), down to 6 σ. Scored on the validation
sequences, whose patches are cut at {size:g} σ, and on photos of validation: right matches a pair / homographies within
3 px in %, by the size of the regions used, each row with its own calibrated distances. Taken is the one with the most
right matches at the size that gives it most, unless on patches of {size:g} σ its matching is more than {limit} below
what regions of {size:g} σ gave ({times} standard deviations of `base`, as for the [defaults](#defaults-and-why))."""
PHOTOS = Path(__file__).parents[1] / "results" / "larger_regions.json"


def larger_regions_section(everything: Everything, photos: Path) -> list[str]:
    """The table, with what was measured; nothing before a first model was."""
    groups = by_name(everything.get("ship", {}))
    spread = seed_spread(everything.get("ablation", {}))
    rows = {f"{name}-{cut}": f"{job}-{cut}" for name, job in PACKAGE.items() for cut in LARGER}
    rows = {name: job for name, job in rows.items() if job in groups}
    if not rows or spread is None:
        return []
    means = means_of_sequences(photos)
    used = json.loads(photos.read_text(encoding="utf-8"))["magnifications"] if means else []
    cells = []
    for name, job in {**{name: job for name, job in PACKAGE.items() if _has_larger(name, rows)}, **rows}.items():
        found = [means.get(f"{job}, x{size:g}") for size in used]
        shown = [f"{f['right']:.0f} / {100 * f['H 3 px']:.1f}" if f else None for f in found]
        cells.append([f"`{name}`", len(groups[job]), *map(cell, tasks_of(groups[job], "validation")), *shown])
    words = WORDS.format(size=SET_MAGNIFICATION, limit=percent(ENOUGH * spread), times=ENOUGH)
    heads = ["model", "seeds", *TASKS, *(f"photos, {size:g} σ" for size in used)]
    where = [f"*Photos: {machine(photos)}*"] if means else []
    runs = [run for job in rows.values() for run in groups[job]]
    return [words, markdown(heads, cells), origin(runs), *where]


def _has_larger(name: str, rows: dict[str, str]) -> bool:
    return any(row.startswith(f"{name}-x") for row in rows)
