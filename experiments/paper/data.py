"""The photos of the experiments: groups of scenes, sequences with homographies, and the patch sets cut from them.

python experiments/paper/data.py DATA SETS [--scenes ...] [--sequences validation test] [--magnification 6]
                                           [--no-geometric]

Scenes are given by name or by group. Other cuts of the same photos lie in folders of SETS: `SETS/x8`, `SETS/tracks`.
DATA holds `scenes/<scene>/{images,sparse,database.db}` and `homography/<sequence>/{1..6.jpg,H_1_2..H_1_6}`.
"""

import argparse
import json
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from matchkernel.cli.console import run_script
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies
from matchkernel.geometry.conventions import SET_MAGNIFICATION

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


def scenes_of(group: str) -> tuple[str, ...]:
    """Scenes of a group, `shipped`, or several groups written together, such as AB."""
    return SHIPPED if group == "shipped" else GROUPS.get(group) or tuple(s for g in group for s in GROUPS[g])


def sequences_folder(split: str) -> str:
    """What the set of a split of sequences is called."""
    return f"homography_{split}"


def build(work: tuple[str, str, Path, Path, float, bool]) -> str:
    """Cut one set, unless it is there."""
    kind, name, data, target, magnification, geometric = work
    if target.exists():
        return f"{target.name} is there"
    if kind == "scene":
        place = data / "scenes" / name
        settings = CutSettings(magnification=magnification, geometric=geometric, mosaics=False)
        build_from_colmap(place / "images", place / "sparse", place / "database.db", target, settings)
    else:
        names = [sequence for kind in SEQUENCES[name].values() for sequence in kind]
        settings_h = HomographySettings(magnification=magnification)
        build_from_homographies(data / "homography", target, settings_h, sequences=names)
    return f"{target.name} cut"


def copy_strips(source: Path, target: Path) -> None:
    """The strips of a real HPatches sequence, with a split that names it."""
    if not source.is_dir() or target.exists():
        return
    shutil.copytree(source, target)
    splits = {"full": {"name": "full", "test": [path.name for path in sorted(target.iterdir()) if path.is_dir()]}}
    (target / "tasks" / "splits").mkdir(parents=True)
    (target / "tasks" / "splits" / "splits.json").write_text(json.dumps(splits) + "\n", encoding="utf-8")


def main() -> None:
    """Cut the sets asked for, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--scenes", nargs="*", default=list(GROUPS), help="scenes, or groups of them")
    parser.add_argument("--sequences", nargs="*", default=list(SEQUENCES), help="splits of the sequences")
    parser.add_argument("--magnification", type=float, default=SET_MAGNIFICATION)
    parser.add_argument("--no-geometric", action="store_true", help="matches by tracks alone")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.sets.mkdir(parents=True, exist_ok=True)
    copy_strips(options.data / "hpatches_sample", options.sets / "hpatches_sample")
    work = [("sequences", s, options.data, options.sets / sequences_folder(s)) for s in options.sequences]
    scenes = [scene for name in options.scenes for scene in GROUPS.get(name, (name,))]
    work += [("scene", scene, options.data, options.sets / scene) for scene in scenes]
    how = (options.magnification, not options.no_geometric)
    with ProcessPoolExecutor(options.processes) as pool:
        for word in pool.map(build, [(*item, *how) for item in work]):
            print(word, flush=True)


if __name__ == "__main__":
    run_script(main)
