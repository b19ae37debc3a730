"""Patch sets in the PhotoTourism layout from photos with a COLMAP reconstruction."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import Scene, read_scene
from matchkernel.data.pairs import PatchPlaces, draw_hard_pairs, draw_test_pairs
from matchkernel.data.patch_set import LARGEST_PATCH, PatchSet, create_patch_set, group_by_label, open_patch_set
from matchkernel.data.phototourism import PATCH, write_mosaics, write_tables
from matchkernel.data.positives import Tolerances, find_geometric_positives
from matchkernel.data.split import PARTS, SHARES, Counts, count_parts, split_places
from matchkernel.errors import FileError
from matchkernel.geometry.cameras import PROJECTABLE
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.frames import SAMPLER, Frames, extract_patches
from matchkernel.geometry.jitter import LEVELS, jittered
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.storage.files import check_folder, file_hash
from matchkernel.storage.folders import check_new_build
from matchkernel.storage.images import read_gray
from matchkernel.storage.settings import Checked, setting
from matchkernel.storage.work import Progress

MOVED = "h"  # by how much the regions of validation and test are moved, see build_parts


@dataclass(frozen=True)
class CutSettings(Checked):
    """How patches are chosen and cut."""

    size: int = setting(PATCH, low=8, high=LARGEST_PATCH, about="side of a patch in pixels")
    magnification: float = setting(MAGNIFICATION, above=0, about="half the side of a region / sigma of its keypoint")
    geometric: bool = setting(True, about="also find positives by geometry, in addition to the tracks")
    pairs: int = setting(
        10_000, low=0, about="number of positive pairs in each test list, and of negative pairs; 0 for no lists"
    )
    seed: int = setting(0, low=0, about="random seed")
    mosaics: bool = setting(True, about="also write PhotoTourism's mosaics, if patches have 64 px")
    least_side: float = setting(0.0, low=0)  # regions of fewer pixels across are left out
    # Regions are moved at random as HPatches does: e(asy), h(ard) or t(ough); see jitter.py. A region that would leave
    # its photo is not moved.
    jitter: str = setting("", choices=("", *LEVELS))


@dataclass(frozen=True)
class Selection:
    """The patches to cut, sorted by point, photo, keypoint."""

    labels: np.ndarray  # (K,) 0 .. L - 1
    points: np.ndarray  # (K,) row of the scene's points
    photos: np.ndarray  # (K,)
    keypoints: np.ndarray  # (K,)
    geometric: np.ndarray  # (K,) bool

    def __getitem__(self, rows: np.ndarray) -> "Selection":
        """Some of the patches, with labels numbered again from 0."""
        labels = group_by_label(self.labels[rows]).ranks()
        return Selection(labels, self.points[rows], self.photos[rows], self.keypoints[rows], self.geometric[rows])


def build_from_colmap(
    images: str | Path,
    sparse: str | Path,
    database: str | Path,
    target: str | Path,
    settings: CutSettings | None = None,
    *,
    all_keypoints: str | Path | None = None,
    taken: Sequence[str] = (),
    progress: Progress | None = None,
) -> PatchSet:
    """Cut the patches of every 3-D point that is seen at least twice, and write them as a patch set.

    Args:
        images: folder of the photos.
        sparse: folder with cameras, images, points3D, .bin or .txt.
        database: COLMAP's database.db, with the keypoints.
        target: folder to create; an interrupted build resumes.
        settings: how patches are chosen and cut.
        all_keypoints: another database with all keypoints of the photos, if `database` has only the tracked ones.
        taken: names of the photos that were reconstructed; those that the model lacks are counted as left out.
    """
    check_new_build(target, images, sparse)
    return _cut(target, _Job.read(images, sparse, database, settings or CutSettings(), all_keypoints, taken), progress)


def scene_name(photos: str | Path) -> str:
    """The name of a scene: of its folder of photos, or of the folder above if that is called images."""
    folder = Path(photos).resolve()
    return folder.parent.name if folder.name == "images" else folder.name


def build_parts(
    images: str | Path,
    sparse: str | Path,
    database: str | Path,
    target: str | Path,
    settings: CutSettings | None = None,
    *,
    name: str = "",
    counted: Callable[[dict[str, Counts]], object] = lambda counts: None,
    progress: Progress | None = None,
) -> dict[str, PatchSet]:
    """Cut three patch sets of separate photos and places: training, validation and test; see split.py.

    The labels come from keypoints that COLMAP has matched, so that nearly every patch finds its match, which is too
    easy to compare two descriptors. Therefore regions of validation and test are moved as in HPatches' level "hard".
    Finished sets are kept. `name` is that of the scene (default: see scene_name). `counted` is called with the counts
    of each part before they are cut; an error that it raises ends the build. For the other arguments see
    build_from_colmap.
    """
    target = Path(target)
    check_folder(target, images, sparse)
    whole = _Job.read(images, sparse, database, settings or CutSettings())
    where = places_of(whole.scene, whole.chosen)
    parts = split_places(replace(where, sizes=LEVELS[MOVED].reach * where.sizes))
    counted(count_parts(where, parts))
    for number, part in enumerate(PARTS):
        if (target / part).exists():
            continue
        mine = whole.chosen[np.flatnonzero(parts == number)]
        others = int((~whole.chosen.geometric).sum() - (~mine.geometric).sum())
        job = replace(
            whole,
            scene_name=name or whole.scene_name,
            chosen=mine,
            settings=whole.settings if part == "training" else replace(whole.settings, jitter=MOVED),
            part={"part": part, "shares": list(SHARES)},
            left_out={"in another part, or between parts": others},
        )
        _cut(target / part, job, progress)
    return {part: open_patch_set(target / part) for part in PARTS}


@dataclass(frozen=True)
class _Job:
    """A scene, and the patches to cut from it."""

    scene_name: str
    scene: Scene
    files: list[str]  # hashes of everything that the patches come from
    chosen: Selection
    settings: CutSettings
    part: dict[str, Any] = field(default_factory=dict)  # which part of the scene this is, if not all of it
    left_out: dict[str, int] = field(default_factory=dict)  # reason -> keypoints that are in other parts

    @classmethod
    def read(
        cls,
        images: str | Path,
        sparse: str | Path,
        database: str | Path,
        settings: CutSettings,
        all_keypoints: str | Path | None = None,
        taken: Sequence[str] = (),
    ) -> "_Job":
        scene = read_scene(
            images, sparse, database, all_keypoints=all_keypoints, taken=taken, magnification=settings.magnification
        )
        if not scene.photos:
            reasons = ", ".join(f"{count} {reason}" for reason, count in scene.photos_left_out.items())
            raise FileError(f"{images}: no photo of the model {sparse} can be used ({reasons})")
        chosen = select_patches(scene, settings)
        if not len(chosen.labels):
            raise FileError(f"{sparse}: no 3-D point is seen in two usable photos, so there are no patches to cut")
        inputs = [Path(database), *([Path(all_keypoints)] if all_keypoints else []), *sorted(Path(sparse).glob("*.*"))]
        files = [*(file_hash(path) for path in inputs), *(f"{p.name} {file_hash(p.path)}" for p in scene.photos)]
        return cls(scene_name(images), scene, files, chosen, settings)


def _cut(target: str | Path, job: _Job, progress: Progress | None) -> PatchSet:
    """Cut the chosen patches and write them as a patch set."""
    scene, chosen, settings = job.scene, job.chosen, job.settings
    names = [f"{number} {photo.name}" for number, photo in enumerate(scene.photos)]
    identity = {"files": job.files, **job.part, "settings": asdict(settings), "sampler": SAMPLER}
    frames = _moved(scene, chosen, settings)
    with create_patch_set(target, len(chosen.labels), settings.size, identity) as build:
        for number in build.steps(names):
            rows = np.flatnonzero(chosen.photos == number)
            if len(rows):
                build.store(rows, extract_patches(read_gray(scene.photos[number].path), frames[rows], settings.size))
            if progress is not None:
                progress(number + 1, len(names))
        pairs = _pairs(build.patches, scene, chosen, settings)
        octaves = np.log2(frames.half_widths / settings.magnification)
        interest = np.column_stack([chosen.photos, frames.centers, frames.angles, octaves])
        write_tables(build.build.folder, chosen.labels, interest, pairs)
        if settings.mosaics and settings.size == PATCH:
            write_mosaics(build.build.folder, build.patches)
        columns = {
            "geometric": chosen.geometric,
            "photo": chosen.photos.astype(np.int32),
            "frame": np.concatenate([frames.centers, frames.shapes.reshape(-1, 4)], 1).astype(np.float32),
        }
        manifest = {
            "source": {"kind": "colmap", "name": job.scene_name, "photos": [photo.name for photo in scene.photos]},
            "selection": _counts(scene, chosen, job.left_out),
            "settings": {**asdict(settings), "sampler": SAMPLER, "tolerances": asdict(Tolerances())},
        }
        build.finish(chosen.labels, pairs, columns, manifest)
    return open_patch_set(target)


def _moved(scene: Scene, chosen: Selection, settings: CutSettings) -> Frames:
    """The regions to cut, moved at random if the settings say so; a region that would leave its photo is not moved."""
    frames = frames_of(scene, chosen)
    for number, photo in enumerate(scene.photos if settings.jitter else ()):
        rows = np.flatnonzero(chosen.photos == number)
        moved = jittered(frames[rows], LEVELS[settings.jitter], np.random.default_rng((settings.seed, number)))
        inside = moved.are_inside(*photo.size)
        frames.centers[rows[inside]], frames.shapes[rows[inside]] = moved.centers[inside], moved.shapes[inside]
    return frames


def select_patches(scene: Scene, settings: CutSettings) -> Selection:
    """The patches of every point that is seen at least twice."""
    found = find_geometric_positives(scene, Tolerances()) if settings.geometric else None
    rows = []
    for number, photo in enumerate(scene.photos):
        points = photo.points if found is None else np.where(photo.points == NO_POINT, found[number], photo.points)
        keypoints = np.flatnonzero((points != NO_POINT) & (2 * photo.frames.half_widths >= settings.least_side))
        is_geometric = photo.points[keypoints] == NO_POINT
        rows.append(np.column_stack([points[keypoints], np.full(len(keypoints), number), keypoints, is_geometric]))
    table = np.concatenate(rows)
    table = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0]))]
    # A point may have two keypoints in one photo (two orientations), which are treated like any other of its patches.
    sizes = group_by_label(table[:, 0]).sizes
    table = table[np.repeat(sizes, sizes) > 1]
    labels = group_by_label(table[:, 0]).ranks()
    return Selection(labels, table[:, 0], table[:, 1], table[:, 2], table[:, 3].astype(bool))


def _counts(scene: Scene, chosen: Selection, left_out: dict[str, int]) -> dict[str, Any]:
    """How many keypoints and photos were used and left out, for the manifest."""
    used = int((~chosen.geometric).sum())
    tracked_left_out = {reason: count for reason, count in scene.tracked_left_out.items() if count} | left_out
    alone = scene.tracked - used - sum(tracked_left_out.values())
    return {
        "from tracks": used,
        "from geometry": int(chosen.geometric.sum()),
        "tracked keypoints": scene.tracked,
        "tracked keypoints left out": {**tracked_left_out, "alone with their point": alone},
        "photos": len(scene.photos),
        "photos left out": dict(scene.photos_left_out),
        "photos without geometric positives": [
            photo.name for photo in scene.photos if photo.camera.model not in PROJECTABLE
        ],
    }


def frames_of(scene: Scene, chosen: Selection) -> Frames:
    """The regions of selected patches in their photos."""
    frames = Frames(np.empty((len(chosen.labels), 2)), np.empty((len(chosen.labels), 2, 2)))
    for number, photo in enumerate(scene.photos):
        rows = np.flatnonzero(chosen.photos == number)
        found = photo.frames[chosen.keypoints[rows]]
        frames.centers[rows], frames.shapes[rows] = found.centers, found.shapes
    return frames


def places_of(scene: Scene, chosen: Selection) -> PatchPlaces:
    """Where selected patches are in the scene."""
    places = scene.points[chosen.points]
    depths = np.empty(len(places))
    for number, photo in enumerate(scene.photos):
        here = chosen.photos == number
        depths[here] = photo.depths(places[here]) / photo.pixels_per_unit
    return PatchPlaces(chosen.labels, chosen.photos, places, frames_of(scene, chosen).half_widths * depths)


def _pairs(patches: np.ndarray, scene: Scene, chosen: Selection, settings: CutSettings) -> dict[str, np.ndarray]:
    if not settings.pairs:
        return {}
    tracked = np.flatnonzero(~chosen.geometric)  # test pairs use tracked patches, whose labels are cleaner
    where = places_of(scene, chosen)[tracked]
    easy = draw_test_pairs(where, settings.pairs, settings.seed)
    hard = draw_hard_pairs(
        where, lambda rows: to_rootsift(patch_sift(patches[tracked[rows]])), settings.pairs, settings.seed
    )
    for pairs in (easy, hard):
        pairs[:, :2] = tracked[pairs[:, :2]]
    return {f"m50_{len(easy)}_{len(easy)}_0": easy, f"m50hard_{len(hard)}_{len(hard)}_0": hard}
