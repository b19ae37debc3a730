"""Train and score the models of an experiment, several at a time; what is done is not done again.

python experiments/paper/run.py EXPERIMENT... --sets SETS --keep WEIGHTS [--only JOB...] [--workers 3]
python experiments/paper/run.py EXPERIMENT --sets SETS --keep WEIGHTS --only JOB... --scores test strips

The models are in jobs.json. Results go to `<results>/<experiment>.json` after every model. SIGTERM stops trainings with
a checkpoint in WEIGHTS, from which the same command goes on. The sets are cut by data.py; a job that names another cut
of them finds it in SETS/<cut>. --scores adds scores to those in the results, from the weights kept by --keep.
"""

import argparse
import json
import multiprocessing
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from data import GROUPS, RESULTS, scenes_of, sequences_folder
from score import (
    method_of,
    score_geometry,
    score_maps,
    score_places,
    score_separability,
    score_sequences,
    score_sets,
    score_strips,
    score_tolerance,
)

from matchkernel.cli.console import run_script
from matchkernel.data.patch_set import open_test_sets
from matchkernel.errors import FileError
from matchkernel.model.weights import load, state_digest
from matchkernel.runtime.weights import read_card
from matchkernel.storage.files import replacing, write_json
from matchkernel.training.checkpoint import find_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.log import read_log
from matchkernel.training.loop import train

# Beyond those of validation:
MORE_SCORES = ("test", "strips", "groups", "sizes", "tolerance", "maps", "separability", "pole", "geometry", "places")
SIZES = (32, 48, 64, 96)  # at which resolution-free descriptors are tried


@dataclass(frozen=True)
class Job:
    """One model of jobs.json.

    Attributes:
        name: the key of its results.
        train: a group of scenes, see data.scenes_of.
        settings: override the preset `paper`.
        scores: beyond validation, some of MORE_SCORES.
        train_cut: trained on SETS/<train_cut>/<scene>, another cut of the same photos.
        score_cut: scored on SETS/<score_cut>/...
        teachers: KEEP/<teacher>.safetensors each.
    """

    name: str
    train: str
    settings: dict[str, Any]
    scores: tuple[str, ...] = ()
    train_cut: str = ""
    score_cut: str = ""
    teachers: tuple[str, ...] = ()


def read_jobs() -> dict[str, list[Job]]:
    """Experiment -> its models, by `part`; in each every model with its first seed before any with its second."""
    experiments = json.loads((Path(__file__).parent / "jobs.json").read_text(encoding="utf-8"))
    found: dict[str, list[Job]] = {}
    for experiment, table in experiments.items():
        by_turn: list[tuple[tuple[int, int], Job]] = []
        for name, own in table["jobs"].items():
            job = {**table["all"], **own}
            flat = {**table["all"].get("set", {}), **own.get("set", {})}
            more = {key: job[key] for key in ("train_cut", "score_cut") if key in job}
            more |= {key: tuple(job[key]) for key in ("scores", "teachers") if key in job}
            for turn, seed in enumerate(job.get("seeds", [None])):
                settings = nested(flat if seed is None else {**flat, "seed": seed})
                full_name = name if seed is None else f"{name}-seed{seed}"
                by_turn.append(((job.get("part", 0), turn), Job(full_name, job["train"], settings, **more)))
        found[experiment] = [job for _, job in sorted(by_turn, key=lambda both: both[0])]
    return found


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Settings by `table.key` as tables."""
    tables: dict[str, Any] = {}
    for name, value in flat.items():
        table, _, key = name.rpartition(".")
        (tables.setdefault(table, {}) if table else tables)[key] = value
    return tables


def configuration(job: Job, sets: Path, keep: Path, steps: int | None = None) -> TrainingConfig:
    """The training run of a job, taught by weights in `keep`; `steps` replaces its own, for trying out."""
    folders = [str(sets / job.train_cut / scene) for scene in scenes_of(job.train)]
    settings = {**job.settings, "data": {"train": folders}}
    if steps is not None:
        settings["sampling"] = {**settings.get("sampling", {}), "steps": steps}
    if job.teachers:
        files = [str(keep / f"{teacher}.safetensors") for teacher in job.teachers]
        settings["teacher"] = {**settings["teacher"], "weights": files}
    length = settings["sampling"]["steps"]
    settings["loop"] = {"log_every": max(1, length // 50), "save_every": length, **settings.get("loop", {})}
    return TrainingConfig.from_dict(settings)


def do(
    job: Job,
    before: dict[str, Any] | None,
    sets: Path,
    device: str,
    keep: Path,
    steps: int | None,
    until: float,
) -> dict[str, Any] | None:
    """Train a model, unless its weights are kept from an earlier run, and measure what is missing.

    None if it is too late to train, or if training was stopped by SIGTERM: the next run resumes from its checkpoint in
    `keep`.
    """
    config = configuration(job, sets, keep.parent, steps)
    keep.mkdir(parents=True, exist_ok=True)
    weights, facts = keep / f"{job.name}.safetensors", keep / f"{job.name}.json"
    if before is not None:
        refuse_other_weights(job, before, weights)
    elif not facts.exists() or TrainingConfig.from_dict(read_card(weights).training) != config:
        if time.time() > until:
            return None
        how = train_job(config, weights, device)
        if how is None:
            return None
        with replacing(facts) as part:
            part.write_text(json.dumps(how), encoding="utf-8")
    done = before["scores"] if before else {}
    start = time.perf_counter()
    scores = {**measure(job, sets, device, weights, done), **done}
    seconds = round(time.perf_counter() - start, 1)
    known = before or {**about(job, weights), **json.loads(facts.read_text(encoding="utf-8"))}
    return {**known, "scoring_seconds": seconds, "scores": scores}


def refuse_other_weights(job: Job, before: dict[str, Any], weights: Path) -> None:
    """Raise unless a weight file is the model whose results are there."""
    if any(before.get(key, value) != value for key, value in about(job, weights).items()):
        raise FileError(f"{weights} is not the model whose results are stored under {job.name}")


def train_job(config: TrainingConfig, weights: Path, device: str) -> dict[str, Any] | None:
    """Train a model, or go on with one that was stopped, and write its weights; returns loss, seconds and machine."""
    torch._dynamo.reset()
    folder = weights.with_suffix(".run")
    is_begun = find_checkpoint(folder) is not None
    if not is_begun:
        shutil.rmtree(folder, ignore_errors=True)  # of a run that ended without one
    begun = folder / "seconds.txt"
    start = time.perf_counter() - (float(begun.read_text()) if begun.exists() else 0.0)
    is_finished = train(config, folder, device=device, resume=is_begun).is_finished
    seconds = time.perf_counter() - start
    if not is_finished:
        begun.write_text(f"{seconds:.1f}")
        return None
    shutil.copyfile(folder / "final.safetensors", weights)
    losses = [entry["loss"] for entry in read_log(folder / "log.jsonl") if entry["event"] == "training"]
    shutil.rmtree(folder)
    return {
        "loss": losses[-1] if losses else None,
        "seconds": round(seconds, 1),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "torch": torch.__version__,
    }


def about(job: Job, weights: Path) -> dict[str, Any]:
    """What the card of a weight file says of its training, without paths."""
    card = read_card(weights)
    assert card.config is not None
    settings = {name: value for name, value in card.training.items() if name != "data"}
    if job.teachers:
        copied = {name: value for name, value in settings["teacher"].items() if name != "weights"}
        settings["teacher"] = {**copied, "weights": list(job.teachers)}
    cuts = {"train_cut": job.train_cut, "score_cut": job.score_cut}
    return {
        "train": job.train,
        **{name: cut for name, cut in cuts.items() if cut},
        "training_sets": [{"name": name, "patches_sha256": sha256} for name, sha256 in card.training_sets],
        "weights_sha256": card.sha256,
        "state_sha256": state_digest(load(weights)),
        "configuration": card.config.to_dict(),
        "settings": settings,
    }


def wanted_scores(job: Job) -> tuple[str, ...]:
    """What a job asks for."""
    return ("scenes", "validation", *job.scores)


def measure(job: Job, sets: Path, device: str, weights: Path, done: Collection[str] = ()) -> dict[str, Any]:
    """All that a job asks for, apart from what is done."""
    device = "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    model = load(weights)
    method = method_of(model, device)
    cut = sets / job.score_cut
    validation, scenes = cut / sequences_folder("validation"), [(None, cut / name) for name in GROUPS["validation"]]
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "scenes": lambda: score_sets(method, open_test_sets(scenes), device),
        "validation": lambda: score_sequences(method, validation),
        "test": lambda: score_sequences(method, cut / sequences_folder("test")),
        "strips": lambda: score_strips(method, sets / "hpatches_sample"),
        "groups": lambda: score_sets(method, open_test_sets(others(job.train, cut)), device),
        "sizes": lambda: {
            str(size): score_sequences(method_of(load(weights, patch_size=size), device), validation) for size in SIZES
        },
        "tolerance": lambda: score_tolerance(model, sets / "tolerance.npz", device),
        "geometry": lambda: score_geometry(
            method, sets / "geometry", {other: GROUPS[other] for other in "ABC" if other not in job.train}
        ),
        "separability": lambda: score_separability(model, sets / "tolerance.npz", device),
        "pole": lambda: score_separability(model, sets / "tolerance.npz", device, ["pole"]),
        "places": lambda: score_places(model, sets / "tolerance.npz", device),
        "maps": lambda: score_maps(model, sets / "tolerance.npz", device),
    }
    return {name: ways[name]() for name in wanted_scores(job) if name not in done}


def others(group: str, sets: Path) -> list[tuple[str, Path]]:
    """The scenes of the two groups a model was not trained on, each with the name of its group."""
    return [(other, sets / scene) for other in "ABC" if other != group for scene in GROUPS[other]]


def write(path: Path, results: dict[str, Any]) -> None:
    """Write the results of an experiment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, results)


def main() -> None:
    """Do the jobs that have no results yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+", choices=list(read_jobs()))
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", help="these jobs, in this order")
    parser.add_argument("--scores", nargs="+", choices=MORE_SCORES, default=[], help="measure these too")
    parser.add_argument("--again", action="store_true", help="train what lacks scores and weights again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--keep", type=Path, help="folder for weights, <keep>/<experiment>; weights found there are not trained again"
    )
    parser.add_argument("--steps", type=int, help="steps of every job, for trying out")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no job after this time")
    options = parser.parse_args()
    names = {job.name for experiment in options.experiments for job in read_jobs()[experiment]}
    if not names.issuperset(options.only or ()):
        parser.error(f"no such jobs: {', '.join(sorted(set(options.only) - names))}")
    with tempfile.TemporaryDirectory() as folder:
        do_all(options, options.keep or Path(folder))


def wanted_jobs(experiments: Sequence[str], only: Sequence[str] | None) -> list[tuple[str, Job]]:
    """All jobs of the experiments, or those named by `only`, in its order."""
    jobs = [(experiment, job) for experiment in experiments for job in read_jobs()[experiment]]
    return jobs if only is None else [found for name in only for found in jobs if found[1].name == name]


def left(
    options: argparse.Namespace, results: dict[str, dict[str, Any]], keep: Path
) -> Iterator[tuple[str, Job, dict[str, Any] | None]]:
    """The jobs that lack a score, each with its experiment and the result it has; those without weights begin anew."""
    for experiment, job in wanted_jobs(options.experiments, options.only):
        asked = replace(job, scores=tuple(dict.fromkeys((*job.scores, *options.scores))))
        before = results[experiment].get(job.name)
        if before is not None and before["scores"].keys() >= set(wanted_scores(asked)):
            continue
        has_weights = (keep / experiment / f"{job.name}.safetensors").exists()
        if before is None or has_weights or options.again:
            yield experiment, asked, before if has_weights else None
        else:
            print(f"{job.name}: lacks scores, and its weights are not kept; --again trains it again", flush=True)


def do_all(options: argparse.Namespace, keep: Path) -> None:
    """Share the jobs among processes and write their results."""
    begun, failed = time.time(), 0
    results: dict[str, dict[str, Any]] = {}
    for experiment in options.experiments:
        path = options.results / f"{experiment}.json"
        results[experiment] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        tasks = {
            pool.submit(
                do, job, before, options.sets, options.device, keep / experiment, options.steps, begun + options.seconds
            ): (experiment, job.name)
            for experiment, job, before in left(options, results, keep)
        }
        for task in as_completed(tasks):
            experiment, name = tasks[task]
            if error := task.exception():
                print(f"{name}: failed\n{''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)
                failed += 1
            elif result := task.result():
                results[experiment][name] = result
                write(options.results / f"{experiment}.json", results[experiment])
                print(f"{time.time() - begun:5.0f} s  {line(name, result)}", flush=True)
    if failed:
        sys.exit(f"{failed} job{'s' * (failed > 1)} failed")


def line(name: str, result: dict[str, Any]) -> str:
    """A result as one line."""
    scores = result["scores"]
    three = [f"{100 * scores['validation'][task]:.2f}" for task in ("verification", "matching", "retrieval")]
    scenes = scores["scenes"].values()
    hard = 100 * sum(s["fpr95"]["hard"] for s in scenes) / len(scenes)
    mean = 100 * sum(s["map"] for s in scenes) / len(scenes)
    text = f"ver/match/retr {' '.join(three)}  hard FPR {hard:.2f} mAP {mean:.2f}"
    return f"{name:28s} {text}  ({result.get('seconds')} s, scored in {result['scoring_seconds']} s)"


if __name__ == "__main__":
    run_script(main)
