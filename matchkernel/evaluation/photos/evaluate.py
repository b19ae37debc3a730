"""Score methods on scenes: extract once per image, match and score every pair, resumable and in several processes."""

import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import matchkernel
from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.evaluation.method import MATCHING
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.poses import PoseError, score_pose
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera
from matchkernel.evaluation.photos.scores import summary
from matchkernel.evaluation.results import FORMAT, CheckPlans
from matchkernel.evaluation.tables import keypoints_text
from matchkernel.geometry.epipolar import Estimator
from matchkernel.geometry.two_view import corner_error
from matchkernel.photos.features import Features, Matches, load_features, save_features
from matchkernel.photos.match import align_matches
from matchkernel.photos.pair_lists import Pair
from matchkernel.photos.verify import transfer_errors, verify
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import json_digest, write_errors
from matchkernel.storage.folders import exclusive
from matchkernel.storage.images import read_colour, read_gray
from matchkernel.storage.pool import Failure, LocalWorkers, Work
from matchkernel.storage.settings import Checked, setting
from matchkernel.storage.work import Progress, Say, progress_counter, use_threads

SECONDS = "seconds"  # key of what was measured: in the settings of cached features, and in cached rows
RIGHT_PIXELS = 3.0  # maximum error of a right match of two images with a known homography

Task = Callable[[], Any]  # can be sent to other processes
Run = Callable[[Mapping[Any, Task]], Iterator[tuple[Any, Any]]]  # tasks by name -> their results, as they finish


@dataclass(frozen=True)
class Protocol(Checked):
    """How matches are scored."""

    pixels: float = setting(0.5, above=0, high=1000, about="expected error of right matches for poses, in pixels")
    repeats: int = setting(3, low=1, high=1000, about="number of random match orders to average over")
    estimator: Estimator = setting("refined", about="of poses with known intrinsics: refined or magsac")


def evaluate_photos(
    scenes: Sequence[EvaluationScene],
    specs: Sequence[MethodSpec],
    protocol: Protocol | None = None,
    *,
    work: str | Path | None = None,
    workers: int = 1,
    threads_each: int = 1,
    check_plans: CheckPlans = lambda plans: None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Score every method on every scene; one result per method.

    Args:
        specs: methods with their detector and filter.
        work: folder in which features and scored pairs are kept, made if missing: a later run does not repeat what is
            there. If None, nothing is kept.
        workers: number of processes. The results do not depend on it.
        threads_each: threads of each process.
    """
    protocol = protocol or Protocol()
    if not scenes or not specs:
        raise ArgumentError("give at least one scene and one method")
    if workers < 1 or threads_each < 1:
        raise ArgumentError(f"workers and threads must be 1 or more, got {workers} and {threads_each}")
    names = [name for scene in scenes for name in scene.images]
    if any(spec.text.startswith("hloc:") for spec in specs) and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"two scenes have an image {twice}; with features from a file, score one scene at a time")
    chosen: dict[str, MethodSpec] = {}
    for spec in specs:  # a method that ignores the filter or the budget is scored once, though several are given
        method = spec.open()
        chosen.setdefault(json_digest([method.name, method.settings]), spec)
    plans = [_plan(spec, scenes, protocol) for spec in chosen.values()]
    check_plans(plans)
    results, pairs = [], sum(len(scene.pairs) for scene in scenes)
    with _folder(work) as folder, _runner(workers, threads_each) as run:
        for spec, plan in zip(chosen.values(), plans, strict=True):
            label = f"{plan['descriptor']}, {keypoints_text(plan['keypoints'])}, {plan['filter']}"
            say(f"extracting from the {len(names)} images of these {pairs} pairs for {label}")
            files, of_images = _extract(spec, scenes, folder, run, progress)
            say(f"matching {pairs} pairs for {label}")
            rows, of_pairs = _score(spec, scenes, files, protocol, folder, run, progress)
            method = spec.open()
            scored = summary(rows, scenes, method.trained_on, method.warnings)
            medians = _medians(of_images, threads_each)[:1] + _medians(of_pairs, threads_each)
            seconds = dict(zip(("per_image", "per_match", "per_estimate"), medians, strict=True))
            results.append({**plan, **scored, SECONDS: {**seconds, "threads": threads_each}})
    return results


def _plan(spec: MethodSpec, scenes: Sequence[EvaluationScene], protocol: Protocol) -> dict[str, Any]:
    """What is known about a result before the work."""
    method = spec.open()
    return {
        "format": FORMAT,
        "kind": "photos",
        "descriptor": method.name,
        "licence": method.licence,
        "keypoints": method.settings["keypoints"],
        "filter": method.settings["filter"],
        "engine": method.settings.get(ENGINE, TORCH),
        "settings": json.loads(json.dumps(method.settings)),
        "protocol": asdict(protocol),
        "data_sha256": json_digest([scene.content for scene in scenes]),
        "versions": _versions(),
        "machine": platform.machine(),
    }


def _versions() -> dict[str, str]:
    return {"matchkernel": matchkernel.__version__, "numpy": np.__version__, "opencv": need_opencv().__version__}


def _measured(*seconds: float) -> list[Any]:
    """Seconds, with the threads and the machine that they were measured on."""
    return [list(seconds), torch.get_num_threads(), platform.machine()]


def _medians(measured: Sequence[Any], threads: int) -> list[float | None]:
    """Medians of the seconds that were measured with so many threads on such a machine; None if there are none.

    Features and rows of earlier versions have seconds alone.
    """
    here = [threads, platform.machine()]
    alike = [entry[0] for entry in measured if isinstance(entry, list) and entry[1:] == here]
    return np.median(alike, axis=0).round(4).tolist() if alike else [None, None]


def _extract(
    spec: MethodSpec, scenes: Sequence[EvaluationScene], folder: Path, run: Run, progress: Progress
) -> tuple[dict[tuple[str, str], Path], list[Any]]:
    """The files of features by scene and image, and what was measured for each image."""
    key = json_digest({key: value for key, value in spec.open().settings.items() if key not in MATCHING})[:16]
    files, tasks = {}, {}
    for scene in scenes:
        for name, path in scene.images.items():
            file = json_digest([scene.name, name, scene.hashes[name]])[:32]
            files[scene.name, name] = target = folder / "features" / key / f"{file}.npz"
            tasks[scene.name, name] = partial(extract_image, spec, name, path, target)
    measured: list[Any] = []
    for _, value in run(tasks):
        measured.append(value)
        progress(len(measured), len(tasks))
    return files, measured


def _score(
    spec: MethodSpec,
    scenes: Sequence[EvaluationScene],
    files: Mapping[tuple[str, str], Path],
    protocol: Protocol,
    folder: Path,
    run: Run,
    progress: Progress,
) -> tuple[dict[str, list[dict[str, Any]]], list[Any]]:
    """The rows of all pairs by scene, and what was measured for each pair, of matching and of estimating."""
    rows: dict[str, list[dict[str, Any]]] = {}
    add = progress_counter(progress, sum(len(scene.pairs) for scene in scenes))
    for scene in scenes:
        tasks: dict[Pair, Task] = {}
        for a, b in scene.pairs:
            features = files[scene.name, a], files[scene.name, b]
            photos = (scene.images[a], scene.images[b]) if spec.aligned else None
            tasks[a, b] = partial(score_pair, spec, (a, b), features, scene.truth((a, b)), protocol, photos)
        digest = json_digest([spec.open().settings, asdict(protocol), _versions(), *scene.content])
        scored = {}
        for pair, row in _resumed(folder / "pairs" / f"{digest[:32]}.jsonl", tasks, run):
            scored[pair] = row
            add(1)
        rows[scene.name] = [scored[pair] for pair in scene.pairs]
    return rows, [row.pop(SECONDS) for part in rows.values() for row in part]


def _resumed(path: Path, tasks: Mapping[Pair, Task], run: Run) -> Iterator[tuple[Pair, dict[str, Any]]]:
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
            for pair, row in run({pair: task for pair, task in tasks.items() if pair not in known}):
                file.write(json.dumps(row) + "\n")
                file.flush()
                yield pair, row


def extract_image(spec: MethodSpec, name: str, path: Path, target: Path) -> Any:
    """Write the features of an image unless they are there; returns what was measured of extracting them."""
    if target.is_file():
        with suppress(FileError, LookupError, TypeError, ValueError):  # damaged: extracted again
            return load_features(target).settings[SECONDS]
    method, pixels = spec.open(), read_colour(path)
    start = time.perf_counter()
    features = method.extract(pixels, name)
    measured = _measured(time.perf_counter() - start)
    save_features(replace(features, settings={**features.settings, SECONDS: measured}), target)
    return measured


def score_pair(
    spec: MethodSpec,
    names: Pair,
    files: tuple[Path, Path],
    truth: np.ndarray | tuple[PoseCamera, PoseCamera],
    protocol: Protocol,
    photos: tuple[Path, Path] | None = None,
) -> dict[str, Any]:
    """The row of a pair: names, keypoints, matches, and for each order of the matches the errors; null is infinite.

    With the files of the photos, points of B are aligned with those of A.
    """
    a, b = (_features(path) for path in files)
    images = None if photos is None else (_gray(photos[0]), _gray(photos[1]))
    start = time.perf_counter()
    matches = spec.open().match(a, b)
    matches = matches if images is None else align_matches(matches, a, b, *images)
    middle = time.perf_counter()
    row: dict[str, Any] = {"images": list(names), "keypoints": [len(a), len(b)], "matches": len(matches)}
    ends, orders = matches.points(a, b), _orders(matches, protocol)
    if isinstance(truth, tuple):
        errors = pose_errors(a, b, matches, truth, protocol)
        row["inliers"] = [error.inliers for error in errors]
        row["rotation"] = [_number(error.rotation) for error in errors]
        row["direction"] = [_number(error.direction) for error in errors]
    else:
        is_right = transfer_errors(truth, *ends) <= RIGHT_PIXELS
        found = [verify(ends[0][order], ends[1][order], "homography") for order in orders]
        row["right"] = int(is_right.sum())
        row["inliers"] = [int(part.inliers.sum()) for part in found]
        row["corners"] = [_number(corner_error(part.model, truth, a.image_size)) for part in found]
        if spec.filter == "none" and not spec.guided:  # limits are calibrated with these
            seen = np.column_stack([matches.distances, is_right, matches.ratios])
            row["seen"] = [[round(float(value), 6) for value in values] for values in seen]
    return {**row, SECONDS: _measured(middle - start, time.perf_counter() - middle)}


def pose_errors(
    a: Features, b: Features, matches: Matches, truth: tuple[PoseCamera, PoseCamera], protocol: Protocol
) -> list[PoseError]:
    """The error of the pose for each order of the matches."""
    ratios = matches.ratios if matches.ratios.any() else matches.distances  # learned matchers have no ratios
    errors = []
    for order in _orders(matches, protocol):
        chosen = matches[order]
        errors.append(
            score_pose(
                *chosen.points(a, b),
                truth,
                (a.image_size, b.image_size),
                protocol.pixels,
                protocol.estimator,
                ratios=ratios[order],
                frames=(a.frames[chosen.indices[:, 0]], b.frames[chosen.indices[:, 1]]),
            )
        )
    return errors


def _orders(matches: Matches, protocol: Protocol) -> list[np.ndarray]:
    """Random orders of the matches, on which the draws of RANSAC depend."""
    return [np.random.default_rng(seed).permutation(len(matches)) for seed in range(protocol.repeats)]


def _number(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


@lru_cache(maxsize=64)
def _features(path: Path) -> Features:
    return load_features(path)


@lru_cache(maxsize=32)
def _gray(path: Path) -> np.ndarray:
    return read_gray(path)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside the block PyTorch and OpenCV use this number of threads."""
    cv2 = need_opencv()
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(count)
    cv2.setNumThreads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


@contextmanager
def _folder(work: str | Path | None) -> Iterator[Path]:
    """The folder of the cache, used by one process at a time; a temporary one if None."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="matchkernel-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    else:
        with exclusive(Path(work), f"{work}: another process is working in it"):
            yield Path(work)


@contextmanager
def _runner(workers: int, threads_each: int) -> Iterator[Run]:
    """Do tasks in this process or in several."""
    if workers == 1:
        with threads(threads_each):
            yield lambda tasks: ((name, task()) for name, task in tasks.items())
        return
    with LocalWorkers(workers).pool(Work(partial(_open_worker, threads_each), memory=0), tasks=workers) as pool:

        def run(tasks: Mapping[Any, Task]) -> Iterator[tuple[Any, Any]]:
            for ((name, _),), result in pool.run([[entry] for entry in tasks.items()]):
                if isinstance(result, Failure):
                    raise WorkError(f"{result.reason}; if the memory is full, use fewer --workers")
                yield name, result

        yield run


def _open_worker(threads_each: int, *_: object) -> tuple[dict[str, Any], Callable[[Sequence[Any]], Any]]:
    """In a worker: set its number of threads; a task is a list of one name and one function."""
    use_threads(threads_each)
    return {}, lambda items: items[0][1]()
