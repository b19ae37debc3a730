"""Score methods on scenes: extract once per image, match and score every pair, resumable and in several processes."""

import json
import multiprocessing
import os
import platform
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import matchkernel
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.evaluation.methods import Planned
from matchkernel.evaluation.photos.methods import PhotoMethod
from matchkernel.evaluation.photos.rows import is_row
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera
from matchkernel.evaluation.photos.summary import summary
from matchkernel.evaluation.photos.work import (
    SECONDS,
    ImageTask,
    MethodSpec,
    PairTask,
    Protocol,
    extract_image,
    score_pair,
    threads,
)
from matchkernel.runtime.engine import ENGINE, TORCH
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import file_hash, json_digest, write_errors
from matchkernel.storage.folders import exclusive
from matchkernel.storage.progress import Progress, Say

FORMAT = 1
Task = TypeVar("Task")
Done = TypeVar("Done")
Pool = Callable[[Callable[[Task], Done], Sequence[Task]], Iterator[Done]]


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
    with _folder(work) as folder, _pool(workers, threads_each) as run:
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
    run: Pool,
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
        ImageTask(spec, scene.name, name, path, files[scene.name, name])
        for scene in scenes
        for name, path in scene.images.items()
    ]
    name = f"{method.name}, {spec.detector.keypoints} keypoints, {spec.filter}"
    say(f"extracting from {len(images)} images for {name}")
    extracting = []
    for seconds in run(extract_image, images):
        extracting.append(seconds)
        progress(len(extracting), len(images))
    rows: dict[str, list[dict[str, Any]]] = {}
    done, pairs = 0, sum(len(scene.pairs) for scene in scenes)
    say(f"matching {pairs} pairs for {name}")
    for scene in scenes:
        tasks = [_pair_task(spec, scene, pair, files, protocol) for pair in scene.pairs]
        digest = json_digest(
            [method.settings, asdict(protocol), _versions(), scene.name, _truth(scene), hashes[scene.name]]
        )
        rows[scene.name] = []
        for row in _journaled(folder / "pairs" / f"{digest[:32]}.jsonl", tasks, run):
            rows[scene.name].append(row)
            done += 1
            progress(done, pairs)
    per_pair = np.median([row.pop(SECONDS) for part in rows.values() for row in part], axis=0)
    names = ("per_image", "per_match", "per_estimate")
    values = (float(np.median(extracting)), *per_pair.tolist())
    return rows, {name: round(value, 4) for name, value in zip(names, values, strict=True)}


def _pair_task(
    spec: MethodSpec,
    scene: EvaluationScene,
    pair: tuple[str, str],
    files: dict[tuple[str, str], Path],
    protocol: Protocol,
) -> PairTask:
    features = files[scene.name, pair[0]], files[scene.name, pair[1]]
    if scene.homographies:
        return PairTask(spec, pair, features, protocol, homography=scene.homographies[pair])
    return PairTask(spec, pair, features, protocol, (scene.cameras[pair[0]], scene.cameras[pair[1]]))


def _journaled(path: Path, tasks: list[PairTask], run: Pool) -> Iterator[dict[str, Any]]:
    """Rows of pairs in order: those of an earlier run from a file, the others computed and added to it."""
    known = list(_known(path, tasks))
    yield from known
    with write_errors(path, "; what is done is kept"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in known), encoding="utf-8")
        with path.open("a", encoding="utf-8") as journal:
            for row in run(score_pair, tasks[len(known) :]):
                journal.write(json.dumps(row) + "\n")
                journal.flush()
                yield row


def _known(path: Path, tasks: list[PairTask]) -> Iterator[dict[str, Any]]:
    """The rows of an earlier run, up to the first that is incomplete or damaged."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    for line, task in zip(lines, tasks, strict=False):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        is_whole = is_row(row, "poses" if task.homography is None else "homographies") and SECONDS in row
        if not is_whole or row["images"] != list(task.names):
            return
        yield row


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
def _pool(workers: int, threads_each: int) -> Iterator[Pool]:
    """Run tasks in order, in this process or in several."""
    if workers == 1:
        with threads(threads_each):
            yield map
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (threads_each,))
    try:
        yield pool.map
    except BrokenProcessPool:
        raise WorkError(
            "a process of the pool ended unexpectedly, perhaps for lack of memory: use fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads_each: int) -> None:
    """Prepare a process of the pool; the main process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(threads_each)
    threads(threads_each).__enter__()
    threading.Thread(target=_end_with_the_main_process, daemon=True).start()


def _end_with_the_main_process() -> None:
    """If the main process is killed, nobody tells the others, and they would wait for work for ever."""
    main = multiprocessing.parent_process()
    if main is not None:
        main.join()
        os._exit(1)


def _truth(scene: EvaluationScene) -> list[Any]:
    """Pairs and their true cameras or homographies, as JSON."""
    cameras = {name: _camera(camera) for name, camera in scene.cameras.items()}
    return [scene.pairs, cameras, [H.tolist() for H in scene.homographies.values()]]


def _camera(camera: PoseCamera) -> list[Any]:
    return [camera.model, camera.parameters.tolist(), camera.size, camera.R.tolist(), camera.t.tolist()]
