"""Score methods on scenes: extract once per image, match and score every pair, resumable and in several processes."""

import json
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import matchkernel
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.evaluation.methods import Planned
from matchkernel.evaluation.photos.methods import MethodSpec, PhotoMethod
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera
from matchkernel.evaluation.photos.scores import summary
from matchkernel.evaluation.photos.work import (
    SECONDS,
    ImageTask,
    PairTask,
    Protocol,
    extract_image,
    score_pair,
    threads,
)
from matchkernel.evaluation.results import FORMAT
from matchkernel.photos.files import Pair
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import file_hash, json_digest, write_errors
from matchkernel.storage.folders import exclusive
from matchkernel.storage.pool import Failure, LocalWorkers, Work
from matchkernel.storage.work import Progress, Say

# A function and its tasks -> each task with its result, as they finish.
Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]


def evaluate_photos(
    scenes: Sequence[EvaluationScene],
    specs: Sequence[MethodSpec],
    protocol: Protocol | None = None,
    *,
    work: str | Path | None = None,
    workers: int = 1,
    threads_each: int = 1,
    before: Planned | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Score every method on every scene; one result per method.

    Args:
        scenes: from read_scenes.
        specs: methods with their detector and filter.
        protocol: how matches are scored.
        work: folder in which features and scored pairs are kept, made if missing: a later run does not repeat what is
            there. If None, nothing is kept.
        workers: number of processes. The results do not depend on it.
        threads_each: threads of each process.
        before: called with the settings of each result before the work starts.
        say: called with the name of each stage as it begins.
        progress: called with the number of images or pairs done in a stage and their total.
    """
    protocol = protocol or Protocol()
    if not scenes or not specs:
        raise ArgumentError("give at least one scene and one method")
    if workers < 1 or threads_each < 1:
        raise ArgumentError(f"workers and threads must be 1 or more, got {workers} and {threads_each}")
    _check_names(scenes, specs)
    hashes = {scene.name: {name: file_hash(path) for name, path in scene.images.items()} for scene in scenes}
    # A method with a matcher of its own ignores the filter: with several filters it is scored once.
    opened = {json_digest([(m := spec.open()).name, m.settings]): (spec, m) for spec in reversed(specs)}
    specs, methods = zip(*reversed(opened.values()), strict=True)
    plans = [_plan(spec, method, scenes, hashes, protocol) for spec, method in zip(specs, methods, strict=True)]
    if before is not None:
        before(plans)
    results = []
    with _folder(work) as folder, _runner(workers, threads_each) as run:
        for spec, method, plan in zip(specs, methods, plans, strict=True):
            rows, seconds = _score(spec, method, scenes, hashes, protocol, folder, run, say, progress)
            scored = summary(rows, scenes, method.trained_on)
            results.append({**plan, **scored, SECONDS: {**seconds, "threads": threads_each}})
    return results


def _plan(
    spec: MethodSpec,
    method: PhotoMethod,
    scenes: Sequence[EvaluationScene],
    hashes: dict[str, dict[str, str]],
    protocol: Protocol,
) -> dict[str, Any]:
    """What is known about a result before the work."""
    digests = [[scene.name, _truth(scene), hashes[scene.name]] for scene in scenes]
    return {
        "format": FORMAT,
        "kind": "photos",
        "descriptor": method.name,
        "licence": method.licence,
        "keypoints": spec.detector.keypoints,
        "filter": method.settings.get("filter", "none"),
        "engine": method.settings.get(ENGINE, TORCH),
        "settings": json.loads(json.dumps(method.settings)),
        "protocol": asdict(protocol),
        "data_sha256": json_digest(digests),
        "versions": _versions(),
        "machine": platform.machine(),
    }


def _versions() -> dict[str, str]:
    return {"matchkernel": matchkernel.__version__, "numpy": np.__version__, "opencv": need_opencv().__version__}


def _check_names(scenes: Sequence[EvaluationScene], specs: Sequence[MethodSpec]) -> None:
    """Refuse scenes whose images have the same names, if features are looked up by name."""
    names = [name for scene in scenes for name in scene.images]
    if any(spec.text.startswith("hloc:") for spec in specs) and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"two scenes have an image {twice}; with features from a file, score one scene at a time")


def _score(
    spec: MethodSpec,
    method: PhotoMethod,
    scenes: Sequence[EvaluationScene],
    hashes: dict[str, dict[str, str]],
    protocol: Protocol,
    folder: Path,
    run: Run,
    say: Say,
    progress: Progress,
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """The rows of all pairs by scene, and median seconds per image and per pair."""
    key = json_digest(method.feature_settings)[:16]
    files = {
        (scene.name, name): folder / "features" / key / f"{json_digest([scene.name, name, digest])[:32]}.npz"
        for scene in scenes
        for name, digest in hashes[scene.name].items()
    }
    images = [
        ImageTask(spec, name, path, files[scene.name, name]) for scene in scenes for name, path in scene.images.items()
    ]
    label = f"{method.name}, {spec.detector.keypoints} keypoints, {spec.filter}"
    say(f"extracting from {len(images)} images for {label}")
    extracting = []
    for _, seconds in run(extract_image, images):
        extracting.append(seconds)
        progress(len(extracting), len(images))
    rows: dict[str, list[dict[str, Any]]] = {}
    done, pairs = 0, sum(len(scene.pairs) for scene in scenes)
    say(f"matching {pairs} pairs for {label}")
    for scene in scenes:
        tasks = {}
        for a, b in scene.pairs:
            cameras = None if scene.homographies else (scene.cameras[a], scene.cameras[b])
            features = files[scene.name, a], files[scene.name, b]
            tasks[a, b] = PairTask(spec, (a, b), features, protocol, cameras, scene.homographies.get((a, b)))
        digest = json_digest(
            [method.settings, asdict(protocol), _versions(), scene.name, _truth(scene), hashes[scene.name]]
        )
        scored = {}
        for pair, row in _resumed(folder / "pairs" / f"{digest[:32]}.jsonl", tasks, run):
            scored[pair] = row
            done += 1
            progress(done, pairs)
        rows[scene.name] = [scored[pair] for pair in scene.pairs]
    per_pair = np.median([row.pop(SECONDS) for part in rows.values() for row in part], axis=0)
    names = ("per_image", "per_match", "per_estimate")
    values = (float(np.median(extracting)), *per_pair.tolist())
    return rows, {name: round(value, 4) for name, value in zip(names, values, strict=True)}


def _resumed(path: Path, tasks: dict[Pair, PairTask], run: Run) -> Iterator[tuple[Pair, dict[str, Any]]]:
    """The rows of pairs: those that an earlier run wrote to a file, one per line, then the others, added to it."""
    known: dict[Pair, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else ():
        with suppress(ValueError, RecursionError, LookupError, TypeError):  # a damaged line
            row = json.loads(line)
            if (pair := tuple(row["images"])) in tasks and {SECONDS, "matches", "inliers"} <= row.keys():
                known[pair] = row
    yield from known.items()
    with write_errors(path, "; what is done is kept"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in known.values()), encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:
            for task, row in run(score_pair, [task for pair, task in tasks.items() if pair not in known]):
                file.write(json.dumps(row) + "\n")
                file.flush()
                yield task.names, row


@contextmanager
def _folder(work: str | Path | None) -> Iterator[Path]:
    """The folder of the cache, used by one process at a time; a temporary one if None."""
    if work is None:
        folder = Path(tempfile.mkdtemp(prefix="matchkernel-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with exclusive(Path(work), f"{work}: another process is working in it"):
        yield Path(work)


@contextmanager
def _runner(workers: int, threads_each: int) -> Iterator[Run]:
    """Do tasks in this process or in several."""
    if workers == 1:
        with threads(threads_each):
            yield lambda function, tasks: ((task, function(task)) for task in tasks)
        return
    with LocalWorkers(workers).pool(Work(partial(_open_worker, threads_each), memory=0), tasks=workers) as pool:

        def run(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
            for (item,), result in pool.run([[(function, task)] for task in tasks]):
                if isinstance(result, Failure):
                    raise WorkError(f"{result.reason}; if the memory is full, use fewer --workers")
                yield item[1], result

        yield run


def _open_worker(threads_each: int, *_: object) -> tuple[dict[str, Any], Callable[[Sequence[Any]], Any]]:
    """In a worker: set its number of threads."""
    threads(threads_each).__enter__()
    return {}, _do_task


def _do_task(items: Sequence[tuple[Callable[[Any], Any], Any]]) -> Any:
    function, task = items[0]
    return function(task)


def _truth(scene: EvaluationScene) -> list[Any]:
    """Pairs and their true cameras or homographies, as JSON."""
    cameras = {name: _camera(camera) for name, camera in scene.cameras.items()}
    return [scene.pairs, cameras, [H.tolist() for H in scene.homographies.values()]]


def _camera(camera: PoseCamera) -> list[Any]:
    return [camera.model, camera.parameters.tolist(), camera.size, camera.R.tolist(), camera.t.tolist()]
