"""BinBoost (Trzcinski et al., CVPR 2013; the paper's BBoost): 256 bits, each a vote of boosted gradient tests.

Written from the publications and checked against OpenCV's implementation; the file of its tests is read by path.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.errors import WeightsError
from matchkernel.evaluation.method import RESIZED, Method, patch_method
from matchkernel.storage.files import check_regular, file_hash

SIDE, DIRECTIONS, SOFT = 32, 8, 2  # what the published files say: pixels, bins of direction, soft assignment
WEAKEST = 20.0  # gradients that are not above it have no direction
MAX_BITS, MAX_TESTS = 1024, 1024
TEST = np.dtype(
    [
        ("threshold", "<f4"), ("direction", "<i4"), ("top", "<i4"), ("bottom", "<i4"), ("left", "<i4"),
        ("right", "<i4"), ("unused", "<f4"), ("vote", "<f4"),
    ]
)  # fmt: skip


def binboost(path: Path) -> Method:
    """BinBoost with the tests of its authors' file.

    Args:
        path: binboost_256.bin (or another number of bits that is a multiple of 8).
    """
    tests = read_tests(path)
    bits = len(tests)
    settings = {
        "library": f"torch {torch.__version__}",
        "patch": f"{SIDE} px, {RESIZED}; gray levels 0 to 255",
        "call": f"{bits} bits of {tests.shape[1]} tests on gradients in {DIRECTIONS} directions",
        "licence": "GPL-2 (biotrump/cvlab-BINBOOST): read by path, not part of this package",
        "weights": path.name,
        "sha256": file_hash(path),
    }
    learned = (len(TEST.names or ()) - 1) * tests.size  # the file also keeps the weight of a test in an earlier stage
    options: dict[str, Any] = {"parameters": learned, "hand_crafted": False, "is_binary": True}
    return patch_method("binboost", SIDE, _Votes(tests).rows, settings, **options)


def read_tests(path: Path) -> np.ndarray:
    """(bits, tests per bit) of TEST."""
    check_regular(path)
    try:
        size = path.stat().st_size
        limit = 16 + MAX_BITS * (4 + MAX_TESTS * TEST.itemsize)
        content = path.read_bytes() if size <= limit else b""
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    head = np.frombuffer(content[:20], "<i4") if len(content) >= 20 else np.zeros(5, "<i4")
    bits, *kind, each = (int(number) for number in head)
    if kind != [DIRECTIONS, SIDE, SOFT] or not (0 < bits <= MAX_BITS and bits % 8 == 0 and 0 < each <= MAX_TESTS):
        raise WeightsError(f"{path}: not a file of BinBoost's tests")
    row = np.dtype([("count", "<i4"), ("tests", TEST, (each,))])
    if len(content) != 16 + bits * row.itemsize:
        raise WeightsError(f"{path}: {len(content)} bytes, expected {16 + bits * row.itemsize} for {bits} bits")
    rows = np.frombuffer(content, row, offset=16)
    tests: np.ndarray = rows["tests"]
    inside = [(tests[low] >= 0) & (tests[low] <= tests[high]) & (tests[high] < SIDE) for low, high in EDGES]
    directed = (tests["direction"] >= 0) & (tests["direction"] < DIRECTIONS)
    finite = np.isfinite(tests["threshold"]) & np.isfinite(tests["vote"])
    if not ((rows["count"] == each).all() and np.logical_and.reduce([*inside, directed, finite]).all()):
        raise WeightsError(f"{path}: damaged (a test outside the patch, or numbers that are not finite)")
    return tests


EDGES = (("top", "bottom"), ("left", "right"))


class _Votes:
    """Tests in a form that is computed for many patches at once.

    A test asks whether the share of a direction among all gradients of a rectangle reaches a threshold; a bit is the
    sign of the sum of its tests' votes.
    """

    def __init__(self, tests: np.ndarray) -> None:
        top, bottom, left, right, direction = (
            tests[name].astype(np.int64) for name in ("top", "bottom", "left", "right", "direction")
        )
        corners = ((top, left, 1), (bottom + 1, right + 1, 1), (top, right + 1, -1), (bottom + 1, left, -1))
        own, total = (
            [
                (torch.from_numpy(((plane * (SIDE + 1) + row) * (SIDE + 1) + column).ravel()), sign)
                for row, column, sign in corners
            ]
            for plane in (direction, DIRECTIONS)
        )
        self.own, self.total = own, total  # entries of the table of sums and their signs
        self.threshold = torch.from_numpy(tests["threshold"].astype(np.float32).ravel())
        self.vote = torch.from_numpy(tests["vote"].astype(np.float32))

    @torch.no_grad()
    def rows(self, piece: Tensor) -> np.ndarray:
        """(K, 1, 32, 32) gray levels -> (K, bits / 8) uint8; the first bit is the lowest of the first byte."""
        sums = nnf.pad(direction_maps(piece.round()).cumsum(-1).cumsum(-2), (1, 0, 1, 0))
        table = sums.flatten(1).T.int().contiguous()  # a row has one number for each patch
        own, total = (torch.stack([s * table[place] for place, s in p]).sum(0) for p in (self.own, self.total))
        # Where there is no gradient at all the difference counts as 0, which passes.
        passed = (own.float() / total.float().clamp_min(1) >= self.threshold[:, None]) | (total == 0)
        votes = torch.where(passed.unflatten(0, self.vote.shape), self.vote[..., None], -self.vote[..., None])
        return np.packbits((votes.sum(1) >= 0).T.numpy(), axis=1, bitorder="little")


def direction_maps(patches: Tensor) -> Tensor:
    """How much the gradient of each pixel points in each direction, from 0 to 255, and as the last map their sum.

    Args:
        patches: (K, 1, n, n) gray levels 0 to 255.

    Returns:
        (K, DIRECTIONS + 1, n, n) int64.
    """
    smooth, slope = torch.tensor([1.0, 2.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0])
    kernels = torch.stack([smooth[:, None] * slope, slope[:, None] * smooth])[:, None]
    across, down = nnf.conv2d(nnf.pad(patches, (1, 1, 1, 1), "reflect"), kernels).double()[:, :, None].unbind(1)
    centres = (torch.arange(DIRECTIONS, dtype=torch.float64)[:, None, None] + 0.5) * 2 * torch.pi / DIRECTIONS
    strength = (across**2 + down**2).sqrt()
    cosine = (across * centres.cos() + down * centres.sin()) / strength.clamp_min(1)  # of the angle to each centre
    maps = (255 * cosine.clamp_min(0)).round().long() * (strength > WEAKEST)
    return torch.cat([maps, maps.sum(1, keepdim=True)], 1)
