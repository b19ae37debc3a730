"""matchkernel evaluate: score descriptors on patch sets and on HPatches."""

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matchkernel.cli.console import plain_table, progress_bar, say, show_table
from matchkernel.cli.options import Engine, Json, weight_files, with_settings
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.epipolar import Estimator
from matchkernel.photos.match import FILTER_HELP
from matchkernel.photos.nearest import Distance
from matchkernel.runtime.config import TORCH

if TYPE_CHECKING:
    from matchkernel.evaluation.method import Method
    from matchkernel.evaluation.photos.methods import MethodSpec

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Score a model, a baseline or descriptor files.")

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", help="[TRAINING_SET=]name of trained weights or .safetensors file; may be given several times"
    ),
]
Model = Annotated[str | None, typer.Option(help="[TRAINING_SET=]name of trained weights or .safetensors file")]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="sift, rootsift, orb, brief, mkd, mkd-liberty, tfeat, ..., kornia:CLASS, package.module:FUNCTION"
    ),
]
BaselineWeights = Annotated[
    str | None, typer.Option(help="[TRAINING_SET=]weight file of the baseline, which is not scored on its training set")
]
TrainingSet = Annotated[Path | None, typer.Option(help="patch set on which mkd learns its whitening")]
Name = Annotated[str | None, typer.Option(help="name to show in the tables")]
DistanceName = Annotated[
    Distance | None, typer.Option("--distance", help="l2 or l1 (default: l2; binary descriptors use hamming)")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="folder for the results, or a .json file for a single result")
]
Device = Annotated[str, typer.Option(help="where the model runs: cpu, cuda or auto")]
DETECTOR = Detector(keypoints=2000)


@app.command()
def phototourism(
    sets: Annotated[list[str], typer.Argument(help="[NAME=]FOLDER of a patch set; sets of the same name are joined")],
    model: Models = None,
    baseline: Baseline = None,
    baseline_weights: BaselineWeights = None,
    training_set: TrainingSet = None,
    name: Name = None,
    distance: DistanceName = None,
    queries: Annotated[
        int | None, typer.Option(min=1, help="maximum number of query patches in retrieval (default: 10,000)")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="seed for drawing the query patches")] = 0,
    out: Out = None,
    as_json: Json = False,
    device: Device = "auto",
    engine: Engine = TORCH,
) -> None:
    """Compute FPR@95 and retrieval mAP on each set that a method was not trained on."""
    from matchkernel.data.patch_set import open_test_sets
    from matchkernel.evaluation.methods import choose_methods
    from matchkernel.evaluation.patch_sets import QUERIES, evaluate_patch_sets
    from matchkernel.evaluation.results import check_files, check_target

    models = [_named(text) for text in model or []]
    weights = _named(baseline_weights) if baseline_weights else None
    named = [_named(text) for text in sets]
    folders = [folder for _, folder in named] + ([training_set] if training_set else [])
    tested = {name or folder for name, folder in named}  # sets of one name are joined
    check_target(out, max(len(models), 1) * len(tested) > 1, *folders, *_files(*models, weights))
    methods = choose_methods(models, baseline, weights, training_set, name=name, device=device, engine=engine)
    with progress_bar("reading") as bar:
        tests = open_test_sets(named)
        results = evaluate_patch_sets(
            methods,
            tests,
            distance=distance,
            queries=queries or QUERIES,
            seed=seed,
            check_plans=partial(check_files, out),
            say=bar.rename,
            progress=bar,
        )
    left = [f"{m.name} on {test}" for m in methods for test in tests if m.was_trained_on(test, tests[test])]
    remark = f"; {len(left)} not scored, as trained on it: {', '.join(left[:5])}{', …' * (len(left) > 5)}"
    _finish(results, out, as_json, remark if left else "")


@app.command()
def hpatches(
    folder: Annotated[Path | None, typer.Argument(help="folder of patch strips in the HPatches layout")] = None,
    model: Model = None,
    baseline: Baseline = None,
    baseline_weights: BaselineWeights = None,
    training_set: TrainingSet = None,
    descriptors: Annotated[
        Path | None, typer.Option(help="score the CSV files in this folder instead of a model")
    ] = None,
    bits: Annotated[bool, typer.Option("--bits", help="the CSV files hold packed bits, one byte per value")] = False,
    name: Name = None,
    tasks: Annotated[Path | None, typer.Option(help="folder of splits and task lists (default: FOLDER/tasks)")] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="a, b, c, full, illum, view or a split of your own; may be given several times (default: full)"
        ),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="only verification, matching or retrieval; may be given several times")
    ] = None,
    distance: DistanceName = None,
    whitening: Annotated[
        Literal["none", "pcapl"], typer.Option(help="none, or pcapl for the official whitening and power law")
    ] = "none",
    write_csv: Annotated[
        Path | None, typer.Option(help="new folder to write the descriptors to, in the official layout")
    ] = None,
    out: Out = None,
    as_json: Json = False,
    device: Device = "auto",
    engine: Engine = TORCH,
) -> None:
    """Score verification, matching and retrieval as the official HPatches benchmark defines them."""
    from matchkernel.evaluation.hpatches.evaluate import TASKS, evaluate_hpatches
    from matchkernel.evaluation.methods import choose_methods
    from matchkernel.evaluation.results import check_files, check_target
    from matchkernel.storage.files import check_new_folder

    models = [_named(model)] if model else []
    weights = _named(baseline_weights) if baseline_weights else None
    inputs = [place for place in (folder, descriptors, tasks, training_set) if place is not None]
    check_target(out, len(split or []) > 1, *inputs, *_files(*models, weights))
    if write_csv is not None:
        check_new_folder(write_csv, *inputs)
    source = _descriptor_files(descriptors, bits, name, model or baseline or baseline_weights or training_set)
    if source is None:
        (source,) = choose_methods(models, baseline, weights, training_set, name=name, device=device, engine=engine)
    with progress_bar("reading") as bar:
        results = evaluate_hpatches(
            source,
            folder,
            tasks=tasks,
            splits=split or ["full"],
            distance=distance,
            whitening=whitening,
            only=task or TASKS,
            write_csv=write_csv,
            check_plans=partial(check_files, out),
            say=bar.rename,
            progress=bar,
        )
    _finish(results, out, as_json)


def _descriptor_files(folder: Path | None, bits: bool, name: str | None, method: object) -> "Method | None":
    """The descriptor files to score, if there are any; options of a method cannot be combined with them."""
    from matchkernel.evaluation.method import descriptor_files

    if folder is None and bits:
        raise ArgumentError("--bits needs --descriptors")
    if folder is not None and method:
        raise ArgumentError("--descriptors cannot be combined with a model or a baseline")
    return None if folder is None else descriptor_files(folder, bits=bits, name=name)


@app.command()
@with_settings
def photos(
    *,
    scenes: Annotated[
        list[Path],
        typer.Argument(metavar="SCENE...", help="folders: images/ and sparse/ or cameras.txt; or 1.jpg, ... and H_1_2"),
    ],
    model: Annotated[
        list[str],
        typer.Option(
            help="[NAME=]name of trained weights, a .safetensors file, sift, rootsift, a peer, BASELINE:FILE, "
            "hloc:FEATURES.h5[,MATCHES.h5]; NAME is for tables; may be given several times"
        ),
    ],
    filters: Annotated[
        list[str] | None,
        typer.Option("--matcher", "--filter", help=f"{FILTER_HELP}; may be repeated"),
    ] = None,
    guided: Annotated[
        bool, typer.Option("--guided", help="match again among keypoints that agree with an epipolar geometry")
    ] = False,
    align: Annotated[
        bool, typer.Option("--align", help="align the two points of a match before the pose is estimated")
    ] = False,
    budget: Annotated[
        list[int] | None,
        typer.Option(min=0, help="keypoint budget to compare, one table row each; may be repeated"),
    ] = None,
    detector: Detector = DETECTOR,
    shared_points: Annotated[int, typer.Option(min=1, help="3-D points that the two images of a pair share")] = 15,
    most_pairs: Annotated[
        int | None,
        typer.Option(min=1, help="maximum number of pairs per scene or sequence, from few to many shared points"),
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="file of pairs, two names per line")] = None,
    estimator: Annotated[
        Estimator, typer.Option(help="of poses with known intrinsics: refined (several hypotheses, refined) or magsac")
    ] = "refined",
    pixels: Annotated[
        float, typer.Option(help="expected error of right matches for poses, in pixels; threshold of MAGSAC")
    ] = 0.5,
    repeats: Annotated[int, typer.Option(help="number of random match orders to average over")] = 3,
    work: Annotated[
        Path | None,
        typer.Option(help="folder that keeps features and scored pairs for later runs (default: a temporary folder)"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="number of processes (default: all cores; on a GPU, one)")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads of each process")] = 1,
    out: Out = None,
    as_json: Json = False,
    device: Annotated[str, typer.Option(help="where networks run: cpu, cuda or auto")] = "cpu",
    engine: Engine = TORCH,
) -> None:
    """Find relative poses (or homographies) from matches of photos, and compare them with the true ones."""
    from matchkernel.evaluation.photos.evaluate import Protocol, evaluate_photos
    from matchkernel.evaluation.photos.scenes import read_scenes
    from matchkernel.evaluation.results import check_files, check_target
    from matchkernel.model.precision import open_device
    from matchkernel.storage.files import check_folder
    from matchkernel.storage.folders import work_folder_of

    detectors = [replace(detector, keypoints=number) for number in budget or [detector.keypoints]]
    options = {"device": device, "engine": engine, "guided": guided, "aligned": align}
    specs = _photo_methods(model, detectors, filters or ["ratio"], **options)
    check_target(out, len(specs) > 1, *scenes, *weight_files(*(spec.text for spec in specs)))
    if work is not None:
        check_folder(work, *scenes)
    cores = (os.cpu_count() or 1) if open_device(device).type == "cpu" else 1
    with nullcontext(work) if work or out is None else work_folder_of(out) as folder:
        with progress_bar("reading", resumes=folder) as bar:
            results = evaluate_photos(
                read_scenes(scenes, shared_points=shared_points, most_pairs=most_pairs, pairs=pairs),
                specs,
                Protocol(pixels, repeats, estimator),
                work=folder,
                workers=workers or cores,
                threads_each=threads,
                check_plans=partial(check_files, out),
                say=bar.show,
                progress=bar,
            )
        _finish(results, out, as_json)


def _photo_methods(
    models: list[str], detectors: list[Detector], filters: list[str], **options: Any
) -> "list[MethodSpec]":
    from matchkernel.evaluation.photos.methods import MethodSpec

    return [
        MethodSpec(text, detector, kept, name=name, **options)
        for name, text in map(_named, models)
        for detector in detectors
        for kept in filters
    ]


def _named(text: str) -> tuple[str | None, str]:
    """Split NAME=PATH; without `=`, or if a file with the whole string as its name exists, there is no NAME."""
    name, sign, path = text.partition("=")
    return (name, path) if sign and name and path and not Path(text).exists() else (None, text)


def _files(*named: tuple[str | None, str] | None) -> list[Path]:
    return weight_files(*(path for _, path in filter(None, named)))


def _finish(results: Sequence[dict[str, Any]], out: Path | None, as_json: bool, remark: str = "") -> None:
    """Write results, show them, and repeat their warnings."""
    from matchkernel.evaluation.results import write_results
    from matchkernel.evaluation.tables import TEXT_COLUMNS, note_of, table_of

    paths = [] if out is None else write_results(out, results)
    if as_json:
        print(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False))
    else:
        headings, rows = table_of(results)
        table = plain_table(headings, TEXT_COLUMNS, note_of(results))
        for row in rows:
            table.add_row(*row)
        show_table(table)
    for result in results:
        where = result.get("split") or result.get("test_set")
        for warning in result["warnings"]:
            say(f"warning: {result['descriptor']}{f' on {where}' if where else ''}: {warning}")
    target = "" if out is None else f" -> {out if len(paths) > 1 else paths[0]}"
    say(f"{len(results)} result{'s' if len(results) != 1 else ''}{remark}{target}")
    if out is not None:
        say(f"as a page of tables and charts: matchkernel report {shlex.quote(str(out))} -o report")
