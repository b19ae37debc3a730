"""The ablation tables of docs/results.md, and which of its jobs may stand in one table."""

import json
import re
from pathlib import Path

from choices import BASE, choices_table, validation_scores
from gather import TASKS, Everything, Result, Results, by_name, percent, score, without_seed
from image_pairs import machine, means_of_sequences
from jobs import KAPPAS
from tables import NOT_RUN, caution, cell, markdown, origin

from matchkernel.geometry.conventions import SET_MAGNIFICATION

MAIN = """### Ablations

One change at a time from `base`: `dual`, s = 2, κ = 8, trained on group A, half as long as the descriptors above; a
longer training may order them differently. `encoding-norm-s1` is to be compared with `kappa-s1-1`, the same without
the norm. The amounts of `geometry-…` are none, half and double of the preset's; flips stay. The steps of `pairs-…` are
as many as those of `base`, so they see more pairs in all; what larger batches alone give is
[further down](#what-adds-to-the-best) (`best-2048-in-4096`, `best-2048-in-8192`)."""

KAPPA = """### κ by s

Matching of the rows above (mean ± standard deviation over seeds), κ of both coordinate systems together."""

POSITIVES = """### Tracks alone, or geometric positives too

Trained on group B, where brandenburg has the keypoints geometric positives are found among; scored on the same
validation sets as all others."""

MAGNIFICATION = f"""### Magnification of the region

Patches cut at another magnification are other patches: each row is trained **and scored on its own cut**, so the rows
do not say which is better, and none is compared with the tables above, whose magnification is {SET_MAGNIFICATION:g}
(the first row)."""

ON_PHOTOS = f"""On photos of validation all have the same keypoints and can be compared: the weights of these rows (of
`base`, seed 0 trained once more, the first weights were not kept), with regions of each magnification; right matches a
pair / homographies within 3 px in %, means of sequences (scored as in [match.md](match.md#choices), each with its own
calibrated distance, one training each).

{{table}}

*{{origin}}*

Used at 8 or 10 σ, training on larger regions gives more right matches, used at 5 σ fewer; homographies follow no
order. On the patches of `base`, cut at 6 σ, the weights trained at others lose: {{patches}}. In use 8 σ were chosen
by `experiments/results/magnification.json` ([match.md](match.md#choices)). The sets stay at {SET_MAGNIFICATION:g} σ,
the cut that every other table shares; what larger regions give the shipped
models [stands below](#larger-regions)."""
TRAINED_AT = Path(__file__).parents[1] / "results" / "training_magnification.json"
POSITIVES_BASE = "positives-geometric"


def parts_of(results: Results) -> dict[str, Results]:
    """The jobs that may be compared with each other: `main`, `positives`, and `magnification`, by itself each."""
    parts: dict[str, Results] = {"main": {}, "positives": {}, "magnification": {}}
    for name, result in results.items():
        is_positives = name.startswith("positives-")
        part = "magnification" if result.get("score_cut") else "positives" if is_positives else "main"
        parts[part][name] = result
    return parts


def ablation_sections(everything: Everything) -> list[str]:
    """All tables, each where it has rows."""
    parts = parts_of(everything.get("ablation", {}))
    main, positives = (list(parts[name].values()) for name in ("main", "positives"))
    found = [MAIN, *([choices_table(parts["main"]), origin(main), caution(main, "validation")] if main else [NOT_RUN])]
    kappas = kappa_runs(parts["main"])
    if len(kappas) > 1:
        found += [KAPPA, kappa_table(kappas), origin(run for runs in kappas.values() for run in runs)]
    if positives:
        table = choices_table(parts["positives"], POSITIVES_BASE)
        found += [POSITIVES, table, origin(positives), caution(positives, "validation")]
    if parts["magnification"]:
        base = {name: run for name, run in parts["main"].items() if without_seed(name) == BASE}
        rows = {**base, **parts["magnification"]}
        found += [MAGNIFICATION, magnification_table(rows), origin(rows.values()), on_photos(TRAINED_AT)]
    return found


def kappa_runs(main: Results) -> dict[tuple[int, int], list[Result]]:
    """(s, kappa) -> models, `base` among them."""
    groups = {name: runs for name, runs in by_name(main).items() if name == BASE or re.match(r"kappa-s\d+-\d+$", name)}
    configurations = {name: runs[0]["configuration"] for name, runs in groups.items()}
    return {(c["s"], int(c["kappa_polar"])): groups[name] for name, c in configurations.items()}


def kappa_table(kappas: dict[tuple[int, int], list[Result]]) -> str:
    """Matching on the validation sequences, a row for each s; the best of all is bold."""
    scores = {place: score(runs, "validation", "matching") for place, runs in kappas.items()}
    best = max(filter(None, scores.values()), key=lambda spread: spread.mean, default=None)
    rows = []
    for s in sorted({s for s, _ in scores}):
        row = [scores.get((s, kappa)) for kappa in KAPPAS]
        rows.append([s, *(f"**{v}**" if v is not None and v is best else cell(v) for v in row)])
    return markdown(["s", *(f"κ = {kappa}" for kappa in KAPPAS)], rows)


def magnification_table(results: Results) -> str:
    """Scores on patches of each magnification, none bold."""
    rows = []
    for name, runs in by_name(results).items():
        cut = runs[0].get("score_cut", f"x{SET_MAGNIFICATION:g}")
        rows.append([f"`{name}`", cut.removeprefix("x"), len(runs), *map(cell, validation_scores(runs))])
    return markdown(["name", "magnification", "seeds", *TASKS, "FPR@95, hard", "mAP"], rows)


def on_photos(path: Path) -> str:
    """The same weights on pairs of photos, with regions of each magnification; nothing where there is no file."""
    if not path.exists():
        return ""
    means, used = means_of_sequences(path), json.loads(path.read_text(encoding="utf-8"))["magnifications"]
    names = {name.split(", x")[0]: None for name in means}
    rows = []
    for name in sorted(names, key=trained_at):
        found = [means[f"{name}, x{size:g}"] for size in used]
        rows.append([f"{trained_at(name):g} σ", *(f"{f['right']:.0f} / {100 * f['H 3 px']:.1f}" for f in found)])
    table = markdown(["trained at", *(f"used at {size:g} σ" for size in used)], rows)
    return ON_PHOTOS.format(table=table, origin=machine(path), patches=", ".join(at_six(path.parent)))


def at_six(folder: Path) -> list[str]:
    """Matching on validation patches of 6 sigma, by `matchkernel evaluate hpatches`, of weights trained at others."""
    found = []
    for size in (8, 10):
        path = folder / f"magnification_{size}_at_6.json"
        if path.exists():
            mean = json.loads(path.read_text(encoding="utf-8"))["matching"]["mean"]["all"]["ap_trapezoid"]
            found.append(f"those of {size} σ have matching {percent(mean)} there")
    return found


def trained_at(name: str) -> float:
    """The magnification of a model of the ablation: `magnification-8-seed0` -> 8."""
    found = re.match(r"magnification-(\d+)", name)
    return float(found.group(1)) if found else SET_MAGNIFICATION
