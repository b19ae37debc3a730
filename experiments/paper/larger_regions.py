"""Models trained on larger regions, on patches of validation and on photos: a table of docs/results.md."""

import json
from pathlib import Path
from statistics import fmean

from choices import ENOUGH, seed_spread
from gather import TASKS, Everything, by_name, percent, tasks_of
from image_pairs import Means, machine, means_of_sequences
from jobs import LARGER, PACKAGE
from shipped import runs_of
from tables import NOT_RUN, cell, markdown, origin

from matchkernel.geometry.conventions import SET_MAGNIFICATION

WORDS = """### Larger regions

The recipe of `dual` and `light` on patches cut at 8, 10 or 12 σ, both patches of a pair zoomed into alike
(`zoom_octaves`) down to {size:g} σ: the [ablation](#magnification-of-the-region) saw more right matches by larger
regions, and a loss on patches of {size:g} σ. Scored on the validation sequences, whose patches are cut at {size:g} σ,
and on photos of validation: right matches a pair / homographies within 3 px in %, by the size of the regions used, each
row with its own calibrated distances; mean of the seeds. For `dual` and for `light` that one is taken which has the
most right matches at any size, of those whose matching on patches of {size:g} σ is at most {limit} below what regions
of {size:g} σ gave ({times} standard deviations of `base`, as for the [defaults](#defaults-and-why)).

This rule was written down before these models were trained, but after the first weights were scored on test."""
PHOTOS = Path(__file__).parents[1] / "results" / "larger_regions.json"


def larger_regions_section(everything: Everything, photos: Path) -> list[str]:
    """The rule, and the table with what was measured."""
    results = everything.get("ship", {})
    groups, spread = by_name(results), seed_spread(everything.get("ablation", {}))
    cuts = ["", *(f"-{cut}" for cut in LARGER)]
    rows = {f"{name}{cut}": f"{PACKAGE[name]}{cut}" for name in ("dual", "light") for cut in cuts}
    rows = {name: job for name, job in rows.items() if job in groups}
    if spread is None:
        return []
    words = WORDS.format(size=SET_MAGNIFICATION, limit=percent(ENOUGH * spread), times=ENOUGH)
    if set(rows.values()) <= set(PACKAGE.values()):
        return [words, NOT_RUN]
    means = means_of_sequences(photos)
    used = json.loads(photos.read_text(encoding="utf-8"))["magnifications"] if means else []
    cells = []
    for name, job in rows.items():
        shown = [on_photos(means, job, f", x{size:g}") for size in used]
        cells.append([f"`{name}`", len(groups[job]), *map(cell, tasks_of(groups[job], "validation")), *shown])
    heads = ["model", "seeds", *TASKS, *(f"photos, {size:g} σ" for size in used)]
    where = [f"*Photos: {machine(photos)}*"] if means else []
    return [words, markdown(heads, cells), origin(runs_of(results, rows.values())), *where]


def on_photos(means: Means, job: str, ending: str) -> str | None:
    """Right matches / homographies within 3 px, mean of the seeds that were scored."""
    found = [means[name] for seed in ("", "-seed1") if (name := f"{job}{seed}{ending}") in means]
    if not found:
        return None
    return f"{fmean(f['right'] for f in found):.1f} / {percent(fmean(f['H 3 px'] for f in found), 1)}"
