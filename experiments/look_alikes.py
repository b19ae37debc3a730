"""Photos that look alike and show different things, by rules from a COLMAP model; and crops that show the same.

A camera *could see* a 3-D point if the point projects into its photo, grown by a margin on each side, and if the
direction to the camera is within 60 degrees of the direction to a camera that observes the point. Hidden points count:
the rule errs on the side of leaving pairs out.

- "other side", "other part": two photos of one scene without a 3-D point that both could see; their axes are at least,
  or less than, 60 degrees apart.
- "other crop": square crops, at the same height, of two photos of a facade without a 3-D point that both crops could
  see, with a margin around each crop; both show points of the model, so that there is something to match.
- "same crop": such crops that observe 15 or more common points.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np

from matchkernel.colmap.model import NO_POINT, Reconstruction, RegisteredImage, read_reconstruction
from matchkernel.evaluation.photos.scenes import SHARED_POINTS
from matchkernel.geometry.cameras import project

FACADES = ("brandenburg", "british_museum", "castle", "fountain", "lund_door", "sacre_coeur", "sceaux")
SEEN_FROM = np.cos(np.deg2rad(60))  # of directions from which a point looks alike
APART = np.cos(np.deg2rad(60))  # of the axes of cameras on different sides
MARGIN = 0.1  # of the sides of a photo or crop, on each side
SIDE = 0.4  # of a crop, as a share of the longer side of the photo
LEAST_SIDE = 300  # pixels
LEAST_POINTS = 40  # observed in a crop
SAME_HEIGHT = 0.1  # maximum difference of the heights of two crops, as a share of the photo's
TRIES, ROUNDS = 60, 4  # pairs of crops of two photos; how often all photos are tried

Box = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(frozen=True)
class Piece:
    """A photo, or a crop of it."""

    photo: str
    box: Box | None = None

    @property
    def name(self) -> str:
        """Of the photo, or of the crop's file."""
        return self.photo if self.box is None else f"{Path(self.photo).stem}@{'-'.join(map(str, self.box))}.png"


Found = tuple[str, Piece, Piece]  # the kind of pair, and the two


class SceneGeometry:
    """Which points of a scene each photo could see, and where."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.resolve().name
        self.model: Reconstruction = read_reconstruction(folder / "sparse")
        self.images = sorted(self.model.images.values(), key=lambda image: image.name)
        self.ids = np.array(sorted(self.model.points), np.int64)
        self.points = np.array([self.model.points[number] for number in self.ids.tolist()])

    @cached_property
    def observed(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each image: places in self.points of what it observes, and (K, 2) its pixels."""
        known = [(image, image.points != NO_POINT) for image in self.images]
        return [(np.searchsorted(self.ids, image.points[has]), image.places[has]) for image, has in known]

    @cached_property
    def visible(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each image: the points that it could see, and (K, 2) where."""
        centres = [-image.R.T @ image.t for image in self.images]
        seen = [own for own, _ in self.observed]
        rays = [(own, _unit(centre - self.points[own])) for own, centre in zip(seen, centres, strict=True)]
        found = []
        for image, centre, own_points in zip(self.images, centres, seen, strict=True):
            here, cosines = _unit(centre - self.points), np.full(len(self.points), -1.0)
            for own, directions in rays:
                cosines[own] = np.maximum(cosines[own], (here[own] * directions).sum(1))
            camera = self.model.cameras[image.camera]
            places, in_front = project(camera.model, camera.parameters, self.points @ image.R.T + image.t)
            size = np.array([camera.width, camera.height])
            inside = ((places > -MARGIN * size) & (places < (1 + MARGIN) * size)).all(1)
            chosen = np.flatnonzero(in_front & inside & (cosines >= SEEN_FROM))
            chosen = np.union1d(chosen, own_points)
            found.append((chosen, places[chosen]))
        return found

    def other_sides(self, most: int) -> Iterator[Found]:
        """Pairs of photos that see nothing in common, at most so many, spread evenly."""
        pairs = [
            ("other side" if one.R[2] @ two.R[2] <= APART else "other part", Piece(one.name), Piece(two.name))
            for (one, (a, _)), (two, (b, _)) in combinations(zip(self.images, self.visible, strict=True), 2)
            if not len(np.intersect1d(a, b))
        ]
        yield from (pairs[k] for k in spread(len(pairs), most))

    def crops(self, most: int) -> Iterator[Found]:
        """Pairs of crops of a facade: at most so many of different parts, and half as many that show the same."""
        if self.name not in FACADES:
            return
        random = np.random.default_rng(0)
        left = {"other crop": most, "same crop": most // 2}
        pairs = list(combinations(range(len(self.images)), 2))
        for number in random.permutation(len(pairs)).tolist() * ROUNDS:
            for kind, a, b in self._crops_of(pairs[number], {kind for kind in left if left[kind]}, random):
                left[kind] -= 1
                yield kind, a, b

    def _crops_of(self, pair: tuple[int, int], wanted: set[str], random: np.random.Generator) -> Iterator[Found]:
        """At most one pair of crops of each kind that is wanted, of two photos."""
        images = [self.images[k] for k in pair]
        sizes = [self._size(image) for image in images]
        for _ in range(TRIES):
            if not wanted:
                return
            boxes = [random_box(size, random) for size in sizes]
            heights = [(box[1] + box[3]) / 2 / size[1] for box, size in zip(boxes, sizes, strict=True)]
            sides = [box[2] - box[0] for box in boxes]
            if min(sides) < LEAST_SIDE or abs(heights[0] - heights[1]) > SAME_HEIGHT:
                continue
            own = [self._inside(self.observed[k], box) for k, box in zip(pair, boxes, strict=True)]
            if min(map(len, own)) < LEAST_POINTS:
                continue
            wide = [self._inside(self.visible[k], box, MARGIN) for k, box in zip(pair, boxes, strict=True)]
            kind = None
            if not len(np.intersect1d(*wide)):
                kind = "other crop"
            elif len(np.intersect1d(*own)) >= SHARED_POINTS:
                kind = "same crop"
            if kind in wanted:
                wanted.remove(kind)
                yield kind, Piece(images[0].name, boxes[0]), Piece(images[1].name, boxes[1])

    def _size(self, image: RegisteredImage) -> tuple[int, int]:
        """Width and height."""
        camera = self.model.cameras[image.camera]
        return camera.width, camera.height

    @staticmethod
    def _inside(seen: tuple[np.ndarray, np.ndarray], box: Box, margin: float = 0.0) -> np.ndarray:
        """The points of those an image sees that lie in a box with a margin."""
        points, places = seen
        low, high = np.array(box[:2]), np.array(box[2:])
        grown = margin * (high - low)
        return points[((places >= low - grown) & (places < high + grown)).all(1)]

    def read(self, piece: Piece) -> np.ndarray:
        """The pixels of a photo or a crop."""
        pixels = cv2.imread(str(self.folder / "images" / piece.photo))
        if piece.box is None:
            return pixels
        left, top, right, bottom = piece.box
        return pixels[top:bottom, left:right]


def random_box(size: tuple[int, int], random: np.random.Generator) -> Box:
    """A square somewhere in a photo of this size."""
    side = min(round(SIDE * max(size)), *size)
    left, top = (int(random.integers(0, length - side + 1)) for length in size)
    return left, top, left + side, top + side


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below count, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)).tolist()


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
