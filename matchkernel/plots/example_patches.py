"""Patches to draw pictures of: from a file of patches, two pictures of patches, or a match of two photos."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_files import read_patches
from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import extract_patches
from matchkernel.photos.extract import Image
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.pixels import as_gray
from matchkernel.storage.work import Say

SIDE = 64  # pixels of a patch that is cut from a photo
MAX_SIDE = 128  # a square picture up to this size is a patch, any other a photo
KEYPOINTS = 1000


def two_patches(
    files: Sequence[Path],
    a: int | None = None,
    b: int | None = None,
    match: int | None = None,
    say: Say = lambda line: None,
) -> tuple[Tensor, Tensor]:
    """Two patches of the same size, (N, N) floats.

    Args:
        files: a .npy stack or a .png strip of patches; two pictures of one patch each; two photos, which are matched;
            or nothing: the sample pair of photos.
        a: index of the first patch of a stack or strip (default: 0); refused for others, as is b.
        b: index of the second (default: 1).
        match: which match of two photos, 1 for the closest pair of descriptors (default); refused for patches.
        say: called with which match of the two photos this is, and where.
    """
    if len(files) > 2:
        raise ArgumentError(f"give one file of patches, or two pictures, got {len(files)} files")
    if len(files) != 1 and (a is not None or b is not None):
        raise ArgumentError("--a and --b choose patches of one .npy stack or .png strip, which is not given")
    photos: Sequence[Image] = files or load_motorcycle()[:2]
    if len(files) == 1:
        pair = _of_stack(files[0], (0 if a is None else a, 1 if b is None else b), "; give two photos")
    else:
        pair = [as_gray(photo) for photo in photos]
        if not all(gray.shape[0] == gray.shape[1] <= MAX_SIDE for gray in pair):
            pair, match = matched_patches(photos, 1 if match is None else match, say), None
        elif pair[0].shape != pair[1].shape:
            raise ArgumentError(f"{files[0]} and {files[1]}: patches of {len(pair[0])} and {len(pair[1])} px")
    if match is not None:
        raise ArgumentError(f"{files[0]}: holds patches; --match is for two photos")
    return _floats(pair[0]), _floats(pair[1])


def one_patch(file: Path | None, index: int = 0) -> Tensor:
    """A patch of a .npy stack or a .png strip, (N, N) floats; without a file, one of the sample photos."""
    if file is None:
        return two_patches([])[0]
    return _floats(_of_stack(file, (index,), "; give patches, not a photo")[0])


def matched_patches(photos: Sequence[Image], number: int = 1, say: Say = lambda line: None) -> list[np.ndarray]:
    """(64, 64) of each photo around a match that agrees with the geometry of the two; 1 is the closest."""
    found = match_images(photos[0], photos[1], keypoints=KEYPOINTS)
    order = np.argsort(found.matches.distances, kind="stable")
    chosen = order[found.inliers[order]]
    if not 1 <= number <= len(chosen):
        raise ArgumentError(
            f"the strongest {KEYPOINTS:,} keypoints of the photos have {len(chosen)} matches that agree, cannot draw "
            f"match {number}"
        )
    which = chosen[number - 1]
    places = ["({:.0f}, {:.0f})".format(*points[which]) for points in found.points]
    say(f"match {number} of {len(chosen)} among the strongest {KEYPOINTS:,} keypoints, at {' and '.join(places)}")
    return [
        extract_patches(as_gray(photo), features.frames[index : index + 1], SIDE)[0]
        for photo, features, index in zip(photos, found.features, found.matches.indices[which], strict=True)
    ]


def check_content(*patches: Tensor) -> None:
    """Refuse patches that are not (N, N) of one size, constant, or not finite: there is nothing to see in them."""
    if len({patch.shape for patch in patches}) > 1 or patches[0].ndim != 2 or len(set(patches[0].shape)) > 1:
        raise ArgumentError(f"expected (N, N) patches of one size, got {[tuple(patch.shape) for patch in patches]}")
    if not all(bool(patch.isfinite().all()) and bool(patch.min() < patch.max()) for patch in patches):
        raise ArgumentError("a patch is constant, or has pixels that are not finite: choose another")


def _of_stack(path: Path, indices: Sequence[int], of_photos: str) -> list[np.ndarray]:
    stack = read_patches(path, of_photos)
    if not all(0 <= index < len(stack) for index in indices):
        count = f"{len(stack)} patch{'es' * (len(stack) != 1)}"
        raise ArgumentError(f"{path}: has only {count}, cannot draw {' and '.join(map(str, dict.fromkeys(indices)))}")
    return [stack[index].squeeze() for index in indices]


def _floats(patch: np.ndarray) -> Tensor:
    return torch.from_numpy(patch.astype(np.float32))
