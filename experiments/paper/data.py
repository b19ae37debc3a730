"""Cut the patch sets of the experiments: groups of scenes, and sequences with homographies.

python experiments/paper/data.py DATA SETS [--scenes ...] [--sequences validation test] [--magnification 6]
                                           [--no-geometric]
python experiments/paper/data.py DATA SETS --tolerance    # pairs shifted, rotated and scaled: SETS/tolerance.npz
python experiments/paper/data.py DATA SETS --geometry --scenes A B C    # SETS/geometry/<scene>.npz
python experiments/paper/data.py DATA SETS --regions      # sizes of the regions of group A: results/regions.json

Scenes are given by name or by group. Other cuts of the same photos lie in folders of SETS: `SETS/x8`, `SETS/tracks`.
DATA holds `scenes/<scene>/{images,sparse,database.db}`, `homography/<sequence>/{1..6.jpg,H_1_2..H_1_6}` and
`hpatches_sample/<sequence>/{ref,e1..t5}.png`.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from geometric_pairs import draw_geometric_pairs

from matchkernel.cli.console import run_script
from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import Scene, read_scene
from matchkernel.data.from_colmap import CutSettings, build_from_colmap, frames_of, places_of, select_patches
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies, read_homography
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.geometry.two_view import warp_frames
from matchkernel.storage.files import replacing, write_json
from matchkernel.storage.images import read_gray

RESULTS = Path(__file__).parents[1] / "results"
GROUPS = {
    "A": ("liberty", "lund_door", "fox", "horns", "truck", "statue", "kitchen"),
    "B": ("brandenburg", "castle", "fountain", "sacre_coeur"),
    "C": ("langley", "lewis", "brighton", "monstree", "cyprus"),
    "validation": ("sceaux", "british_museum"),
}
NON_COMMERCIAL = ("truck", "statue")
SHIPPED = tuple(s for g in "ABC" for s in GROUPS[g] if s not in NON_COMMERCIAL)
SEQUENCES = {
    "validation": {
        "viewpoint, zoom": ("oxford_graf", "v_churchill"),
        "blur": ("oxford_bikes",),
        "light": ("oxford_leuven", "webcam_chamonix", "webcam_courbevoie"),
    },
    "test": {
        "viewpoint, zoom": ("oxford_bark", "oxford_boat", "oxford_wall", "v_dogman"),
        "blur": ("oxford_trees",),
        "JPEG": ("oxford_ubc",),
        "light": ("webcam_mexico", "webcam_frankfurt", "exposure_memorial"),
    },
}
MOST_POSITIVES, NEGATIVES = 2500, 150_000  # of a scene; positives that geometry found, negatives of each kind
PAIRS, PAIR_SIZE = 300, 64  # keypoints per sequence and pixels, of the pairs of known changes
AMOUNTS = {
    "shift": np.linspace(0, 0.6, 9),  # half sides, in a direction drawn for each keypoint
    "rotation": np.linspace(0, 45, 10),  # degrees
    "scale": np.linspace(-1, 1, 9),  # octaves
    "pole": np.linspace(0, 45, 10),  # degrees, about the pole of the polar grid
}
POLE = (14 - 15.5) / 16  # x and y of the pixel of 32 that the cells around it see, in half sides: see grid="fields"


def scenes_of(group: str) -> tuple[str, ...]:
    """Scenes of a group, `shipped`, or several groups written together, such as AB."""
    return SHIPPED if group == "shipped" else GROUPS.get(group) or tuple(s for g in group for s in GROUPS[g])


def sequences_of(split: str) -> list[str]:
    """Names of the sequences of a split."""
    return [name for names in SEQUENCES[split].values() for name in names]


def sequences_folder(split: str) -> str:
    """Name of the set cut from the sequences of a split."""
    return f"homography_{split}"


def build(work: tuple[str, str, Path, Path, float, bool, float]) -> str:
    """Cut one set, unless it exists."""
    kind, name, data, target, magnification, geometric, least = work
    if target.exists():
        return f"{target.name} is there"
    if kind == "scene":
        place = data / "scenes" / name
        settings = CutSettings(magnification=magnification, geometric=geometric, mosaics=False, least_side=least)
        build_from_colmap(place / "images", place / "sparse", place / "database.db", target, settings)
    else:
        settings_h = HomographySettings(magnification=magnification, least_side=least)
        build_from_homographies(data / "homography", target, settings_h, sequences=sequences_of(name))
    return f"{target.name} cut"


def copy_strips(source: Path, target: Path) -> None:
    """Copy the strips of a real HPatches sequence, with a split that names it."""
    if not source.is_dir() or target.exists():
        return
    shutil.copytree(source, target)
    splits = {"full": {"name": "full", "test": [path.name for path in sorted(target.iterdir()) if path.is_dir()]}}
    (target / "tasks" / "splits").mkdir(parents=True)
    (target / "tasks" / "splits" / "splits.json").write_text(json.dumps(splits) + "\n", encoding="utf-8")


def changed(frames: Frames, kind: str, amount: float, directions: np.ndarray) -> Frames:
    """Frames shifted, rotated (about their centre, or about the pole) or scaled in coordinates of their patches."""
    if kind == "shift":
        step = amount * np.stack([np.cos(directions), np.sin(directions)], -1)
        return Frames(frames.centers + (frames.shapes @ step[..., None])[..., 0], frames.shapes)
    if kind in ("rotation", "pole"):
        t = np.deg2rad(amount)
        turn = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
        fixed = np.full(2, POLE if kind == "pole" else 0.0)
        return Frames(frames.centers + frames.shapes @ (fixed - turn @ fixed), frames.shapes @ turn)
    return Frames(frames.centers, frames.shapes * 2**amount)


def cut_tolerance(data: Path, sets: Path) -> None:
    """Cut matching patches of images 1 and 2 of the validation sequences, those of image 2 changed by known amounts."""
    random = np.random.default_rng(0)
    parts: dict[str, list[np.ndarray]] = {"reference": [], **{kind: [] for kind in AMOUNTS}}
    for name in sequences_of("validation"):
        one, two = (read_gray(data / "homography" / name / f"{k}.jpg") for k in (1, 2))
        frames = Detector(keypoints=0, contrast=0.04, magnification=MAGNIFICATION).detect(one).frames
        exact, in_front = warp_frames(read_homography(data / "homography" / name / "H_1_2"), frames)
        largest = Frames(exact.centers, exact.shapes * 2)  # covers every change
        inside = frames.are_inside(one.shape[1], one.shape[0]) & largest.are_inside(two.shape[1], two.shape[0])
        chosen = np.flatnonzero(in_front & inside)[:PAIRS]
        directions = random.uniform(0, 2 * np.pi, len(chosen))
        parts["reference"].append(extract_patches(one, frames[chosen], PAIR_SIZE))
        for kind, amounts in AMOUNTS.items():
            cut = [extract_patches(two, changed(exact[chosen], kind, a, directions), PAIR_SIZE) for a in amounts]
            parts[kind].append(np.stack(cut))
        print(name, len(chosen), flush=True)
    assert all(len(part) == PAIRS for part in parts["reference"])  # results.paired draws whole sequences
    arrays = {kind: np.concatenate(cuts, 0 if kind == "reference" else 1) for kind, cuts in parts.items()}
    arrays |= {f"{kind}_amounts": amounts for kind, amounts in AMOUNTS.items()}
    with replacing(sets / "tolerance.npz") as part, part.open("wb") as file:
        np.savez(file, **arrays)


def with_detected(scene: Scene) -> Scene:
    """A scene with the keypoints that the package's detector finds added, as free ones, to those of its database."""
    photos = []
    for photo in scene.photos:
        found = Detector(keypoints=0, magnification=MAGNIFICATION).detect(read_gray(photo.path)).frames
        found = found[np.flatnonzero(found.are_inside(*photo.size))]
        frames = Frames(*(np.concatenate(parts) for parts in zip(_arrays(photo.frames), _arrays(found), strict=True)))
        points = np.append(photo.points, np.full(len(found), NO_POINT))
        photos.append(replace(photo, frames=frames, points=points))
    return replace(scene, photos=photos)


def _arrays(frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    return frames.centers, frames.shapes


def cut_geometry(data: Path, sets: Path, scenes: Sequence[str], ordinary: int) -> None:
    """Cut the patches of positives that geometry found; each scene has `ordinary` random negatives, and hard ones."""
    folder = sets / "geometry"
    folder.mkdir(parents=True, exist_ok=True)
    for name in scenes:
        if (folder / f"{name}.npz").exists():
            continue
        place = data / "scenes" / name
        scene = with_detected(read_scene(place / "images", place / "sparse", place / "database.db"))
        chosen = select_patches(scene, CutSettings())
        frames = frames_of(scene, chosen)
        patches = np.zeros((len(chosen.labels), PAIR_SIZE, PAIR_SIZE), np.uint8)
        wanted = np.isin(chosen.labels, chosen.labels[chosen.geometric])
        for number, photo in enumerate(scene.photos):
            rows = np.flatnonzero(wanted & (chosen.photos == number))
            patches[rows] = extract_patches(read_gray(photo.path), frames[rows], PAIR_SIZE)
        pairs = draw_geometric_pairs(
            places_of(scene, chosen),
            chosen.geometric,
            lambda rows, patches=patches: to_rootsift(patch_sift(patches[rows])),
            MOST_POSITIVES,
            ordinary,
            NEGATIVES,
            seed=0,
        )
        used, inverse = np.unique(np.concatenate([part.ravel() for part in pairs]), return_inverse=True)
        lists = np.split(inverse.reshape(-1, 2), np.cumsum([len(part) for part in pairs])[:-1])
        names = ("positives", "ordinary", "hard")
        with replacing(folder / f"{name}.npz") as part, part.open("wb") as file:
            arrays = {key: rows.astype(np.int32) for key, rows in zip(names, lists, strict=True)}
            np.savez(file, patches=patches[used], labels=chosen.labels[used].astype(np.int32), **arrays)
        print(name, {key: len(rows) for key, rows in arrays.items()}, flush=True)


def measure_regions(sets: Path, target: Path = RESULTS / "regions.json") -> None:
    """Write how many pixels the regions of group A cover, which shows why larger patches may not hold more detail."""
    shapes = np.concatenate([np.load(sets / scene / "frame.npy")[:, 2:] for scene in GROUPS["A"]]).reshape(-1, 2, 2)
    sides = 2 * np.sqrt(np.abs(np.linalg.det(shapes)))
    found = {
        "scenes": GROUPS["A"],
        "regions": len(sides),
        "median side": float(np.median(sides)),
        "share below": {str(size): float((sides < size).mean()) for size in (32, 64)},
    }
    write_json(target, found)


def main() -> None:
    """Cut the requested sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--scenes", nargs="*", default=list(GROUPS), help="scenes, or groups of them")
    parser.add_argument("--sequences", nargs="*", default=list(SEQUENCES), help="splits of the sequences")
    parser.add_argument("--magnification", type=float, default=MAGNIFICATION)
    parser.add_argument("--least-side", type=float, default=0.0, help="leave out regions of fewer pixels across")
    parser.add_argument("--no-geometric", action="store_true", help="positives from tracks only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--geometry", action="store_true", help="cut SETS/geometry instead")
    parser.add_argument("--ordinary", type=int, default=NEGATIVES, help="ordinary negatives of a scene, for --geometry")
    parser.add_argument("--tolerance", action="store_true", help="cut SETS/tolerance.npz instead")
    parser.add_argument("--regions", action="store_true", help="measure the regions of SETS instead")
    options = parser.parse_args()
    scenes = [scene for name in options.scenes for scene in GROUPS.get(name, (name,))]
    if options.geometry:
        cut_geometry(options.data, options.sets, scenes, options.ordinary)
    elif options.tolerance:
        cut_tolerance(options.data, options.sets)
    elif options.regions:
        measure_regions(options.sets)
    else:
        cut_sets(options, scenes)


def cut_sets(options: argparse.Namespace, scenes: Sequence[str]) -> None:
    """Cut scenes and sequences, several at a time."""
    options.sets.mkdir(parents=True, exist_ok=True)
    copy_strips(options.data / "hpatches_sample", options.sets / "hpatches_sample")
    work = [("sequences", s, options.data, options.sets / sequences_folder(s)) for s in options.sequences]
    work += [("scene", scene, options.data, options.sets / scene) for scene in scenes]
    how = (options.magnification, not options.no_geometric, options.least_side)
    with ProcessPoolExecutor(options.processes) as pool:
        for line in pool.map(build, [(*item, *how) for item in work]):
            print(line, flush=True)


if __name__ == "__main__":
    run_script(main)
