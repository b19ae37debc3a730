"""matchkernel evaluate: score descriptors on patch sets and on HPatches."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.measure import Measurement

from matchkernel.cli.console import plain_table, progress_bar, stderr, stdout, user_errors
from matchkernel.data.patch_set import open_test_sets
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.combinations import evaluate_patch_sets
from matchkernel.evaluation.distances import Distance
from matchkernel.evaluation.hpatches.run import TASKS, Whitening
from matchkernel.evaluation.hpatches.splits_run import DescriptorFiles, evaluate_hpatches_splits
from matchkernel.evaluation.methods import Method, Planned, choose_methods
from matchkernel.evaluation.patch_sets import QUERIES
from matchkernel.evaluation.result_files import WORDS, check_files, check_target, note_of, table_of, write_results
from matchkernel.storage.progress import Progress, Say

app = typer.Typer(no_args_is_help=True, help="Score a model, a baseline or descriptor files.")

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="[TRAINING_SET=]name of trained weights or .safetensors file; may be repeated"),
]
Model = Annotated[str | None, typer.Option(help="[TRAINING_SET=]name of trained weights or .safetensors file")]
Baseline = Annotated[
    str | None, typer.Option(help="sift, rootsift, orb, brief, mkd, mkd-liberty, tfeat, ..., kornia:<class>")
]
BaselineWeights = Annotated[
    str | None, typer.Option(help="[TRAINING_SET=]weight file of the baseline; sets it was trained on are not tested")
]
TrainingSet = Annotated[Path | None, typer.Option(help="patch set that mkd learns its whitening on")]
Name = Annotated[str | None, typer.Option(help="what tables call it")]
DistanceName = Annotated[str | None, typer.Option("--distance", help="l2 or l1 (default: l2; bits have hamming)")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="folder for the results, or a .json file for one")]
Json = Annotated[bool, typer.Option("--json", help="print the results as JSON")]
Device = Annotated[str, typer.Option(help="where a model computes: cpu, cuda or auto")]


@app.command()
def phototourism(
    sets: Annotated[list[str], typer.Argument(help="[NAME=]FOLDER of a patch set; one name for several joins them")],
    model: Models = None,
    baseline: Baseline = None,
    baseline_weights: BaselineWeights = None,
    training_set: TrainingSet = None,
    name: Name = None,
    distance: DistanceName = None,
    queries: Annotated[int, typer.Option(min=1, help="most patches that search their set")] = QUERIES,
    seed: Annotated[int, typer.Option(min=0, help="of the draw of these")] = 0,
    out: Out = None,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """FPR@95 and retrieval mAP on each set a method was not trained on."""
    with user_errors():
        models = [_named(words) for words in model or []]
        if out is not None:
            check_target(out, max(len(models), 1) * len(sets) > 1)
        weights = _named(baseline_weights) if baseline_weights else None
        methods = choose_methods(models, baseline, weights, training_set, name=name, device=device)
        tests = open_test_sets([_named(words) for words in sets])
        with _bar() as (say, progress):
            results = evaluate_patch_sets(
                methods,
                tests,
                distance=cast("Distance | None", distance),
                queries=queries,
                seed=seed,
                before=_checking(out),
                say=say,
                progress=progress,
            )
        left_out = len(methods) * len(tests) - len(results)
        _finish(results, out, as_json, f"; {left_out} not scored: trained on the test set" if left_out else "")


@app.command()
def hpatches(
    folder: Annotated[Path | None, typer.Argument(help="set of patch strips in the HPatches layout")] = None,
    model: Model = None,
    baseline: Baseline = None,
    baseline_weights: BaselineWeights = None,
    training_set: TrainingSet = None,
    descriptors: Annotated[Path | None, typer.Option(help="score this folder of CSV files instead")] = None,
    bits: Annotated[bool, typer.Option(help="the CSV files hold bytes of packed bits")] = False,
    name: Name = None,
    tasks: Annotated[Path | None, typer.Option(help="folder of splits and lists (default: FOLDER/tasks)")] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="a, b, c, full, illum, view or your own; may be repeated (default: full)")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help=f"only one of {', '.join(TASKS)}; may be repeated")] = None,
    distance: DistanceName = None,
    whitening: Annotated[str, typer.Option(help="none, or pcapl: the official whitening and power law")] = "none",
    write_csv: Annotated[
        Path | None, typer.Option(help="new folder for the descriptors, in the official layout")
    ] = None,
    out: Out = None,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Verification, matching and retrieval in the official conventions."""
    with user_errors():
        models = [_named(model)] if model else []
        if out is not None:
            check_target(out, len(split or []) > 1)
        if descriptors is not None and (model or baseline or baseline_weights or training_set):
            raise ArgumentError("--descriptors goes without a model and a baseline")
        if descriptors is None and bits:
            raise ArgumentError("--bits goes with --descriptors")
        source: Method | DescriptorFiles
        if descriptors is not None:
            source = DescriptorFiles(descriptors, bits, name)
        else:
            weights = _named(baseline_weights) if baseline_weights else None
            (source,) = choose_methods(models, baseline, weights, training_set, name=name, device=device)
        with _bar() as (say, progress):
            results = evaluate_hpatches_splits(
                source,
                folder,
                tasks=tasks,
                splits=split or ["full"],
                distance=cast("Distance | None", distance),
                whitening=cast("Whitening", whitening),
                only=task or TASKS,
                write_csv=write_csv,
                before=_checking(out),
                say=say,
                progress=progress,
            )
        _finish(results, out, as_json)


def _named(words: str) -> tuple[str | None, str]:
    """NAME=PATH in its parts; a path of its own where it has no `=` or is there as a whole."""
    name, sign, path = words.partition("=")
    return (name, path) if sign and name and path and not Path(words).exists() else (None, words)


def _checking(out: Path | None) -> Planned | None:
    return None if out is None else partial(check_files, out)


@contextmanager
def _bar() -> Iterator[tuple[Say, Progress]]:
    with progress_bar("reading", 1) as bar:
        task = bar.task_ids[0]
        yield (
            lambda what: bar.update(task, description=what, completed=0),
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _finish(results: Sequence[dict[str, Any]], out: Path | None, as_json: bool, words: str = "") -> None:
    """Write results, show them, and repeat their warnings."""
    paths = [] if out is None else write_results(out, results)
    if as_json:
        print(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False))
    else:
        headings, rows = table_of(results)
        table = plain_table(*headings, numbers=tuple(h for h in headings if h not in WORDS))
        for row in rows:
            table.add_row(*row)
        table.caption, table.caption_justify = note_of(results), "left"
        width = Measurement.get(stdout, stdout.options.update(max_width=1000), table).maximum
        # numbers are never cut, however narrow the window
        Console(emoji=False, width=max(width, stdout.width)).print(table, crop=False)
    for result in results:
        where = result.get("split") or result.get("test_set")
        for warning in result["warnings"]:
            stderr.print(f"warning: {result['descriptor']} on {where}: {warning}", markup=False)
    target = "" if out is None else f" -> {out if len(paths) > 1 else paths[0]}"
    stderr.print(f"{len(results)} result{'s' if len(results) != 1 else ''}{words}{target}", markup=False)
