"""Detect keypoints with DoG (OpenCV's SIFT detector) or Key.Net, choose those that fill a budget, and orient them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.dog import (
    DENSITY,
    SIFT_PIXELS,
    TORCH_DOG,
    SearchImage,
    dog_points,
    room_for,
    search_images,
)
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.orientation import dominant_angles
from matchkernel.storage.extras import need, need_opencv
from matchkernel.storage.settings import check_ranges, setting, short_repr

# Key.Net takes about 510 bytes per pixel: images for it are smaller by this factor, and take 2 GB.
KEYNET_SHARE = 4
MAX_POOLED = 16
NETWORKS: tuple[Literal["keynet", "affnet", "orinet"], ...] = ("keynet", "affnet", "orinet")  # fields: weight files
Choice = Literal["strongest", "largest", "spread", "cells"]
# Brown, Szeliski and Winder 2005: a keypoint is suppressed only by one that is clearly stronger.
ROBUSTNESS = 0.9
PER_CELL = 4  # keypoints in a cell of an evenly filled image
PAIRS_AT_A_TIME = 2**20


@dataclass(frozen=True)
class Detection:
    """Keypoints of one image, strongest first."""

    frames: Frames
    scores: np.ndarray  # (K,) contrast, or Key.Net's response


@dataclass(frozen=True)
class Detector:
    """How keypoints are detected. Options of functions and commands are derived from these fields.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.detect import Detector
        >>> y, x = np.mgrid[:80, :100]
        >>> blob = 40 + 180 * np.exp(-((x - 60) ** 2 + (y - 30) ** 2) / 32)
        >>> found = Detector(keypoints=1).detect(blob.astype(np.uint8))
        >>> found.frames.centers.round().tolist()
        [[60.0, 30.0]]
    """

    keypoints: int = setting(4000, low=0, about="maximum number of keypoints per image; 0 for all")
    contrast: float = setting(0.01, above=0, high=1000, about="contrast threshold of the detector")
    edge: float = setting(10.0, above=0, high=10**6, about="edge threshold of the detector")
    upright: bool = setting(False, about="ignore keypoint orientation: one upright region per position and size")
    magnification: float = setting(
        MAGNIFICATION, above=0, high=1000, about="half side of a region / sigma of its keypoint"
    )
    choice: Literal["strongest", "largest", "spread", "cells"] = setting(
        "largest", about="which keypoints fill the budget: strongest, largest, spread over the image, best of cells"
    )
    orientations: Literal["all", "one"] = setting(
        "all", about="orientations per position: all the detector finds, or only the dominant one"
    )
    pooling: str = setting(
        "", about="average a keypoint's descriptors over regions of these half sides / sigma, such as 6,8,10"
    )
    keynet: str | None = setting(None, about="weight file of Key.Net, which then finds the keypoints instead of DoG")
    affnet: str | None = setting(None, about="weight file of AffNet, which then stretches the regions")
    orinet: str | None = setting(None, about="weight file of OriNet, which then assigns one orientation per position")
    density: float = setting(
        DENSITY,
        low=0,
        high=1,
        about="keypoints per pixel of the smaller copy of a large photo in which they are searched; 0: no copy",
    )
    # Larger images are halved for detection: only the very smallest keypoints are lost, and memory stays below 180
    # bytes per pixel of this number.
    most_pixels: int = setting(SIFT_PIXELS, low=1, high=10**9)
    # What computes DoG; auto: torch on an NVIDIA GPU, OpenCV elsewhere. It becomes the default when a GPU has run it.
    dog: Literal["opencv", "torch", "auto"] = setting("opencv")

    def __post_init__(self) -> None:
        for name in NETWORKS:
            path = getattr(self, name)
            object.__setattr__(self, name, str(path) if isinstance(path, Path) else path)
        if isinstance(self.pooling, (list, tuple)):
            object.__setattr__(self, "pooling", ",".join(map(str, self.pooling)))
        check_ranges(self)
        if self.upright and self.orinet is not None:
            raise ArgumentError("upright keypoints have no orientation for OriNet to find: leave out upright or orinet")
        object.__setattr__(self, "pooling", ",".join(f"{number:.9g}" for number in self.pooled_magnifications))

    @property
    def pooled_magnifications(self) -> tuple[float, ...]:
        """The numbers of `pooling`; none without pooling."""
        try:
            found = tuple(float(part) for part in self.pooling.split(",")) if self.pooling else ()
        except ValueError:
            found = (0.0,)
        if not all(0 < number <= 1000 for number in found) or len(found) > MAX_POOLED:
            raise ArgumentError(
                f"pooling must be up to {MAX_POOLED} numbers above 0, such as 6,8,10, got {short_repr(self.pooling)}"
            )
        return found

    @property
    def has_networks(self) -> bool:
        """True if a network of kornia is used."""
        return any(getattr(self, name) is not None for name in NETWORKS)

    def settings(self, device: Any = None) -> dict[str, Any]:
        """What is recorded with features that are detected with this device; a weight file by its sha256.

        Files that cannot be used are refused here.
        """
        dog = TORCH_DOG if self._in_torch(device) else f"OpenCV {need_opencv().__version__} SIFT, precise upscale"
        found = {"detector": dog if self.keynet is None else "Key.Net", **asdict(self)}
        del found["dog"]  # the name says it
        if not self.copy_density:  # as earlier versions, which searched every photo itself
            del found["density"]
        for name in (name for name in NETWORKS if found[name] is not None):
            networks = _frame_networks()
            networks.open_network(name, found[name])
            found[name] = networks.weights_digest(found[name])
            found["networks"] = networks.library()
        return found

    def continuing(self, recorded: Mapping[str, Any]) -> "Detector":
        """The detector that adds to features with these settings: with what found their keypoints, OpenCV or torch.

        If they record no density, photos had no copies.
        """
        name = str(recorded.get("detector", ""))
        is_before = "keypoints" in recorded and "density" not in recorded and self.density == DENSITY
        found = replace(self, density=0.0) if is_before else self
        if self.dog == "auto" and name.startswith("OpenCV"):
            return replace(found, dog="opencv")
        return replace(found, dog="torch") if self.dog == "auto" and name == TORCH_DOG else found

    def _in_torch(self, device: Any) -> bool:
        """Whether torch finds the DoG keypoints."""
        return self.dog == "torch" or (self.dog == "auto" and str(device).startswith("cuda"))

    @property
    def copy_density(self) -> float:
        """The density, where it matters: a copy has the largest DoG keypoints, but not the others."""
        return self.density if self.keypoints and self.choice == "largest" and self.keynet is None else 0.0

    def detect(self, gray: np.ndarray, mask: np.ndarray | None = None, *, device: Any = None) -> Detection:
        """Keypoints of an image, strongest first.

        Args:
            gray: (H, W) uint8.
            mask: (H, W) uint8; only keypoints where it is not 0.
            device: where networks run, and DoG in torch (default: CPU).
        """
        rows, shapes = self._find(gray, mask, device)
        angles = np.where(rows[:, 3] < 0, 0.0, np.deg2rad(rows[:, 3]))
        frames = Frames.turned_squares(rows[:, :2], self.magnification * rows[:, 2] / 2, angles)
        if shapes is not None:
            frames = Frames(frames.centers, frames.half_widths[:, None, None] * shapes)
        return Detection(frames, rows[:, 4])

    def detect_points(self, gray: np.ndarray, mask: np.ndarray | None = None, *, device: Any = None) -> list[Any]:
        """The same keypoints as cv2.KeyPoint objects; upright ones have angle -1."""
        if self.affnet is not None:
            raise ArgumentError("an OpenCV keypoint is a circle and cannot hold AffNet's shapes: leave affnet out")
        rows, _ = self._find(gray, mask, device)
        KeyPoint = need_opencv().KeyPoint
        return [KeyPoint(*row, int(octave)) for *row, octave in rows.tolist()]

    def _find(self, gray: np.ndarray, mask: np.ndarray | None, device: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """(K, 6) x, y, size, angle, response, octave in OpenCV's terms, strongest first; AffNet's (K, 2, 2) shapes."""
        if gray.ndim != 2 or gray.dtype != np.uint8 or not gray.size:
            raise ArgumentError(f"an image must be (H, W) uint8 gray, got {gray.dtype} of shape {gray.shape}")
        if mask is not None and (mask.shape != gray.shape or mask.dtype != np.uint8):
            raise ArgumentError(f"a mask must be uint8 of shape {gray.shape}, got {mask.dtype} of shape {mask.shape}")
        limit = self.most_pixels if self.keynet is None else max(1, self.most_pixels // KEYNET_SHARE)
        one = self.upright or self.orientations == "one" or self.has_networks
        for image in search_images(gray, mask, self.keypoints, self.copy_density, limit):
            rows = self._candidates(image, one, device)
            if len(rows) >= self.keypoints:
                break
        rows = rows[self._chosen(rows)]
        shapes = self._measure(image.gray, rows, device) if one else None
        image.to_photo(rows)
        return rows, shapes

    def _candidates(self, image: SearchImage, one: bool, device: Any) -> np.ndarray:
        """Rows of all keypoints of an image, in an order that does not depend on threads."""
        with room_for(image.gray.size):
            if self.keynet is not None:
                rows = self._keynet_points(image.gray, image.mask, device)
            elif self._in_torch(device):
                rows = _device_dog().dog_points_on(image, self.contrast, self.edge, device or "cpu")
            else:
                rows = dog_points(image, self.contrast, self.edge)
        # Sorted by strength, then position, an image always gives the same list.
        rows = rows[np.lexsort((rows[:, 3], rows[:, 2], rows[:, 0], rows[:, 1], -rows[:, 4]))]
        if one:  # a position with several orientations stands once for each, one after the other
            rows = rows[(np.diff(rows[:, [0, 1, 2, 4]], axis=0, prepend=np.nan) != 0).any(1)]
        return rows

    def _keynet_points(self, gray: np.ndarray, mask: np.ndarray | None, device: Any) -> np.ndarray:
        networks = _frame_networks()
        x, y, sigmas, responses = networks.keynet_points(gray, networks.open_network("keynet", self.keynet, device)).T
        rows = np.column_stack([x, y, 2 * sigmas, -np.ones(len(x)), responses, np.zeros(len(x))])
        if mask is None:
            return rows
        return rows[mask[np.clip(y.round().astype(int), 0, len(mask) - 1), x.round().astype(int)] != 0]

    def _chosen(self, rows: np.ndarray) -> np.ndarray:
        """Ascending indices of the rows that fill the budget.

        Positions are chosen, and each comes with its orientations: several at one position neither suppress each other
        nor count as several.
        """
        if not self.keypoints or len(rows) <= self.keypoints:
            return np.arange(len(rows))
        is_new = (np.diff(rows[:, [0, 1, 2, 4]], axis=0, prepend=np.nan) != 0).any(1)
        places = rows[is_new]
        best = choose(places[:, :2], places[:, 2], places[:, 4], self.keypoints, self.choice)
        turn = np.full(len(places), len(rows))
        turn[best] = np.arange(len(best))
        order = np.argsort(turn[np.cumsum(is_new) - 1], kind="stable")
        return np.sort(order[: self.keypoints])

    def _measure(self, gray: np.ndarray, rows: np.ndarray, device: Any) -> np.ndarray | None:
        """Write one angle into each row, -1 for upright; returns the shapes of area 1 where AffNet stretches regions.

        OpenCV returns all peaks of at least 0.8 of the highest, sorted by angle and with one response, so the highest
        is measured again; in a stretched region the angle is measured in the patch.
        """
        centers, sigmas, shapes = rows[:, :2], rows[:, 2] / 2, None
        if self.affnet is not None:
            networks = _frame_networks()
            shapes = networks.affine_shapes(gray, centers, sigmas, networks.open_network("affnet", self.affnet, device))
        rows[:, 3] = -1
        if self.upright:
            return shapes
        frames = Frames(centers, sigmas[:, None, None] * (np.eye(2) if shapes is None else shapes))
        if self.orinet is not None:
            networks = _frame_networks()
            angles = networks.network_angles(gray, frames, networks.open_network("orinet", self.orinet, device))
        else:
            angles = dominant_angles(gray, frames)
        rows[:, 3] = np.rad2deg(angles) % 360
        turns = Frames.turned_squares(centers, np.ones(len(angles)), angles).shapes
        return None if shapes is None else shapes @ turns


def _device_dog() -> Any:
    """The module of DoG in torch."""
    need("torch", "torch", "DoG on a GPU")
    from matchkernel.geometry import device_dog

    return device_dog


def _frame_networks() -> Any:
    """The module of Key.Net, AffNet and OriNet, which needs torch, too."""
    need("kornia", "kornia", "Key.Net, AffNet and OriNet")
    from matchkernel.geometry import frame_networks

    return frame_networks


# COLMAP's limits on number and contrast: OpenCV divides its threshold by the three layers, COLMAP's is 0.0067.
COLMAP_LIKE = Detector(keypoints=8192, contrast=0.02)


def choose(
    centers: np.ndarray, sigmas: np.ndarray, strengths: np.ndarray, budget: int, choice: Choice = "strongest"
) -> np.ndarray:
    """Indices of at most `budget` of K keypoints, the best first; ties go to the stronger, then to the earlier one.

    - strongest: by strength;
    - largest: by sigma, as COLMAP does;
    - spread: by suppression radius, the distance to the nearest keypoint that is clearly stronger (adaptive
      non-maximal suppression);
    - cells: the best of every square cell, then the second best of every cell, and so on.

    Args:
        centers: (K, 2) x and y.
        sigmas: (K,) sizes.
        strengths: (K,) not negative.
        budget: maximum number of keypoints.
        choice: one of the above.
    """
    if choice == "strongest" or len(centers) <= 1:
        rank = -strengths
    elif choice == "largest":
        rank = -sigmas
    elif choice == "spread":
        rank = -suppression_radii(centers, strengths)
    elif choice == "cells":
        rank = _ranks_in_cells(centers, strengths, budget)
    else:
        raise ArgumentError(f"choice must be strongest, largest, spread or cells, got {choice!r}")
    return np.lexsort((-strengths, rank))[:budget]


def suppression_radii(centers: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """(K,) distance to the nearest keypoint that is stronger even when its strength is multiplied by ROBUSTNESS.

    Infinite where there is none. Exact: all keypoints within one cell's side are in a cell and its eight neighbours;
    for keypoints without one that near, the search is repeated with cells of twice the side. Few are left when cells
    are large, so the number of compared pairs grows with K and not with its square.
    """
    order = np.argsort(-np.asarray(strengths), kind="stable")
    centers, falling = np.asarray(centers, np.float64)[order], -np.asarray(strengths, np.float64)[order]
    stronger = np.searchsorted(ROBUSTNESS * falling, falling)  # the first so many suppress a keypoint
    radii = np.full(len(order), np.inf)
    waiting, side = np.flatnonzero(stronger), _cell_side(centers, 0.5)
    while len(waiting):
        nearest = _nearest_around(centers, waiting, stronger[waiting], side)
        is_sure = nearest <= side  # others may be nearer beyond the neighbouring cells
        radii[waiting[is_sure]] = nearest[is_sure]
        waiting, side = waiting[~is_sure], 2 * side
    result = np.empty(len(order))
    result[order] = radii
    return result


def _nearest_around(centers: np.ndarray, asking: np.ndarray, limits: np.ndarray, side: float) -> np.ndarray:
    """Distance of some keypoints to the nearest of the first `limits` in their cell and the eight around it."""
    K, numbers, width = len(centers), *_cell_numbers(centers, side)
    keys = numbers * K + np.arange(K)  # by cell, then by strength: those that count are a range in each cell
    by_cell = np.argsort(keys)
    offsets = np.array([row * width + column for row in (-1, 0, 1) for column in (-1, 0, 1)])
    firsts = (numbers[asking][:, None] + offsets) * K
    starts = np.searchsorted(keys[by_cell], firsts)
    counts = np.searchsorted(keys[by_cell], firsts + limits[:, None]) - starts
    totals = counts.sum(1)
    nearest = np.full(len(asking), np.inf)
    for part in _parts(totals):
        number = counts[part].ravel()
        places = np.arange(number.sum()) + np.repeat(starts[part].ravel() - np.cumsum(number) + number, number)
        pairs = centers[np.repeat(asking[part], totals[part])] - centers[by_cell[places]]
        some = np.flatnonzero(totals[part])
        begins = (np.cumsum(totals[part]) - totals[part])[some]
        if len(some):
            nearest[part.start + some] = np.minimum.reduceat(np.hypot(pairs[:, 0], pairs[:, 1]), begins)
    return nearest


def _parts(totals: np.ndarray) -> Iterator[slice]:
    """Slices of rows that together have about PAIRS_AT_A_TIME pairs."""
    ends, begin = np.cumsum(totals), 0
    while begin < len(totals):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PAIRS_AT_A_TIME, "right")))
        yield slice(begin, end)
        begin = end


def _cell_side(centers: np.ndarray, per_cell: float) -> float:
    """Side of square cells that would hold so many keypoints if these were evenly spread."""
    extent = np.ptp(centers, axis=0) if len(centers) else np.zeros(2)
    even = float(np.sqrt(per_cell * extent.prod() / max(1, len(centers))))
    return max(even, float(extent.max()) / 1000, 1e-9)  # at most a million cells, also for keypoints on a line


def _cell_numbers(centers: np.ndarray, side: float) -> tuple[np.ndarray, int]:
    """(K,) numbers of the keypoints' cells, row by row with an empty border, and how many there are in a row."""
    cells = np.floor((centers - centers.min(0)) / side).astype(np.int64) + 1
    width = int(cells[:, 0].max()) + 2
    return cells[:, 1] * width + cells[:, 0], width


def _ranks_in_cells(centers: np.ndarray, strengths: np.ndarray, budget: int) -> np.ndarray:
    """(K,) rank of a keypoint in its cell: 0 for the strongest."""
    numbers, _ = _cell_numbers(centers, _cell_side(centers, PER_CELL * len(centers) / max(1, budget)))
    order = np.lexsort((-strengths, numbers))
    is_first = np.diff(numbers[order], prepend=-1) != 0
    places = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks
