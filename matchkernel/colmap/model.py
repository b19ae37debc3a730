"""Read a COLMAP reconstruction: cameras, images and points from its binary or text files.

The binary layout is that of COLMAP's documentation, little endian. Newer versions also write files for rigs and frames,
which are not read; the layout of cameras, images and points is the same. Every count is checked against the remaining
bytes before memory is allocated for it.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from matchkernel.errors import FileError

# name -> number of parameters, in the order of COLMAP's model ids
CAMERA_MODELS = {
    "SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5, "OPENCV": 8, "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12, "FOV": 5, "SIMPLE_RADIAL_FISHEYE": 4, "RADIAL_FISHEYE": 5, "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16, "SIMPLE_DIVISION": 4, "DIVISION": 5, "SIMPLE_FISHEYE": 3, "FISHEYE": 4, "EUCM": 6,
    "EQUIRECTANGULAR": 2,
}  # fmt: skip
NO_POINT = -1
COMMENTS = 10  # lines at the beginning of a text file in which its number of entries may be
POINT2D = np.dtype([("x", "<f8"), ("y", "<f8"), ("point", "<i8")])


@dataclass(frozen=True)
class Camera:
    """An intrinsic camera model."""

    model: str
    width: int
    height: int
    parameters: np.ndarray


@dataclass(frozen=True)
class RegisteredImage:
    """A photo with its pose (x_camera = R X + t), and the positions and 3-D points of its keypoints."""

    name: str
    camera: int
    R: np.ndarray  # (3, 3)
    t: np.ndarray  # (3,)
    places: np.ndarray  # (M, 2) x, y with COLMAP's origin
    points: np.ndarray  # (M,) id of the 3-D point, or NO_POINT


@dataclass(frozen=True)
class Reconstruction:
    """A sparse model."""

    cameras: dict[int, Camera]
    images: dict[int, RegisteredImage]
    points: dict[int, np.ndarray]  # id -> (3,)


def read_reconstruction(folder: str | Path) -> Reconstruction:
    """Read cameras, images and points3D from the .bin files of a folder, or from the .txt files if there are none."""
    folder = Path(folder)
    suffix = ".bin" if (folder / "cameras.bin").is_file() else ".txt"
    paths = [folder / f"{name}{suffix}" for name in ("cameras", "images", "points3D")]
    for path in paths:
        if not path.is_file():
            raise FileError(f"{path}: no such file; a sparse model has cameras, images and points3D, .bin or .txt")
    if suffix == ".bin":
        cameras, images, points = _binary_cameras(paths[0]), _binary_images(paths[1]), _binary_points(paths[2])
    else:
        cameras, images, points = _text_cameras(paths[0]), _text_images(paths[1]), _text_points(paths[2])
    for image in images.values():
        if image.camera not in cameras:
            raise FileError(f"{paths[1]}: image {image.name} has camera {image.camera}, which is not listed")
    return Reconstruction(cameras, images, points)


def covisible_images(model: Reconstruction) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """The images that see the same points as each image, with the number of shared points.

    Args:
        model: from read_reconstruction.

    Yields:
        The name of each image in order, and those of the images that share points with it, most points first; images
        that share equally many are ordered by name.

    Example:
        >>> def image(name, points):
        ...     return RegisteredImage(name, 1, np.eye(3), np.zeros(3), np.zeros((len(points), 2)), np.array(points))
        >>> images = {1: image("a", [7, 8, NO_POINT]), 2: image("b", [8]), 3: image("c", [7, 8])}
        >>> dict(covisible_images(Reconstruction({}, images, {})))
        {'a': [('c', 2), ('b', 1)], 'b': [('a', 1), ('c', 1)], 'c': [('a', 2), ('b', 1)]}
    """
    images = sorted(model.images.values(), key=lambda image: image.name)
    seen = [np.unique(image.points[image.points != NO_POINT]) for image in images]
    points = np.concatenate([np.empty(0, np.int64), *seen])
    owners = np.repeat(np.arange(len(images)), [len(part) for part in seen])
    order = np.argsort(points, kind="stable")
    points, owners = points[order], owners[order]
    for number, own in enumerate(seen):
        begin, end = np.searchsorted(points, own), np.searchsorted(points, own, side="right")
        tracks = [owners[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        counts = np.bincount(np.concatenate([np.empty(0, np.int64), *tracks]), minlength=len(images))
        counts[number] = 0
        ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        yield images[number].name, [(images[other].name, int(counts[other])) for other in ranked]


class _Reader:
    """Reads the bytes of a file in order; if they run out, the error names the file."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        try:
            self.content = path.read_bytes()
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({error.strerror})") from None

    def values(self, layout: str) -> tuple[float, ...]:
        size = struct.calcsize("<" + layout)
        self.need(size)
        self.offset += size
        return struct.unpack_from("<" + layout, self.content, self.offset - size)

    def array(self, dtype: np.dtype | str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        self.need(size)
        self.offset += size
        return np.frombuffer(self.content, dtype, count, self.offset - size)

    def name(self) -> str:
        end = self.content.find(b"\0", self.offset)
        if end < 0:
            self.need(len(self.content) + 1)
        start, self.offset = self.offset, end + 1
        return self.content[start:end].decode("utf-8", "surrogateescape")

    def count(self, minimum_bytes: int) -> int:
        """The number of items that follow, each of `minimum_bytes` or more."""
        (count,) = self.values("Q")
        self.need(int(count) * minimum_bytes)
        return int(count)

    def need(self, size: int) -> None:
        if self.offset + size > len(self.content):
            raise FileError(f"{self.path}: ends early, at byte {len(self.content)} of at least {self.offset + size}")

    def end(self) -> None:
        if self.offset != len(self.content):
            raise FileError(f"{self.path}: {len(self.content) - self.offset} unexpected bytes at its end")


def _binary_cameras(path: Path) -> dict[int, Camera]:
    reader, cameras = _Reader(path), {}
    names = list(CAMERA_MODELS)
    for _ in range(reader.count(24)):
        number, model, width, height = (int(value) for value in reader.values("iiQQ"))
        if not 0 <= model < len(names):
            raise FileError(f"{path}: camera {number} has the unknown model {model}")
        cameras[number] = _camera(
            path, number, names[model], width, height, reader.array("<f8", CAMERA_MODELS[names[model]])
        )
    reader.end()
    return cameras


def _binary_images(path: Path) -> dict[int, RegisteredImage]:
    reader, images = _Reader(path), {}
    for _ in range(reader.count(73)):
        number, *pose, camera = reader.values("i7di")
        name = reader.name()
        rows = reader.array(POINT2D, reader.count(POINT2D.itemsize))
        images[int(number)] = _image(
            path, name, int(camera), pose, np.column_stack([rows["x"], rows["y"]]), rows["point"]
        )
    reader.end()
    return images


def _binary_points(path: Path) -> dict[int, np.ndarray]:
    reader, points = _Reader(path), {}
    for _ in range(reader.count(51)):
        number, x, y, z, *_ = reader.values("Q3d3Bd")
        reader.array("<i4", 2 * reader.count(8))  # the track; the images file has the same information
        points[int(number)] = _point(path, int(number), (x, y, z))
    reader.end()
    return points


def _text_cameras(path: Path) -> dict[int, Camera]:
    cameras = {}
    for line, fields in _lines(path):
        with _format_errors(path, line):
            number, model, width, height = int(fields[0]), fields[1], int(fields[2]), int(fields[3])
            parameters = np.array([float(field) for field in fields[4:]])
        if len(parameters) != CAMERA_MODELS.get(model):
            raise FileError(f"{path}, line {line}: unknown camera model {model} with {len(parameters)} parameters")
        cameras[number] = _camera(path, number, model, width, height, parameters)
    _check_whole(path, len(cameras))
    return cameras


def _text_images(path: Path) -> dict[int, RegisteredImage]:
    images = {}
    rows = iter(_lines(path, keep_empty=True))
    for line, fields in rows:
        if not fields:
            continue
        with _format_errors(path, line):
            number, pose, camera = int(fields[0]), [float(field) for field in fields[1:8]], int(fields[8])
            name = " ".join(fields[9:])
        line, fields = next(rows, (line + 1, []))
        with _format_errors(path, line):
            values = np.array([float(field) for field in fields]).reshape(-1, 3)
            ids = np.array([int(field) for field in fields[2::3]], np.int64)
        images[number] = _image(path, name, camera, pose, values[:, :2], ids)
    _check_whole(path, len(images))
    return images


def _text_points(path: Path) -> dict[int, np.ndarray]:
    points = {}
    for line, fields in _lines(path):
        with _format_errors(path, line):
            number, place = int(fields[0]), (float(fields[1]), float(fields[2]), float(fields[3]))
        points[number] = _point(path, number, place)
    _check_whole(path, len(points))
    return points


def _check_whole(path: Path, count: int) -> None:
    """Compare a number of entries with that in the comments at the beginning, which COLMAP writes."""
    with path.open(encoding="utf-8") as file:
        start = "".join(line for line in islice(file, COMMENTS) if line.startswith("#"))
    announced = re.search(r"^# Number of \w+: (\d{1,18})\b", start, re.MULTILINE)
    if announced and int(announced[1]) > count:
        raise FileError(f"{path}: has {count:,} entries, its comments announce {int(announced[1]):,}; is it complete?")


def _lines(path: Path, keep_empty: bool = False) -> Iterator[tuple[int, list[str]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as text ({error})") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#") and (keep_empty or line.strip()):
            yield number, line.split()


@contextmanager
def _format_errors(path: Path, line: int) -> Iterator[None]:
    """Turn an error in parsing a line into one that names the line."""
    try:
        yield
    except (ValueError, IndexError, OverflowError) as error:
        raise FileError(f"{path}, line {line}: not in COLMAP's format ({error})") from None


def _camera(path: Path, number: int, model: str, width: int, height: int, parameters: np.ndarray) -> Camera:
    if not (0 < width < 10**6 and 0 < height < 10**6) or not np.isfinite(parameters).all():
        raise FileError(f"{path}: camera {number} has impossible values ({width} x {height} pixels)")
    return Camera(model, width, height, parameters)


def _image(
    path: Path, name: str, camera: int, pose: "list[float] | tuple[float, ...]", places: np.ndarray, points: np.ndarray
) -> RegisteredImage:
    quaternion, t = np.array(pose[:4]), np.array(pose[4:])
    if not (np.isfinite(pose).all() and np.isfinite(places).all() and np.linalg.norm(quaternion) > 1e-9):
        raise FileError(f"{path}: image {name} has a pose or keypoints that are not finite numbers")
    return RegisteredImage(name, camera, _rotation(quaternion), t, places, points)


def _point(path: Path, number: int, place: tuple[float, float, float]) -> np.ndarray:
    if not np.isfinite(place).all():
        raise FileError(f"{path}: point {number} has coordinates that are not finite")
    return np.array(place)


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
