"""Stacks of patches from files: a .npy array or an HPatches strip (patches stacked vertically in one PNG)."""

from pathlib import Path

import numpy as np

from matchkernel.errors import FileError
from matchkernel.storage.arrays import map_npy
from matchkernel.storage.images import open_image

OF_PHOTOS = "; `matchkernel extract` describes photos"


def read_patches(path: str | Path, of_photos: str = OF_PHOTOS) -> np.ndarray:
    """Read a stack of square patches, chosen by the file's suffix.

    Args:
        path: .npy of (B, N, N) or (B, 1, N, N), memory-mapped; or .png, N wide and B N high, 8 or 16 bit gray.
        of_photos: advice at the end of an error about a file that may be a photo.

    Returns:
        (B, N, N) or (B, 1, N, N) with the number type of the file.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path}: is a folder; give one file, such as ref.png of a sequence or a set's patches.npy")
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".png"):
        raise FileError(
            f"{path}: patches are read from .npy or .png, not from {path.suffix or 'a file without suffix'}{of_photos}"
        )
    return _read_npy(path) if suffix == ".npy" else _read_strip(path, of_photos)


def _read_npy(path: Path) -> np.ndarray:
    patches = map_npy(path)
    is_stack = patches.ndim == 3 or (patches.ndim == 4 and patches.shape[1] == 1)
    if not is_stack or patches.shape[-1] != patches.shape[-2]:
        raise FileError(f"{path}: patches must have shape (B, N, N) or (B, 1, N, N), got {patches.shape}")
    if patches.dtype.kind not in "uif" or patches.dtype.itemsize > 8:
        raise FileError(f"{path}: patches must be integers or floats of at most 64 bits, got {patches.dtype}")
    return patches


def _read_strip(path: Path, of_photos: str) -> np.ndarray:
    with open_image(path, ("PNG",)) as image:
        width, height = image.size
        if height % width:
            size = f"{width} x {height} pixels"
            raise FileError(f"{path}: the height of a strip must be a multiple of its width, got {size}{of_photos}")
        if image.mode not in ("L", "I;16", "RGB"):
            raise FileError(f"{path}: a strip must be 8 or 16 bit gray or RGB, got mode {image.mode}")
        strip = np.asarray(image.convert("L") if image.mode == "RGB" else image)
    return strip.reshape(height // width, width, width)
