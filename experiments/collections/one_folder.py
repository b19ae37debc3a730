"""Throw the photos of several scenes into one folder under shuffled, anonymous names; keep which is which beside it."""

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.cli.console import run_script
from matchkernel.colmap.model import covisible_images, read_reconstruction
from matchkernel.errors import FileError
from matchkernel.storage.folders import new_folder
from matchkernel.storage.images import SUFFIXES

TRUTH = "truth.json"


@dataclass(frozen=True)
class Mixed:
    """Photos of several scenes in one folder.

    Attributes:
        images: the folder of photos.
        scene: scene of each photo, by its anonymous name.
        shared: number of reconstructed points that two photos share, by pair of anonymous names (first < second).
    """

    images: Path
    scene: dict[str, str]
    shared: dict[tuple[str, str], int]

    @property
    def names(self) -> list[str]:
        """All anonymous names, sorted."""
        return sorted(self.scene)


def mix(scenes: list[Path], out: Path, seed: int = 0) -> Mixed:
    """Copy all photos of the scenes' images/ into out/images as 0000.jpg, 0001.jpg, ... in random order.

    Args:
        scenes: folders with images/ and a COLMAP model in sparse/.
        out: folder to create, or one that was created by this function from the same scenes with the same seed.
        seed: of the order.
    """
    photos = [
        (scene.name, path)
        for scene in sorted(scenes)
        for path in sorted((scene / "images").rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    order = np.random.default_rng(seed).permutation(len(photos))
    named = {f"{number:04}{photos[chosen][1].suffix.lower()}": photos[chosen] for number, chosen in enumerate(order)}
    if not out.exists():
        with new_folder(out) as part:
            (part / "images").mkdir()
            for name, (_, path) in named.items():
                shutil.copyfile(path, part / "images" / name)
            original = {name: [scene, path.name] for name, (scene, path) in sorted(named.items())}
            (part / TRUTH).write_text(json.dumps(original, indent=0) + "\n", encoding="utf-8")
    if sorted(path.name for path in (out / "images").iterdir()) != sorted(named):
        raise FileError(f"{out}: was made from other scenes; remove it or choose another place")
    anonymous = {(scene, path.relative_to(path.parent).as_posix()): name for name, (scene, path) in named.items()}
    shared = {}
    for scene in sorted(scenes):
        found = shared_points(scene / "sparse")
        for (first, second), count in found.items():
            pair = sorted((anonymous[scene.name, first], anonymous[scene.name, second]))
            shared[pair[0], pair[1]] = count
    return Mixed(out / "images", {name: scene for name, (scene, _) in named.items()}, shared)


def shared_points(sparse: Path) -> dict[tuple[str, str], int]:
    """Number of points that two images of a COLMAP model share, for all pairs with at least one."""
    found = covisible_images(read_reconstruction(sparse))
    return {(name, other): count for name, others in found for other, count in others if name > other}


def main() -> None:
    """Make the folder and count what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    found = mix(arguments.scenes, arguments.out)
    print(f"{len(found.names)} photos of {len(set(found.scene.values()))} scenes -> {found.images}")


if __name__ == "__main__":
    run_script(main)
