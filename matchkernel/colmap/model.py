"""Read a COLMAP reconstruction: cameras, images and points from its binary or text files.

The binary layout is that of COLMAP's documentation, little endian. Newer versions also write files for rigs and frames,
which are not read; the layout of cameras, images and points is the same.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from matchkernel.errors import FileError, MatchKernelError, short_message

# name -> number of parameters, in the order of COLMAP's model ids
CAMERA_MODELS = {
    "SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5, "OPENCV": 8, "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12, "FOV": 5, "SIMPLE_RADIAL_FISHEYE": 4, "RADIAL_FISHEYE": 5, "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16, "SIMPLE_DIVISION": 4, "DIVISION": 5, "SIMPLE_FISHEYE": 3, "FISHEYE": 4, "EUCM": 6,
    "EQUIRECTANGULAR": 2,
}  # fmt: skip
NO_POINT = -1
COMMENTS = 1000  # characters at the beginning of a text file in which its number of entries may be
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
class Point:
    """A 3-D point."""

    place: np.ndarray  # (3,)
    colour: tuple[int, int, int]
    error: float  # mean distance in pixels; negative if it is not known
    images: int  # observations


@dataclass(frozen=True)
class Reconstruction:
    """A sparse model."""

    cameras: dict[int, Camera]
    images: dict[int, RegisteredImage]
    points: dict[int, np.ndarray]  # id -> (3,)


def read_reconstruction(folder: str | Path) -> Reconstruction:
    """Read cameras, images and points3D from the .bin files of a folder, or from the .txt files if there are none."""
    folder = Path(folder)
    cameras = _entries(folder, "cameras", _binary_camera, _text_camera)
    images = _entries(folder, "images", _binary_image, _text_image)
    points = {number: point.place for number, point in read_points(folder).items()}
    for image in images.values():
        if image.camera not in cameras:
            raise FileError(f"{folder}: image {image.name} has camera {image.camera}, which is not listed")
    return Reconstruction(cameras, images, points)


def read_points(folder: str | Path) -> dict[int, Point]:
    """The points of a model, by their ids, with colours and errors."""
    return _entries(Path(folder), "points3D", _binary_point, _text_point)


def rename_images(source: str | Path, target: str | Path, names: Mapping[str, str]) -> None:
    """Copy an images.bin with other names of the images."""
    with _format_errors(str(source)):
        content = _Bytes(Path(source).read_bytes())
        (count,) = content.values("Q")
        parts, begin = [struct.pack("<Q", count)], content.offset
        for _ in range(count):
            content.offset += struct.calcsize("<i7di")
            parts.append(content.content[begin : content.offset])
            parts.append(names[content.name()].encode() + b"\0")
            begin = content.offset
            content.array(POINT2D, content.values("Q")[0])
            parts.append(content.content[begin : content.offset])
            begin = content.offset
    Path(target).write_bytes(b"".join(parts))


def covisible_images(model: Reconstruction) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Each image in order, and those that share points with it, with their number: most points first, equals by name.

    Example:
        >>> def image(name, points):
        ...     return RegisteredImage(name, 1, np.eye(3), np.zeros(3), np.zeros((len(points), 2)), np.array(points))
        >>> images = {1: image("a", [7, 8, NO_POINT]), 2: image("b", [8]), 3: image("c", [7, 8])}
        >>> dict(covisible_images(Reconstruction({}, images, {})))["a"]
        [('c', 2), ('b', 1)]
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


class _Bytes:
    """The bytes of a file, read in order; beyond their end struct and numpy raise an error."""

    def __init__(self, content: bytes) -> None:
        self.content, self.offset = content, 0

    def values(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{layout}", self.content, self.offset)
        self.offset += struct.calcsize(f"<{layout}")
        return found

    def array(self, dtype: np.dtype | str, count: int) -> np.ndarray:
        found = np.frombuffer(self.content, dtype, count, self.offset)
        self.offset += found.nbytes
        return found

    def name(self) -> str:
        start, end = self.offset, self.content.index(b"\0", self.offset)
        self.offset = end + 1
        return self.content[start:end].decode("utf-8", "surrogateescape")


Lines = Iterator[tuple[int, list[str]]]  # the number and the fields of each line of a text file
Entry = TypeVar("Entry")


def _entries(
    folder: Path,
    name: str,
    from_bytes: Callable[[_Bytes], tuple[int, Entry]],
    from_text: Callable[[list[str], Lines], tuple[int, Entry]],
) -> dict[int, Entry]:
    """The entries of a file by their ids; any problem becomes a one-line FileError."""
    is_binary = (folder / "cameras.bin").is_file()
    path = folder / f"{name}{'.bin' if is_binary else '.txt'}"
    if not path.is_file():
        raise FileError(f"{path}: no such file; a sparse model has cameras, images and points3D, .bin or .txt")
    with _format_errors(str(path)):
        if not is_binary:
            return _text_entries(path, from_text)
        content = _Bytes(path.read_bytes())
        (count,) = content.values("Q")
        entries = dict(from_bytes(content) for _ in range(count))
        if content.offset != len(content.content):
            raise ValueError(f"{len(content.content) - content.offset} unexpected bytes at its end")
        return entries


def _text_entries(path: Path, from_text: Callable[[list[str], Lines], tuple[int, Entry]]) -> dict[int, Entry]:
    text = path.read_text(encoding="utf-8")
    lines = ((n, line.split()) for n, line in enumerate(text.splitlines(), 1) if not line.startswith("#"))
    entries = {}
    for line, fields in lines:
        if fields:
            with _format_errors(f"{path}, line {line}"):
                number, entry = from_text(fields, lines)
                entries[number] = entry
    announced = re.search(r"^# Number of \w+: (\d{1,18})\b", text[:COMMENTS], re.MULTILINE)
    if announced and int(announced[1]) > len(entries):
        raise ValueError(f"{len(entries):,} entries, its comments announce {int(announced[1]):,}; is it complete?")
    return entries


@contextmanager
def _format_errors(place: str) -> Iterator[None]:
    """Turn an error in reading or parsing into one that names the file, or the line."""
    try:
        yield
    except MatchKernelError:
        raise
    except OSError as error:
        raise FileError(f"{place}: cannot be read ({error.strerror})") from None
    except (ValueError, LookupError, OverflowError, struct.error) as error:
        raise FileError(f"{place}: not in COLMAP's format, or incomplete ({short_message(error)})") from None


def _binary_camera(content: _Bytes) -> tuple[int, Camera]:
    number, model, width, height = content.values("iiQQ")
    name = dict(enumerate(CAMERA_MODELS)).get(model, str(model))
    return number, _camera(name, width, height, content.array("<f8", CAMERA_MODELS.get(name, 0)))


def _text_camera(fields: list[str], _: Lines) -> tuple[int, Camera]:
    parameters = np.array([float(field) for field in fields[4:]])
    return int(fields[0]), _camera(fields[1], int(fields[2]), int(fields[3]), parameters)


def _camera(model: str, width: int, height: int, parameters: np.ndarray) -> Camera:
    if len(parameters) != CAMERA_MODELS.get(model):
        raise ValueError(f"unknown camera model {model} with {len(parameters)} parameters")
    if not (0 < width < 10**6 and 0 < height < 10**6) or not np.isfinite(parameters).all():
        raise ValueError(f"impossible values of a camera of {width} x {height} pixels")
    return Camera(model, width, height, parameters)


def _binary_image(content: _Bytes) -> tuple[int, RegisteredImage]:
    number, *pose, camera = content.values("i7di")
    name = content.name()
    rows = content.array(POINT2D, content.values("Q")[0])
    return number, _image(name, camera, pose, np.column_stack([rows["x"], rows["y"]]), rows["point"])


def _text_image(fields: list[str], lines: Lines) -> tuple[int, RegisteredImage]:
    _, keypoints = next(lines, (0, []))
    places = np.array([float(field) for field in keypoints]).reshape(-1, 3)[:, :2]
    points = np.array([int(field) for field in keypoints[2::3]], np.int64)
    pose = [float(field) for field in fields[1:8]]
    return int(fields[0]), _image(" ".join(fields[9:]), int(fields[8]), pose, places, points)


def _image(name: str, camera: int, pose: list[float], places: np.ndarray, points: np.ndarray) -> RegisteredImage:
    quaternion, t = np.array(pose[:4]), np.array(pose[4:])
    length = np.linalg.norm(quaternion)
    if not (np.isfinite(pose).all() and np.isfinite(places).all() and length > 1e-9):
        raise ValueError(f"image {name} has a pose or keypoints that are not finite numbers")
    w, x, y, z = quaternion / length
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return RegisteredImage(name, camera, R, t, places, points)


def _binary_point(content: _Bytes) -> tuple[int, Point]:
    number, x, y, z, *colour, error = content.values("Q3d3Bd")
    track = content.array("<i8", content.values("Q")[0])  # the images file has the same information
    return number, _point([x, y, z], colour, error, len(track))


def _text_point(fields: list[str], _: Lines) -> tuple[int, Point]:
    place, colour = [float(field) for field in fields[1:4]], [int(field) for field in fields[4:7]]
    return int(fields[0]), _point(place, colour, float(fields[7]), (len(fields) - 8) // 2)


def _point(place: list[float], colour: list[int], error: float, images: int) -> Point:
    if not np.isfinite(place).all() or len(place) != 3:
        raise ValueError("coordinates that are not three finite numbers")
    red, green, blue = colour
    return Point(np.array(place), (red, green, blue), error, images)
