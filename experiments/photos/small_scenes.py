"""Copy only what scoring poses needs of scenes with a COLMAP model: cameras, pairs, and the photos of these pairs.

    python experiments/photos/small_scenes.py DATA SMALL --scenes training validation

SMALL/scenes/<scene> holds images/ (links to the photos, or copies with --copy), sparse/ (the cameras as text, without
points) and pairs.txt: the pairs that choose.py takes of the scene. It is small enough to travel to another machine.
"""

import argparse
import shutil
from pathlib import Path

from candidates import MOST_PAIRS, SCENES
from rendering import quaternion

from matchkernel.cli.console import run_script
from matchkernel.colmap.model import read_reconstruction
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.storage.files import check_new_folder


def main() -> None:
    """Copy scenes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("small", type=Path)
    parser.add_argument("--scenes", nargs="+", default=["training", "validation"], help="scenes, or groups of them")
    parser.add_argument("--most-pairs", type=int, default=MOST_PAIRS, help="of a training scene")
    parser.add_argument("--copy", action="store_true", help="copy photos instead of linking to them")
    options = parser.parse_args()
    for group in options.scenes:
        for name in SCENES.get(group, (group,)):
            most = options.most_pairs if name in SCENES["training"] else None
            target = options.small / "scenes" / name
            check_new_folder(target, options.data)
            pairs, size = shrink(options.data / "scenes" / name, target, most, options.copy)
            print(f"{name}: {pairs} pairs, {size / 1e6:.1f} MB of photos", flush=True)


def shrink(source: Path, target: Path, most_pairs: int | None, copy: bool) -> tuple[int, int]:
    """Write the small copy of a scene; returns its number of pairs, and the bytes of its photos."""
    scene, model = read_scene(source, most_pairs=most_pairs), read_reconstruction(source / "sparse")
    (target / "images").mkdir(parents=True)
    (target / "sparse").mkdir()
    for name, path in scene.images.items():
        (target / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copyfile(path, target / "images" / name)
        else:
            (target / "images" / name).symlink_to(path.resolve())
    kept = {number: image for number, image in model.images.items() if image.name in scene.images}
    cameras = [
        f"{number} {camera.model} {camera.width} {camera.height} {numbers(camera.parameters)}"
        for number, camera in model.cameras.items()
        if number in {image.camera for image in kept.values()}
    ]
    images = [
        f"{number} {numbers(quaternion(image.R))} {numbers(image.t)} {image.camera} {image.name}\n"
        for number, image in kept.items()
    ]
    texts = {
        "sparse/cameras.txt": cameras,
        "sparse/images.txt": images,
        "sparse/points3D.txt": [],
        "pairs.txt": [f"{a} {b}" for a, b in scene.pairs],
    }
    for name, lines in texts.items():
        (target / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(scene.pairs), sum(path.stat().st_size for path in scene.images.values())


def numbers(values: object) -> str:
    """Numbers with all their digits."""
    return " ".join(repr(float(value)) for value in values)  # type: ignore[attr-defined]


if __name__ == "__main__":
    run_script(main)
