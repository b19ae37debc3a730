"""HPatches sets: folders of strips of 65 px patches, one folder a sequence."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.data.patch_files import read_patches
from matchkernel.errors import ArgumentError, FileError

SIDE = 65
NOISES = ("e", "h", "t")  # easy, hard, tough
IMAGES = ("ref", *(f"{noise}{k}" for noise in NOISES for k in range(1, 6)))


@dataclass(frozen=True)
class HPatchesSet:
    """The sequences of a set, in the order of their names, with their numbers of patches."""

    root: Path
    counts: dict[str, int]

    def read(self, sequence: str, image: str = "ref") -> np.ndarray:
        """(N, 65, 65) uint8 patches of one strip; patch j is the same physical patch in every strip of a sequence."""
        if sequence not in self.counts:
            raise ArgumentError(f"{self.root}: has no sequence {sequence!r}")
        if image not in IMAGES:
            raise ArgumentError(f"a strip is one of {', '.join(IMAGES)}, got {image!r}")
        patches = _read_strip(self.root / sequence / f"{image}.png")
        if len(patches) != self.counts[sequence]:
            raise FileError(
                f"{self.root / sequence / image}.png: {len(patches)} patches, ref.png {self.counts[sequence]}"
            )
        return patches


def open_hpatches(root: str | Path) -> HPatchesSet:
    """Find the sequences of a set: the folders that hold ref.png. Every sequence must have all 16 strips."""
    root = Path(root)
    if not root.is_dir():
        raise FileError(f"{root}: no such folder")
    counts = {}
    for folder in sorted(path.parent for path in root.glob("*/ref.png")):
        missing = [image for image in IMAGES if not (folder / f"{image}.png").is_file()]
        if missing:
            raise FileError(f"{folder}: {missing[0]}.png is missing")
        counts[folder.name] = len(_read_strip(folder / "ref.png"))
    if not counts:
        raise FileError(f"{root}: no sequences here (folders with ref.png)")
    return HPatchesSet(root, counts)


def read_splits(path: str | Path) -> dict[str, dict[str, list[str]]]:
    """The official splits.json: name -> {"test": [...], "train": [...]}; some splits have no train list."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a splits file ({error})") from None
    if not isinstance(content, dict):
        raise FileError(f"{path}: not a splits file (no names of splits)")
    return {str(name): _split(path, str(name), entry) for name, entry in content.items()}


def _split(path: Path, name: str, entry: object) -> dict[str, list[str]]:
    parts = {part: entry[part] for part in ("test", "train") if part in entry} if isinstance(entry, dict) else {}
    is_sound = all(isinstance(part, list) and all(isinstance(s, str) for s in part) for part in parts.values())
    if "test" not in parts or not is_sound:
        raise FileError(f"{path}: not a splits file (split {name[:60]!r} is no lists of names, test and perhaps train)")
    return parts


def _read_strip(path: Path) -> np.ndarray:
    patches = read_patches(path)
    if patches.shape[-1] != SIDE or patches.dtype != np.uint8:
        raise FileError(
            f"{path}: a strip has 8 bit patches of {SIDE} px, this {patches.dtype} of {patches.shape[-1]} px"
        )
    return patches
