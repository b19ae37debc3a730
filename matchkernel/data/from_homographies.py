"""Sets in the HPatches layout from image sequences related by homographies."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.hpatches import NOISES, SIDE, draw_retrieval, draw_verification, open_hpatches, write_tasks
from matchkernel.data.patch_set import FORMAT, MANIFEST, content_hashes
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.homography import check_homography, warp_frames
from matchkernel.geometry.jitter import LEVELS, jittered, overlaps
from matchkernel.geometry.sampling import SAMPLER, extract_patches
from matchkernel.storage.files import check_new_folder, file_hash, read_small_text
from matchkernel.storage.folders import resumable_build
from matchkernel.storage.images import read_gray, write_png
from matchkernel.storage.progress import Progress
from matchkernel.storage.settings import check_ranges, setting

LARGEST_STRETCH = 6.0  # maximum stretch of a region by a homography; beyond it, a patch is only a smear


@dataclass(frozen=True)
class HomographySettings:
    """How patches are chosen and cut."""

    most: int = setting(1000, low=2)  # maximum number of patches per sequence, strongest first
    magnification: float = setting(MAGNIFICATION, above=0)  # half side of the region / sigma
    seed: int = setting(0, low=0)
    verification: int = setting(50_000, low=1)  # number of rows in each verification list
    least_side: float = setting(0.0, low=0)  # regions of fewer pixels across in any image are left out

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class _Sequence:
    """A folder with images 1..6 and H_1_2 .. H_1_6."""

    name: str
    images: list[Path]
    homographies: list[np.ndarray]


def build_from_homographies(
    source: str | Path,
    target: str | Path,
    settings: HomographySettings | None = None,
    *,
    sequences: list[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write strips and task lists for every sequence of a folder; returns the manifest.

    Args:
        source: folder of sequences, each with images 1..6 (any format) and text files H_1_2 .. H_1_6.
        target: folder to create.
        settings: how patches are chosen and cut.
        sequences: names of the sequences to use (default: all with six images).
        progress: called with the number of sequences done and their total.
    """
    settings = settings or HomographySettings()
    check_new_folder(target, source)
    found = _find_sequences(Path(source), sequences)
    files = {
        f"{s.name}/{p.name}": file_hash(p) for s in found for p in sorted(s.images[0].parent.iterdir()) if p.is_file()
    }
    identity = {"files": files, "settings": asdict(settings), "sampler": SAMPLER}
    with resumable_build(target, identity) as build:
        for number, sequence in enumerate(found):
            entry = build.folder / f"{sequence.name}.json"
            if sequence.name not in build.done or not entry.is_file():
                written = _write_sequence(build.folder, sequence, settings)
                if sequences and not written["patches"]:
                    raise FileError(f"{sequence.name}: {written['why']}")
                entry.write_text(json.dumps(written), encoding="utf-8")
                build.mark(sequence.name)
            if progress is not None:
                progress(number + 1, len(found))
        return _finish(build.folder, [sequence.name for sequence in found], settings)


def _find_sequences(source: Path, names: list[str] | None) -> list[_Sequence]:
    if not source.is_dir():
        raise FileError(f"{source}: no such folder")
    folders = (
        [source / name for name in dict.fromkeys(names)]
        if names
        else sorted(path for path in source.iterdir() if path.is_dir())
    )
    found = []
    for folder in folders:
        images = [_image(folder, k) for k in range(1, 7)]
        if None in images and names is None:
            continue  # a single pair, or some other folder
        missing = next((k + 1 for k, path in enumerate(images) if path is None), None)
        if missing:
            raise FileError(f"{folder}: image {missing} is missing")
        if any("\ud800" <= letter <= "\udfff" for letter in folder.name):  # bytes that are not UTF-8
            raise FileError(f"{source}: task lists are written in UTF-8; rename the sequence {folder.name!a}")
        homographies = [read_homography(folder / f"H_1_{k}") for k in range(2, 7)]
        found.append(_Sequence(folder.name, [path for path in images if path], homographies))
    names_twice = [name for name, count in Counter(sequence.name for sequence in found).items() if count > 1]
    if names_twice:
        raise ArgumentError(f"two sequences are called {names_twice[0]}; rename the folder of one")
    if not found:
        inside = f"; is it a sequence itself? Then give {source.parent}" if _image(source, 1) else ""
        raise FileError(f"{source}: contains no sequence of six images{inside}")
    return found


def _image(folder: Path, number: int) -> Path | None:
    return next((path for path in sorted(folder.glob(f"{number}.*")) if path.suffix.lower() != ".txt"), None)


def read_homography(path: str | Path) -> np.ndarray:
    """Read a 3 x 3 matrix from a text file; it may be singular."""
    text = read_small_text(path, 2**16, what="nine numbers", encoding="ascii")
    try:
        values = [float(word) for word in text.split()]
    except ValueError:
        raise FileError(f"{path}: not nine numbers") from None
    if len(values) != 9 or not np.isfinite(values).all():
        raise FileError(f"{path}: a homography must be nine finite numbers, got {len(values)}")
    return np.array(values).reshape(3, 3)


def _write_sequence(folder: Path, sequence: _Sequence, settings: HomographySettings) -> dict[str, Any]:
    """Cut and write the 16 strips; returns counts and overlaps."""
    dropped: Counter[str] = Counter()
    try:
        homographies = [check_homography(H) for H in sequence.homographies]
        images = [read_gray(path) for path in sequence.images]
    except (ArgumentError, FileError) as error:
        return {"patches": 0, "why": str(error)}
    random = np.random.default_rng((settings.seed, *sequence.name.encode()))
    detected = Detector(keypoints=0, contrast=0.04, magnification=settings.magnification).detect(images[0]).frames
    reference = _spread_out(detected)
    dropped["nearly repeats another"] = len(detected) - len(reference)
    regions = _regions(reference, images, homographies, random, dropped, settings.least_side)
    usable = np.flatnonzero(regions.pop("usable"))
    chosen = usable[: settings.most]
    dropped["beyond the strongest"] = len(usable) - len(chosen)
    if len(chosen) < 2:
        return {"patches": 0, "why": "fewer than two patches lie in all six images", "dropped": dict(dropped)}
    (folder / sequence.name).mkdir(exist_ok=True)
    measured: dict[str, list[float]] = {noise: [] for noise in NOISES}
    for name, (number, frames, exact) in {"ref": (0, reference, reference), **regions}.items():
        patches = extract_patches(images[number], frames[chosen], SIDE)
        write_png(folder / sequence.name / f"{name}.png", patches.reshape(-1, SIDE))
        if name != "ref":
            measured[name[0]] += overlaps(exact[chosen], frames[chosen]).round(4).tolist()
    medians = {noise: round(float(np.median(values)), 4) for noise, values in measured.items()}
    return {"patches": len(chosen), "overlap": medians, "dropped": {k: v for k, v in dropped.items() if v}}


def _regions(
    reference: Frames,
    images: list[np.ndarray],
    homographies: list[np.ndarray],
    random: np.random.Generator,
    dropped: Counter[str],
    least_side: float = 0.0,
) -> dict[str, Any]:
    """For each strip its image, its jittered frames and the exact frames; and which keypoints are usable in all."""
    usable = reference.are_inside(images[0].shape[1], images[0].shape[0])
    dropped["leaves image 1"] = int((~usable).sum())
    usable &= _not_smaller(reference, least_side, usable, dropped)
    regions: dict[str, Any] = {}
    for number, H in enumerate(homographies, 1):
        exact, in_front = warp_frames(H, reference)
        dropped["behind the plane"] += int((usable & ~in_front).sum())
        usable &= in_front
        values = np.linalg.svd(np.where(in_front[:, None, None], exact.shapes, np.eye(2)), compute_uv=False)
        smeared = values[:, 0] > LARGEST_STRETCH * values[:, 1]
        dropped["stretched to a smear"] += int((usable & smeared).sum())
        usable &= ~smeared
        usable &= _not_smaller(exact, least_side, usable, dropped)
        height, width = images[number].shape
        for noise in NOISES:
            frames = jittered(exact, LEVELS[noise], random)
            inside = frames.are_inside(width, height)
            dropped[f"leaves image {number + 1}"] += int((usable & ~inside).sum())
            usable &= inside
            regions[f"{noise}{number}"] = (number, frames, exact)
    return {"usable": usable, **regions}


def _not_smaller(frames: Frames, least_side: float, usable: np.ndarray, dropped: Counter[str]) -> np.ndarray:
    """Which regions have enough pixels; those that lack them are counted."""
    is_large = 2 * frames.half_widths >= least_side
    dropped["smaller than the least side"] += int((usable & ~is_large).sum())
    return np.asarray(is_large)


def _spread_out(frames: Frames) -> Frames:
    """Drop near duplicates of stronger keypoints: those within half its half width and half an octave."""
    half_widths = frames.half_widths
    octaves = np.log2(np.maximum(half_widths, 1e-9))
    kept = np.empty(len(frames), np.int64)
    centers, sizes = np.empty((len(frames), 2)), np.empty(len(frames))  # of the keypoints kept so far
    count = 0
    for k in range(len(frames)):
        near = ((centers[:count] - frames.centers[k]) ** 2).sum(1) < (0.5 * half_widths[k]) ** 2
        if not (near & (np.abs(sizes[:count] - octaves[k]) < 0.5)).any():
            kept[count], centers[count], sizes[count] = k, frames.centers[k], octaves[k]
            count += 1
    return frames[kept[:count]]


def _finish(folder: Path, names: list[str], settings: HomographySettings) -> dict[str, Any]:
    entries = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    kept = [name for name in names if entries[name]["patches"]]
    if not kept:
        raise FileError(f"no sequence gave two patches: {next(iter(entries.values()))['why']}")
    patches = open_hpatches(folder)
    (folder / "tasks" / "splits").mkdir(parents=True, exist_ok=True)
    splits = {"full": {"name": "full", "test": kept}}
    (folder / "tasks" / "splits" / "splits.json").write_text(json.dumps(splits, indent=1) + "\n", encoding="utf-8")
    verification = draw_verification(patches.counts, kept, settings.verification)
    write_tasks(folder / "tasks", "full", verification, *draw_retrieval(patches, kept))
    for name in names:
        (folder / f"{name}.json").unlink()
    manifest = {
        "format": FORMAT,
        "kind": "homographies",
        "sequences": entries,
        "settings": {**asdict(settings), "levels": {noise: asdict(level) for noise, level in LEVELS.items()}},
        "sampler": SAMPLER,
        "sha256": content_hashes(folder),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return manifest
