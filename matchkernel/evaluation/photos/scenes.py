"""Scenes to evaluate on: photos with true cameras or homographies, and the pairs of photos to match."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.model import covisible_images, read_reconstruction
from matchkernel.colmap.scene import fits_camera
from matchkernel.data.from_homographies import read_homography, sequence_image
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.cameras import PROJECTABLE, focal_and_centre, focal_length, unproject
from matchkernel.geometry.conventions import COLMAP_ORIGIN
from matchkernel.geometry.two_view import check_homography
from matchkernel.photos.pair_lists import Pair, read_pairs
from matchkernel.storage.files import LONG_TEXT, file_hash, read_small_text
from matchkernel.storage.images import open_image

CAMERAS, PAIRS = "cameras.txt", "pairs.txt"
SHARED_POINTS = 15
ASSUMED_FOCAL = 1.2  # of the longer side, where the intrinsics are not known, as COLMAP assumes
NOT_A_ROTATION = 1e-3  # maximum difference of R R^T from the identity

Size = tuple[int, int]  # width and height


@dataclass(frozen=True)
class PoseCamera:
    """The true camera of a photo: x_camera = R X + t."""

    R: np.ndarray  # (3, 3)
    t: np.ndarray  # (3,)
    model: str | None = None  # of COLMAP's camera models; None if the intrinsics are not known
    parameters: np.ndarray = field(default_factory=lambda: np.empty(0))  # of the model, with COLMAP's origin
    size: Size | None = None  # that the parameters are for; the photo may be smaller or larger. None: its own

    def focal(self, image_size: Size) -> float:
        """Mean focal length in pixels of a file of this size."""
        model, parameters, scale = self._intrinsics(image_size)
        return focal_length(model, parameters) * float(scale.mean())

    def rays(self, points: np.ndarray, image_size: Size) -> np.ndarray:
        """(M, 2) x / z and y / z of points (M, 2) of the file; NaN beyond the reach of the camera's distortion.

        The centre of the first pixel is (0, 0).
        """
        model, parameters, scale = self._intrinsics(image_size)
        return unproject(model, parameters, (points + COLMAP_ORIGIN) / scale)

    def matrix(self, image_size: Size) -> np.ndarray:
        """K in pixels of the file; distortion is left out."""
        model, parameters, scale = self._intrinsics(image_size)
        focal, centre = focal_and_centre(model, parameters)
        (fx, fy), (cx, cy) = focal * scale, centre * scale - COLMAP_ORIGIN
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])

    def _intrinsics(self, image_size: Size) -> tuple[str, np.ndarray, np.ndarray]:
        """Model and parameters, assumed where they are not known, and (2,) pixels of the file / of the camera."""
        if self.model is None:
            width, height = image_size
            assumed = [ASSUMED_FOCAL * max(image_size), width / 2, height / 2]
            return "SIMPLE_PINHOLE", np.array(assumed), np.ones(2)
        scale = np.ones(2) if self.size is None else np.array(image_size) / np.array(self.size)
        return self.model, self.parameters, scale


@dataclass(frozen=True)
class EvaluationScene:
    """Photos and pairs of them, with true cameras (poses) or true homographies."""

    name: str  # of its folder
    images: dict[str, Path]  # files by name
    pairs: list[Pair]
    cameras: dict[str, PoseCamera] = field(default_factory=dict)  # none for a sequence with homographies
    # By pair, from the first image to the second; none for a scene with cameras.
    homographies: dict[Pair, np.ndarray] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What is scored: "poses" or "homographies"."""
        return "homographies" if self.homographies else "poses"

    def truth(self, pair: Pair) -> np.ndarray | tuple[PoseCamera, PoseCamera]:
        """The homography of a pair, or its two cameras."""
        return self.homographies[pair] if self.homographies else (self.cameras[pair[0]], self.cameras[pair[1]])

    @cached_property
    def hashes(self) -> dict[str, str]:
        """sha256 of each image file."""
        return {name: file_hash(path) for name, path in self.images.items()}

    @cached_property
    def content(self) -> list[Any]:
        """Everything that scores depend on, as JSON: name, pairs with cameras or homographies, and `hashes`."""
        cameras = {
            name: [camera.model, camera.parameters.tolist(), camera.size, camera.R.tolist(), camera.t.tolist()]
            for name, camera in self.cameras.items()
        }
        return [self.name, [self.pairs, cameras, [H.tolist() for H in self.homographies.values()]], self.hashes]


def read_scene(
    folder: str | Path,
    *,
    shared_points: int = SHARED_POINTS,
    most_pairs: int | None = None,
    pairs: str | Path | None = None,
) -> EvaluationScene:
    """Read a scene in one of three layouts (see docs/evaluation.md).

    Args:
        folder: with `images/` and a COLMAP model in `sparse/`; with `images/` and `cameras.txt`; or a sequence of
            images 1, 2, ... with homographies H_1_2, ...
        shared_points: pairs of a COLMAP model share at least this many 3-D points.
        most_pairs: keep at most this many, spread evenly from the fewest to the most shared points, or over their
            order where no points are known.
        pairs: a file of pairs instead, two names per line. A file `pairs.txt` in the folder is used in the same way.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    name = folder.resolve().name
    if (folder / "H_1_2").is_file():
        if pairs is not None:
            raise ArgumentError(f"{folder}: a sequence with homographies has its own pairs, {pairs} cannot be used")
        return _sequence(name, folder, most_pairs)
    if (folder / "sparse").is_dir():
        cameras, ranked = _colmap_cameras(folder / "sparse", shared_points)
        why = f"no two images share {shared_points} points or more (--shared-points)"
    elif (folder / CAMERAS).is_file():
        cameras = read_cameras(folder / CAMERAS)
        ranked, why = list(combinations(sorted(cameras), 2)), "it has cameras of fewer than two images"
    else:
        layouts = "images/ with sparse/ or cameras.txt, or images 1, 2, ... with H_1_2, ..."
        raise FileError(f"{folder}: has no cameras; a scene has {layouts}")
    own = folder / PAIRS
    listed = Path(pairs) if pairs is not None else own if own.is_file() else None
    if listed is not None:
        ranked, why = read_pairs(listed, cameras), f"{listed} lists none"
    if not ranked:
        raise FileError(f"{folder}: no pairs to match: {why}")
    return _with_cameras(name, folder / "images", cameras, _spread(ranked, most_pairs))


def read_scenes(
    folders: Sequence[str | Path], *, pairs: str | Path | None = None, **options: Any
) -> list[EvaluationScene]:
    """Read several scenes, which must have different names; for the options see read_scene."""
    if pairs is not None and len(folders) > 1:
        raise ArgumentError(f"--pairs is for one scene; with several, give each a {PAIRS} of its own in its folder")
    scenes = [read_scene(folder, pairs=pairs, **options) for folder in folders]
    names = [scene.name for scene in scenes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(f"two scenes are called {twice}; rename a folder")
    return scenes


def colmap_scene(
    name: str,
    photos: str | Path,
    sparse: str | Path,
    wanted: Collection[str],
    *,
    shared_points: int = SHARED_POINTS,
    most_pairs: int | None = None,
) -> EvaluationScene:
    """The scene of the `wanted` photos of a COLMAP model; it may have no pairs. For the options see read_scene."""
    cameras, ranked = _colmap_cameras(Path(sparse), shared_points)
    chosen = _spread([pair for pair in ranked if set(pair) <= set(wanted)], most_pairs)
    return _with_cameras(name, Path(photos), cameras, chosen)


def _with_cameras(name: str, photos: Path, cameras: dict[str, PoseCamera], pairs: list[Pair]) -> EvaluationScene:
    """The scene of the photos in these pairs."""
    images = {image: photos / image for image in sorted({image for pair in pairs for image in pair})}
    return _checked(EvaluationScene(name, images, sorted(pairs), {image: cameras[image] for image in images}))


def _checked(scene: EvaluationScene) -> EvaluationScene:
    """The scene; refuses photos that are missing, are no images, or do not have the shape of their camera."""
    for name, path in scene.images.items():
        with open_image(path) as image:
            width, height = image.size
        size = scene.cameras[name].size if name in scene.cameras else None
        if size is not None and not fits_camera((width, height), size):
            raise FileError(f"{path}: {width} x {height} pixels, of another shape than its camera's {size}")
    return scene


def read_cameras(path: str | Path) -> dict[str, PoseCamera]:
    """Read a cameras.txt: one line per image, its name, its intrinsics, R and t; empty lines and # are skipped.

    Intrinsics are fx fy cx cy, or the nine numbers of K row by row, or - if they are not known; R is row by row. The
    centre of the top-left pixel is (0, 0), and x_camera = R X + t.
    """
    cameras: dict[str, PoseCamera] = {}
    for number, line in enumerate(read_small_text(path, LONG_TEXT, what="a text file").split("\n"), 1):
        fields, where = line.split(), f"{path}, line {number}"
        if not fields or fields[0].startswith("#"):
            continue
        name, inner, outer = fields[0], fields[1:-12], fields[-12:]
        if len(inner) not in (1, 4, 9) or (len(inner) == 1) != (inner == ["-"]):
            raise FileError(f"{where}: expected a name, fx fy cx cy (or 9 numbers of K, or -), 9 numbers of R, 3 of t")
        if name in cameras:
            raise FileError(f"{where}: a second camera of {name}")
        values = _finite(outer, where)
        R, t = _rotation(np.array(values[:9]).reshape(3, 3), where), np.array(values[9:])
        cameras[name] = PoseCamera(R, t) if inner == ["-"] else PoseCamera(R, t, "PINHOLE", _pinhole(inner, where))
    return cameras


def _sequence(name: str, folder: Path, most_pairs: int | None) -> EvaluationScene:
    numbers = {int(path.stem) for path in folder.iterdir() if path.stem.isdecimal()} - {0}
    paths = {number: path for number in sorted(numbers) if (path := sequence_image(folder, number))}
    if 1 not in paths or len(paths) < 2:
        raise FileError(f"{folder}: a sequence needs image 1, such as 1.png, and another one, such as 2.png")
    homographies = {}
    for number in list(paths)[1:]:
        H = read_homography(folder / f"H_1_{number}")
        try:
            homographies[paths[1].name, paths[number].name] = check_homography(H)
        except ArgumentError as error:
            raise FileError(f"{folder / f'H_1_{number}'}: {error}") from None
    chosen = {pair: homographies[pair] for pair in _spread(list(homographies), most_pairs)}
    needed = {image for pair in chosen for image in pair}
    images = {path.name: path for path in paths.values() if path.name in needed}
    return _checked(EvaluationScene(name, images, list(chosen), homographies=chosen))


def _colmap_cameras(sparse: Path, shared_points: int) -> tuple[dict[str, PoseCamera], list[Pair]]:
    """Cameras by name, and the pairs with enough shared points, fewest first."""
    model = read_reconstruction(sparse)
    cameras = {}
    for image in model.images.values():
        camera = model.cameras[image.camera]
        if camera.model not in PROJECTABLE:
            raise FileError(f"{sparse}: the camera model {camera.model} of {image.name} is not supported")
        if not focal_length(camera.model, camera.parameters) > 0:
            raise FileError(f"{sparse}: the camera of {image.name} has no positive focal length")
        size = (camera.width, camera.height)
        cameras[image.name] = PoseCamera(image.R, image.t, camera.model, camera.parameters, size)
    if len(cameras) < 2:
        raise FileError(f"{sparse}: a scene needs two images with cameras, this has {len(cameras)}")
    ranked = sorted(
        (count, name, other)
        for name, others in covisible_images(model)
        for other, count in others
        if name < other and count >= shared_points
    )
    return cameras, [(name, other) for _, name, other in ranked]


def _spread(ranked: list[Pair], limit: int | None) -> list[Pair]:
    """At most `limit` pairs, evenly over their order."""
    if limit is None or len(ranked) <= limit:
        return ranked
    return [ranked[int(k)] for k in (np.arange(limit) + 0.5) * len(ranked) / limit]


def _pinhole(fields: list[str], where: str) -> np.ndarray:
    values = _finite(fields, where)
    if len(values) == 9:
        K = np.array(values).reshape(3, 3)
        if abs(K[0, 1]) > 1e-6 * abs(K[0, 0]) or K[1, 0] or K[2, :2].any() or K[2, 2] != 1:
            raise FileError(f"{where}: K must be fx 0 cx, 0 fy cy, 0 0 1 (a camera without skew)")
        values = [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]
    if not (values[0] > 0 and values[1] > 0):
        raise FileError(f"{where}: the focal lengths must be positive, got {values[0]:g} and {values[1]:g}")
    return np.array([*values[:2], values[2] + COLMAP_ORIGIN, values[3] + COLMAP_ORIGIN])


def _rotation(R: np.ndarray, where: str) -> np.ndarray:
    """The rotation nearest to R, which may be rounded; other matrices are refused."""
    if np.abs(R).max() > 2 or np.abs(R @ R.T - np.eye(3)).max() > NOT_A_ROTATION or np.linalg.det(R) < 0:
        raise FileError(f"{where}: R is not a rotation (R times its transpose must be the identity, det R = 1)")
    u, _, v = np.linalg.svd(R)
    return np.asarray(u @ v)


def _finite(fields: list[str], where: str) -> list[float]:
    try:
        values = [float(text) for text in fields]
    except ValueError:
        raise FileError(f"{where}: expected numbers, got {' '.join(fields)[:60]!r}") from None
    if not np.isfinite(values).all() or np.abs(values).max(initial=0) > 1e12:
        raise FileError(f"{where}: a number is not finite, or too large")
    return values
