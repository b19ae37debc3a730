"""Tables of what was decided on validation: ablations and recipes; and of sizes and tolerance."""

import json
from typing import Any

from gather import (
    TASKS,
    Everything,
    Result,
    Results,
    Spread,
    by_name,
    look,
    sampling,
    scene_score,
    score,
    signed,
    spread_of,
    tasks_of,
)
from tables import cell, markdown

from matchkernel.training.config import TrainingConfig

BASE = "base"
ENOUGH = 3  # times the spread of `base`: what the luckiest of a dozen single seeds does not reach
HARD = "FPR@95, hard"
UNTOLD = ("log_every", "save_every", "validate_every", "steps", "seed", "preset")  # of no effect, or told elsewhere
CURVES = ("cartesian-s1", "polar-s1", "dual-s2", "fc", "sum")  # those whose curves the paper argues with
CHANGES = {"shift": "half sides", "rotation": "degrees", "scale": "octaves"}


def validation_scores(results: list[Result]) -> list[Spread | None]:
    """Three tasks on validation sequences; FPR@95 of hard pairs and mAP, mean of the validation scenes."""
    return [*tasks_of(results, "validation"), scene_score(results, "fpr95", "hard"), scene_score(results, "map")]


def choices_table(results: Results, base_name: str = BASE) -> str:
    """One row for each choice, with what it changes and, where there is a base, the difference to it."""
    groups = by_name(results)
    base = groups.get(base_name)
    head = ["name", f"differs from {f'`{base_name}`' if base else 'the preset `paper`'} in", "steps × pairs", "seeds"]
    head += [*TASKS, *(["matching, difference"] if base else []), HARD, "mAP"]
    start = base[0] if base else {"settings": _defaults()}
    rows, gains = [], differences(results, base_name)
    for name, runs in groups.items():
        three, scenes = validation_scores(runs)[:3], validation_scores(runs)[3:]
        change = [signed(gains[name]) if name in gains else None] if base else []
        rows.append(
            [f"`{name}`", changed(runs[0], start), steps_and_pairs(runs[0]), len(runs), *three, *change, *scenes]
        )
    return markdown(head, rows, low=(HARD,))


def differences(results: Results, base_name: str = BASE) -> dict[str, float]:
    """Matching on the validation sequences less that of the base, mean over seeds, of every choice but the base."""
    groups = by_name(results)
    found = {name: score(runs, "validation", "matching") for name, runs in groups.items()}
    base = found.pop(base_name, None)
    return {name: spread.mean - base.mean for name, spread in found.items() if spread is not None and base is not None}


def seed_spread(results: Results) -> float | None:
    """Standard deviation of `base` in matching over its seeds."""
    found = score(by_name(results).get(BASE, []), "validation", "matching")
    return found.std if found is not None else None


def changed(result: Result, base: Result) -> str:
    """The settings, and the data, in which a model differs from another."""
    defaults = _defaults()
    own, other = (_flat({**defaults, **r.get("settings", {})}, defaults) for r in (result, base))
    told = [key for key in own if own[key] != other.get(key) and key.split(".")[-1] not in UNTOLD]
    told = [key for key in told if key in other or not _is_of_one_variant(key)]
    words = [f"{key.split('.')[-1]} {_plain(own[key])}" for key in told]
    if "train" in base and result["train"] != base["train"]:
        words.append(f"trained on {result['train']}")
    if result.get("train_cut", "") != base.get("train_cut", ""):
        words.append(f"patches of the cut {result.get('train_cut') or 'used elsewhere'}")
    return ", ".join(words) or "–"


def _is_of_one_variant(key: str) -> bool:
    """Whether a setting that another model does not have follows from its variant."""
    return key.startswith("model.") and key != "model.s"


def _defaults() -> dict[str, Any]:
    return TrainingConfig.from_dict({"data": {"train": ["any"]}}).to_dict()


def _flat(settings: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """`section.key` -> value; keys that an older run did not know have their default."""
    flat: dict[str, Any] = {}
    for section, values in settings.items():
        if section == "data":
            continue
        if isinstance(values, dict):
            known = {} if section == "model" else defaults.get(section, {})
            flat |= {f"{section}.{key}": value for key, value in {**known, **values}.items()}
        else:
            flat[section] = values
    return flat


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def steps_and_pairs(result: Result) -> str | None:
    """`5,000 × 512`."""
    found = sampling(result)
    return f"{found[0]:,} × {found[1]:,}" if found else None


def baselines_table(results: Results) -> str:
    """The baselines on validation, to compare the choices with."""
    rows = [[f"`{n}`", *validation_scores([r])] for n, r in results.items() if look(r, "validation")]
    return markdown(["baseline", *TASKS, HARD, "mAP"], rows, low=(HARD,))


def sized_runs(everything: Everything) -> dict[str, list[Result]]:
    """Models that were used at several patch sizes, of every experiment."""
    found = {}
    for experiment, results in everything.items():
        for name, runs in by_name(results).items():
            sized = [run for run in runs if look(run, "sizes")]
            if sized:
                found[name if experiment == "descriptors" else f"{experiment}: {name}"] = sized
    return found


def sizes_of(runs: dict[str, list[Result]]) -> list[int]:
    """The patch sizes at which any was used."""
    return sorted({int(size) for results in runs.values() for r in results for size in look(r, "sizes")})


def sizes_table(everything: Everything, task: str = "matching") -> str:
    """A task at several patch sizes without training again; none is best, since rows differ in more than that."""
    runs = sized_runs(everything)
    sizes = sizes_of(runs)
    rows = [
        [f"`{name}`", trained_sizes(results[0]), *(cell(score(results, "sizes", str(size), task)) for size in sizes)]
        for name, results in runs.items()
    ]
    return markdown(["model", "trained at", *(f"used at {size}" for size in sizes)], rows)


def trained_sizes(result: Result) -> str:
    """The patch sizes of training."""
    mixed = result.get("settings", {}).get("sampling", {}).get("patch_sizes")
    return ", ".join(map(str, mixed or [result["configuration"]["patch_size"]]))


def tolerance_runs(everything: Everything) -> dict[str, list[Result]]:
    """Descriptor -> models at N = 32 with tolerance curves, those of `CURVES`."""
    groups = by_name(everything.get("descriptors", {}))
    found = {name: [r for r in groups.get(f"{name}-n32", []) if look(r, "tolerance")] for name in CURVES}
    return {name: runs for name, runs in found.items() if runs}


def curve(runs: list[Result], change: str, what: str) -> tuple[list[float], list[float]]:
    """Amounts of a change, and the mean over seeds of `similarity` or `first` at each."""
    amounts = look(runs[0], "tolerance", change, "amounts")
    rows = [look(run, "tolerance", change, what) for run in runs]
    return amounts, [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def kept(runs: list[Result], change: str) -> Spread | None:
    """Mean similarity over all amounts as a share of that without a change."""
    shares = []
    for run in runs:
        found = look(run, "tolerance", change)
        unchanged = min(range(len(found["amounts"])), key=lambda k: abs(found["amounts"][k]))
        shares.append(sum(found["similarity"]) / len(found["similarity"]) / found["similarity"][unchanged])
    return spread_of(shares)


def found_first(runs: list[Result], change: str) -> Spread | None:
    """Mean over all amounts of the share that find their match first."""
    rows = [look(run, "tolerance", change, "first") for run in runs]
    return spread_of(sum(row) / len(row) for row in rows)


def tolerance_table(everything: Everything) -> str:
    """Both measures of every curve in one number each."""
    runs = tolerance_runs(everything)
    rows = [
        [f"`{name}`", *(kept(found, change) for change in CHANGES), *(found_first(found, change) for change in CHANGES)]
        for name, found in runs.items()
    ]
    return markdown(
        ["descriptor", *(f"similarity kept, {c}" for c in CHANGES), *(f"first, {c}" for c in CHANGES)], rows
    )
