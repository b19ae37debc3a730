"""Geometric positives: keypoints that the matcher missed, but that must show a 3-D point according to the geometry.

Tracks contain only what SIFT could match, so they are biased towards easy changes. Here every 3-D point is projected
into every photo outside its track. A keypoint without a track that is close to the projection is assigned to the point
if its scale and orientation agree with the predicted ones, and if the sparse depth around it shows that the point is
visible.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import Photo, Scene
from matchkernel.geometry.cameras import PROJECTABLE, project
from matchkernel.storage.settings import Checked, setting

LEAST_NEIGHBOURS = 3  # number of tracked keypoints around a position that are needed to judge the depth there


@dataclass(frozen=True)
class Tolerances(Checked):
    """How far a keypoint may be from what is predicted for a projected point."""

    pixels: float = setting(2.0, low=0)  # maximum distance from the projection
    share: float = setting(0.2, low=0)  # the same, as a share of the keypoint's half width; the smaller limit applies
    octaves: float = setting(0.5, low=0)  # between its scale and the predicted one
    degrees: float = setting(22.5, low=0)  # between its orientation and the predicted one
    view_degrees: float = setting(50.0, low=0)  # between the rays to the photo and to the nearest photo of the track
    depth: float = setting(0.05, low=0)  # relative difference of depth between neighbours on the same surface
    neighbours: int = setting(8, low=1)  # number of surrounding tracked keypoints of the photo whose depth is compared
    agreeing: float = setting(0.6, low=0, high=1)  # share of them that must agree
    reach: float = setting(0.06, low=0)  # how far neighbours may be, as a share of the photo's longer side


@dataclass(frozen=True)
class _Observations:
    """Every tracked keypoint of the scene, photo by photo."""

    photo: np.ndarray  # (M,) number of the photo
    point: np.ndarray  # (M,)
    depth: np.ndarray  # (M,)
    size: np.ndarray  # (M,) half width of the region in the scene
    direction: np.ndarray  # (M, 3) the patch's x axis in the scene, assumed to be parallel to the image plane
    ray: np.ndarray  # (M, 3) unit vector from the point to the photo


def find_geometric_positives(scene: Scene, tolerances: Tolerances | None = None) -> list[np.ndarray]:
    """For each photo, the points of its keypoints: (K,) rows of Scene.points, or NO_POINT if none or tracked."""
    observed = _observations(scene)
    order = np.argsort(observed.point, kind="stable")
    bounds = np.searchsorted(observed.point[order], np.arange(len(scene.points) + 1))
    tracks = [order[start:stop] for start, stop in pairwise(bounds)]
    return [
        _of_photo(scene, number, observed, tracks, tolerances or Tolerances()) for number in range(len(scene.photos))
    ]


def _of_photo(
    scene: Scene, number: int, observed: _Observations, tracks: list[np.ndarray], tolerances: Tolerances
) -> np.ndarray:
    photo = scene.photos[number]
    found = np.full(len(photo.points), NO_POINT)
    free = _FreeKeypoints(photo)
    mine = observed.photo == number
    if photo.camera.model not in PROJECTABLE or not mine.any():
        return found
    places, depths, inside = _project(photo, scene.points)
    own_places, own_depths = places[observed.point[mine]], observed.depth[mine]
    inside[observed.point[mine]] = False
    claims = []
    for point in np.flatnonzero(inside):
        near = free.within(places[point], tolerances.pixels, tolerances.share)
        if len(near) and _is_visible(places[point], depths[point], own_places, own_depths, max(photo.size), tolerances):
            near = near[
                _looks_right(photo, near, scene.points[point], depths[point], tracks[point], observed, tolerances)
            ]
            distances = np.linalg.norm(photo.frames.centers[near] - places[point], axis=1)
            claims += [(distance, keypoint, point) for distance, keypoint in zip(distances, near, strict=True)]
    taken: set[int] = set()
    for _, keypoint, point in sorted(claims):  # nearest first: one keypoint per point, one point per keypoint
        if point not in taken and found[keypoint] == NO_POINT:
            taken.add(int(point))
            found[keypoint] = point
    return found


class _FreeKeypoints:
    """The keypoints of a photo that belong to no track, sorted for search by position."""

    def __init__(self, photo: Photo) -> None:
        free = np.flatnonzero(photo.points == NO_POINT)
        self.numbers = free[np.argsort(photo.frames.centers[free, 0], kind="stable")]
        self.places = photo.frames.centers[self.numbers]
        self.half_widths = photo.frames.half_widths[self.numbers]

    def within(self, place: np.ndarray, radius: float, share: float) -> np.ndarray:
        start, stop = np.searchsorted(self.places[:, 0], (place[0] - radius, place[0] + radius))
        reach = np.minimum(radius, share * self.half_widths[start:stop])
        near = ((self.places[start:stop] - place) ** 2).sum(1) < reach**2
        return self.numbers[start:stop][near]


def _is_visible(
    place: np.ndarray, depth: float, own_places: np.ndarray, own_depths: np.ndarray, side: int, tolerances: Tolerances
) -> bool:
    """Whether the photo's own tracked points around a position have the depth of the point that projects there."""
    distance = np.linalg.norm(own_places - place, axis=1)
    nearest = np.argpartition(distance, min(tolerances.neighbours, len(distance)) - 1)[: tolerances.neighbours]
    nearest = nearest[distance[nearest] < tolerances.reach * side]
    agree = np.abs(own_depths[nearest] / depth - 1) < tolerances.depth
    return len(nearest) >= LEAST_NEIGHBOURS and bool(agree.mean() >= tolerances.agreeing)


def _looks_right(
    photo: Photo,
    near: np.ndarray,
    X: np.ndarray,
    depth: float,
    track: np.ndarray,
    observed: _Observations,
    tolerances: Tolerances,
) -> np.ndarray:
    """Which keypoints have the scale and orientation that the point's own observations predict here."""
    ray = -(photo.pose.R.T @ photo.pose.t) - X
    cosines = observed.ray[track] @ (ray / np.linalg.norm(ray))
    if not len(track) or cosines.max() < np.cos(np.deg2rad(tolerances.view_degrees)):
        return np.zeros(len(near), bool)
    close = track[cosines > cosines.max() - 0.05]  # the most similar views give the best prediction
    half_width = np.median(observed.size[close]) * photo.pixels_per_unit / depth
    directions = observed.direction[close] @ photo.pose.R.T
    angle = np.arctan2(directions[:, 1].sum(), directions[:, 0].sum())
    octaves = np.abs(np.log2(photo.frames.half_widths[near] / half_width))
    turn = np.abs((photo.frames.angles[near] - angle + np.pi) % (2 * np.pi) - np.pi)
    return (octaves < tolerances.octaves) & (turn < np.deg2rad(tolerances.degrees))


def _observations(scene: Scene) -> _Observations:
    parts = []
    for number, photo in enumerate(scene.photos):
        keypoints = np.flatnonzero(photo.points != NO_POINT)
        points = photo.points[keypoints]
        X = scene.points[points]
        depth = photo.depths(X)
        angles = photo.frames.angles[keypoints]
        in_camera = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(len(angles))])
        ray = -(photo.pose.R.T @ photo.pose.t) - X
        parts.append(
            _Observations(
                photo=np.full(len(points), number),
                point=points,
                depth=depth,
                size=photo.frames.half_widths[keypoints] * depth / photo.pixels_per_unit,
                direction=in_camera @ photo.pose.R,
                ray=ray / np.linalg.norm(ray, axis=1, keepdims=True),
            )
        )
    names = _Observations.__dataclass_fields__
    return _Observations(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _project(photo: Photo, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions in the file, depths, and which points lie inside it."""
    in_camera = points @ photo.pose.R.T + photo.pose.t
    places, visible = project(photo.camera.model, photo.camera.parameters, in_camera)
    places = photo.to_file_pixels(places)
    inside = visible & ((places > 0) & (places < np.array(photo.size) - 1)).all(1)
    return places, in_camera[:, 2], inside
