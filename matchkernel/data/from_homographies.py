"""Sets in the HPatches layout from image sequences related by homographies."""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.hpatches import NOISES, SIDE, draw_retrieval, draw_verification, open_hpatches, write_tasks
from matchkernel.data.patch_set import write_manifest
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import SAMPLER, Frames, extract_patches
from matchkernel.geometry.jitter import LEVELS, jittered, overlaps
from matchkernel.geometry.two_view import check_homography, warp_frames
from matchkernel.storage.files import file_hash, read_small_text, write_json
from matchkernel.storage.folders import check_new_build, resumable_build
from matchkernel.storage.images import read_gray, write_png
from matchkernel.storage.settings import Checked, setting
from matchkernel.storage.work import Progress

LARGEST_STRETCH = 6.0  # maximum stretch of a region by a homography; beyond it, a patch is only a smear


@dataclass(frozen=True)
class HomographySettings(Checked):
    """How patches are chosen and cut."""

    most: int = setting(1000, low=2, about="maximum number of patches per sequence, strongest first")
    magnification: float = setting(MAGNIFICATION, above=0, about="half the side of a region / sigma of its keypoint")
    seed: int = setting(0, low=0, about="random seed")
    verification: int = setting(50_000, low=1, about="rows in each verification list")
    least_side: float = setting(0.0, low=0)  # regions of fewer pixels across in any image are left out


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
    """
    settings = settings or HomographySettings()
    check_new_build(target, source)
    found = _find_sequences(Path(source), sequences)
    files = {
        f"{s.name}/{p.name}": file_hash(p) for s in found for p in sorted(s.images[0].parent.iterdir()) if p.is_file()
    }
    identity = {"files": files, "settings": asdict(settings), "sampler": SAMPLER}
    with resumable_build(target, identity) as build:
        for number, sequence in enumerate(found, 1):
            entry = build.folder / f"{sequence.name}.json"
            if not entry.is_file():  # written last: its presence marks the sequence as done
                written = _write_sequence(build.folder, sequence, settings)
                if sequences and not written["patches"]:
                    raise FileError(f"{sequence.name}: {written['why']}")
                write_json(entry, written)
            if progress is not None:
                progress(number, len(found))
        return _finish(build.folder, [sequence.name for sequence in found], settings)


def _find_sequences(source: Path, names: list[str] | None) -> list[_Sequence]:
    if not source.is_dir():
        raise FileError(f"{source}: no such folder")
    folders = [source / name for name in names] if names else sorted(path for path in source.iterdir() if path.is_dir())
    found: dict[str, _Sequence] = {}
    for folder in dict.fromkeys(folders):
        images = [path for number in range(1, 7) if (path := sequence_image(folder, number))]
        if len(images) < 6:
            if names:
                raise FileError(f"{folder}: has {len(images)} of the images 1 to 6")
            continue  # a single pair, or some other folder
        if any("\ud800" <= letter <= "\udfff" for letter in folder.name):  # bytes that are not UTF-8
            raise FileError(f"{source}: task lists are written in UTF-8; rename the sequence {folder.name!a}")
        if folder.name in found:
            raise ArgumentError(f"two sequences are called {folder.name}; rename the folder of one")
        homographies = [read_homography(folder / f"H_1_{number}") for number in range(2, 7)]
        found[folder.name] = _Sequence(folder.name, images, homographies)
    if not found:
        inside = f"; is it a sequence itself? Then give {source.parent}" if sequence_image(source, 1) else ""
        raise FileError(f"{source}: contains no sequence of six images{inside}")
    return list(found.values())


def sequence_image(folder: Path, number: int) -> Path | None:
    """The image of a sequence with this number, of any format; None if there is none."""
    return next((path for path in sorted(folder.glob(f"{number}.*")) if path.suffix.lower() != ".txt"), None)


def read_homography(path: str | Path) -> np.ndarray:
    """Read a 3 x 3 matrix, which may be singular, from a text file of nine numbers."""
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
    try:
        homographies = [check_homography(H) for H in sequence.homographies]
        images = [read_gray(path) for path in sequence.images]
    except (ArgumentError, FileError) as error:
        return {"patches": 0, "why": str(error)}
    random = np.random.default_rng((settings.seed, *sequence.name.encode()))
    detected = Detector(keypoints=0, contrast=0.04, magnification=settings.magnification).detect(images[0]).frames
    reference = _spread_out(detected)
    regions, problems = _regions(reference, images, homographies, random, settings.least_side)
    usable = np.flatnonzero(problems == "")
    chosen = usable[: settings.most]
    dropped = Counter(problems[problems != ""])
    dropped["nearly repeats another"] = len(detected) - len(reference)
    dropped["beyond the strongest"] = len(usable) - len(chosen)
    found = {"patches": len(chosen), "dropped": {reason: count for reason, count in dropped.items() if count}}
    if len(chosen) < 2:
        return {**found, "patches": 0, "why": "fewer than two patches lie in all six images"}
    (folder / sequence.name).mkdir(exist_ok=True)
    measured: dict[str, list[float]] = {noise: [] for noise in NOISES}
    for name, (number, frames, exact) in {"ref": (0, reference, reference), **regions}.items():
        patches = extract_patches(images[number], frames[chosen], SIDE)
        write_png(folder / sequence.name / f"{name}.png", patches.reshape(-1, SIDE))
        if name != "ref":
            measured[name[0]] += overlaps(exact[chosen], frames[chosen]).round(4).tolist()
    return {**found, "overlap": {noise: round(float(np.median(values)), 4) for noise, values in measured.items()}}


def _regions(
    reference: Frames,
    images: list[np.ndarray],
    homographies: list[np.ndarray],
    random: np.random.Generator,
    least_side: float,
) -> tuple[dict[str, tuple[int, Frames, Frames]], np.ndarray]:
    """For each strip the number of its image, its jittered frames and the exact ones.

    Also (K,) why a patch cannot be used in all strips; empty if it can.
    """
    problems = np.full(len(reference), "", object)

    def keep(fits: np.ndarray, otherwise: str) -> None:
        problems[(problems == "") & ~fits] = otherwise

    keep(reference.are_inside(images[0].shape[1], images[0].shape[0]), "leaves image 1")
    keep(2 * reference.half_widths >= least_side, "smaller than the least side")
    regions = {}
    for number, H in enumerate(homographies, 1):
        exact, in_front = warp_frames(H, reference)
        keep(in_front, "behind the plane")
        values = np.linalg.svd(np.where(in_front[:, None, None], exact.shapes, np.eye(2)), compute_uv=False)
        keep(~(values[:, 0] > LARGEST_STRETCH * values[:, 1]), "stretched to a smear")
        keep(2 * exact.half_widths >= least_side, "smaller than the least side")
        height, width = images[number].shape
        for noise in NOISES:
            frames = jittered(exact, LEVELS[noise], random)
            keep(frames.are_inside(width, height), f"leaves image {number + 1}")
            regions[f"{noise}{number}"] = (number, frames, exact)
    return regions, problems


def _spread_out(frames: Frames) -> Frames:
    """Drop near duplicates of stronger keypoints: those within half its half width and half an octave."""
    centers, half_widths = frames.centers, frames.half_widths
    octaves = np.log2(np.maximum(half_widths, 1e-9))
    kept = np.zeros(len(frames), bool)
    for k in range(len(frames)):
        near = ((centers[:k] - centers[k]) ** 2).sum(1) < (0.5 * half_widths[k]) ** 2
        kept[k] = not (kept[:k] & near & (np.abs(octaves[:k] - octaves[k]) < 0.5)).any()
    return frames[np.flatnonzero(kept)]


def _finish(folder: Path, names: list[str], settings: HomographySettings) -> dict[str, Any]:
    entries = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    kept = [name for name in names if entries[name]["patches"]]
    if not kept:
        raise FileError(f"no sequence gave two patches: {next(iter(entries.values()))['why']}")
    patches = open_hpatches(folder)
    write_json(folder / "tasks" / "splits" / "splits.json", {"full": {"name": "full", "test": kept}})
    verification = draw_verification(patches.counts, kept, settings.verification)
    write_tasks(folder / "tasks", "full", verification, *draw_retrieval(patches, kept))
    for name in names:
        (folder / f"{name}.json").unlink()
    levels = {noise: asdict(level) for noise, level in LEVELS.items()}
    content = {"kind": "homographies", "sequences": entries, "sampler": SAMPLER}
    return write_manifest(folder, {**content, "settings": {**asdict(settings), "levels": levels}})
