"""hloc: features and matches in the files of cvg/Hierarchical-Localization.

Keypoints are float32, because hloc's own float16 has a resolution of one pixel beyond 1,024. As elsewhere in the
package, the centre of the top-left pixel is (0, 0); hloc adds 0.5 itself when it exports to COLMAP. Descriptors are
stored as (D, K), scales are sigmas, oris are degrees from +x towards +y. What hloc has no field for (model, settings)
is kept as JSON in an attribute, which hloc ignores. Every size is checked when a file is read; a file is written under
another name and then renamed, so that it is never left incomplete.
"""

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError, short_message
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import STORE, Features
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.files import check_free_space, replacing

FACTS = "matchkernel"  # attribute of an image's group
UNCERTAINTY = 1.0  # pixels; hloc's value for DoG
MOST_FACTS = 1 << 16  # characters
DEFLATE = 1032  # gzip's maximum compression: a dataset may claim at most this many times the bytes of its file
# Since HDF5 1.10 all structures of a file have checksums, so that a flipped bit is detected.
VERSIONS = ("v110", "v110")
CHECKED_FROM = 1024  # bytes; larger datasets have checksums of their values as well
SPARE = 8_000_000  # bytes of disk that are left free while an HDF5 file is written

# What h5py raises for a damaged file or another layout.
READING_FAILS = (
    OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError
)  # fmt: skip


@dataclass(frozen=True)
class PairMatches:
    """Matches of two images.

    Attributes:
        names: of image A and image B.
        indices: (M, 2) row in A and row in B; a row of A at most once.
        scores: (M,) from 0 to 1, higher is better.
        key: of what they were made from, kept with them if it is given.
    """

    names: tuple[str, str]
    indices: np.ndarray
    scores: np.ndarray
    key: str = ""


def append_features(path: str | Path, image_name: str, features: Features) -> None:
    """Add or replace the features of one image, atomically.

    The whole file is copied. For many images use write_features, or `extract_images` of
    collection/batch_extract.py, which can resume.
    """
    write_features(path, [(image_name, features)])


def write_features(path: str | Path, entries: Iterable[tuple[str, Features]], *, removed: Iterable[str] = ()) -> None:
    """Add or replace the features of images in a features.h5, all of them or none.

    Args:
        path: the file; created if it does not exist.
        entries: name (slashes make folders) and features of each image.
        removed: names of images whose features are taken out.
    """
    with adding(path) as file:
        for name in removed:
            del file[check_name(name)]
        for name, features in entries:
            _write_image(file, check_name(name), features)


def read_features(path: str | Path, image_name: str, *, need_regions: bool = True) -> Features:
    """Features of one image of a features.h5.

    Args:
        path: the file.
        image_name: as in the file.
        need_regions: refuse features without scales, which most networks have none of; otherwise their regions are
            squares of half width 1.
    """
    with reading(path) as file:
        group = file.get(check_name(image_name))
        if not _is_image(group):
            raise FileError(f"{path}: contains no features of {image_name}")
        centers = read_array(group, "keypoints", (None, 2)).astype(np.float64)
        K = len(centers)
        descriptors = np.ascontiguousarray(read_array(group, "descriptors", (None, K)).T, np.float32)
        scores = read_array(group, "scores", (K,)).astype(np.float32) if "scores" in group else np.ones(K, np.float32)
        size = read_array(group, "image_size", (2,))
        facts = _facts(path, group)
        if need_regions or "scales" in group or "shapes" in group:
            frames = _frames(group, centers, float(facts["settings"].get("magnification", MAGNIFICATION)))
        else:
            frames = Frames(centers, np.tile(np.eye(2), (K, 1, 1)))
        numbers = (centers, frames.shapes, descriptors, scores, size)
        if not all(np.isfinite(values).all() for values in numbers):
            raise FileError(f"{path}: features of {image_name} contain values that are not finite")
        return Features(frames, descriptors, scores, (int(size[0]), int(size[1])), facts["model"], facts["settings"])


def image_names(path: str | Path) -> list[str]:
    """Names of the images of a features.h5, sorted."""
    names: list[str] = []
    with reading(path) as file:
        file.visititems(lambda name, item: names.append(name) if _is_image(item) else None)
    return sorted(names)


def recorded_facts(path: str | Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """For each image of a features.h5: `D`, `K`, and also `model` and `settings` if this package wrote it.

    Args:
        path: the file.
        names: of the images to look at (default: all); those that it does not have are left out.
    """
    found = {}
    with reading(path) as file:
        for name in image_names(path) if names is None else names:
            if names is not None and not _is_image(file.get(check_name(name))):
                continue
            facts = _facts(path, file[name]) if FACTS in file[name].attrs else {}
            D, K = file[name]["descriptors"].shape
            found[name] = {**facts, "D": D, "K": K}
    return found


def write_matches(path: str | Path, pairs: Iterable[tuple[PairMatches, int]], facts: str | None = None) -> None:
    """Add or replace matches in a matches.h5, all of them or none.

    `matches0` is int16 as in hloc; if an index exceeds 32,767 it is int32, which hloc can read as well (its own writer
    would overflow to a negative index).

    Args:
        path: the file; created if it does not exist.
        pairs: matches, and the number of keypoints of image A.
        facts: how all matches of the file were made, kept as an attribute if it is given.
    """
    with adding(path) as file:
        if facts is not None:
            file.attrs[FACTS] = facts
        for matches, count in pairs:
            matches0, scores0 = _one_row_per_keypoint(matches, count)
            for names in (matches.names, matches.names[::-1]):
                if pair_key(*names) in file:
                    del file[pair_key(*names)]
            group = file.create_group(pair_key(*matches.names))
            write_array(group, "matches0", matches0)
            write_array(group, "matching_scores0", scores0)
            if matches.key:
                group.attrs[FACTS] = matches.key


def recorded_matches(
    path: str | Path, pairs: Iterable[tuple[str, str]]
) -> tuple[str | None, dict[tuple[str, str], tuple[str, int]]]:
    """The facts of a matches.h5, and for those of the pairs that it has with a key: the key, and how many matches."""
    found = {}
    with reading(path) as file:
        facts = file.attrs.get(FACTS)
        for pair in pairs:
            group = file.get(pair_key(*pair))
            if isinstance(group, load_h5py().Group) and FACTS in group.attrs:
                matches0 = read_array(group, "matches0", (None,), "iu")
                found[pair] = str(group.attrs[FACTS])[:MOST_FACTS], int((matches0 >= 0).sum())
        return None if facts is None else str(facts)[:MOST_FACTS], found


def read_matches(path: str | Path, name0: str, name1: str) -> PairMatches:
    """Matches of two images, whichever way round the file stores them, in the order of their rows in A.

    If the file stores them the other way round and they were not mutual, a row of A keeps its best match, or the first
    of equally good ones.
    """
    (found,) = read_matches_of(path, [(name0, name1)])
    return found


def read_matches_of(path: str | Path, pairs: Iterable[tuple[str, str]]) -> Iterator[PairMatches]:
    """Matches of many pairs, one after the other, as read_matches gives them; the file is opened once."""
    with reading(path) as file:
        for name0, name1 in pairs:
            yield _read_pair(file, name0, name1)


def _read_pair(file: Any, name0: str, name1: str) -> PairMatches:
    where = f"{file.filename}: "
    turned = pair_key(name0, name1) not in file
    group = file.get(pair_key(name1, name0) if turned else pair_key(name0, name1))
    if not isinstance(group, load_h5py().Group):
        raise FileError(f"{where}contains no matches of {name0} and {name1}")
    matches0 = read_array(group, "matches0", (None,), "iu").astype(np.int64)
    scores0 = read_array(group, "matching_scores0", (len(matches0),)).astype(np.float32)
    if (matches0 < -1).any():
        raise FileError(f"{where}matches of {name0} and {name1} contain an index below -1")
    rows = np.flatnonzero(matches0 >= 0)
    indices, scores = np.column_stack([rows, matches0[rows]]), scores0[rows]
    if turned:
        best_first = np.lexsort((rows, -scores, indices[:, 1]))
        _, first = np.unique(indices[best_first, 1], return_index=True)
        indices, scores = indices[best_first[first], ::-1], scores[best_first[first]]
    return PairMatches((name0, name1), indices, scores)


def check_pair_names(names: Iterable[str]) -> None:
    """Refuse names of images that a matches.h5 cannot tell apart, such as `a/b.jpg` and `a-b.jpg`."""
    written: dict[str, str] = {}
    for name in names:
        same = written.setdefault(name.replace("/", "-"), name)
        if same != name:
            raise ArgumentError(f"hloc has one name for pairs of {same} and of {name}; rename one")


def pair_key(name0: str, name1: str) -> str:
    """The group of a pair in a matches.h5."""
    return "/".join(check_name(name).replace("/", "-") for name in (name0, name1))


def _is_image(item: Any) -> bool:
    return isinstance(item, load_h5py().Group) and "keypoints" in item


def _write_image(file: Any, name: str, features: Features) -> None:
    folders = name.split("/")[:-1]
    for depth in range(1, len(folders) + 1):
        if _is_image(file.get("/".join(folders[:depth]))):
            raise ArgumentError(f"{name} cannot be added: {'/'.join(folders[:depth])} is already an image in the file")
    if name in file:
        if not _is_image(file[name]):
            raise ArgumentError(f"{name} cannot be added: the file already has a folder of that name")
        del file[name]
    group = file.create_group(name)
    write_array(group, "keypoints", features.keypoints.astype(np.float32)).attrs["uncertainty"] = UNCERTAINTY
    kind = np.float32 if features.settings.get(STORE, "float32") == "float32" else np.float16  # hloc has no bytes
    write_array(group, "descriptors", np.ascontiguousarray(features.descriptors.T, kind))
    write_array(group, "scores", features.scores.astype(np.float32))
    write_array(group, "scales", features.scales.astype(np.float32))
    write_array(group, "oris", np.rad2deg(features.orientations).astype(np.float32))
    write_array(group, "image_size", np.array(features.image_size, np.int64))
    if not features.frames.are_squares.all():
        write_array(group, "shapes", features.frames.shapes.astype(np.float32))  # scale and angle are not enough
    group.attrs[FACTS] = json.dumps({"model": features.model, "settings": dict(features.settings)}, sort_keys=True)


def _frames(group: Any, centers: np.ndarray, magnification: float) -> Frames:
    K = len(centers)
    if "shapes" in group:
        return Frames(centers, read_array(group, "shapes", (K, 2, 2)))
    scales = read_array(group, "scales", (K,)).astype(np.float64)
    degrees = read_array(group, "oris", (K,)).astype(np.float64) if "oris" in group else np.zeros(K)
    return Frames.turned_squares(centers, magnification * scales, np.deg2rad(degrees))


def _facts(path: str | Path, group: Any) -> dict[str, Any]:
    text = group.attrs.get(FACTS)
    if text is None:
        return {"model": "unknown", "settings": {}}
    try:
        facts = json.loads(str(text)[:MOST_FACTS])
        float(facts["settings"].get("magnification", MAGNIFICATION))
        return {"model": str(facts["model"]), "settings": dict(facts["settings"])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise FileError(f"{path}: the attribute {FACTS!r} of {group.name.strip('/')} cannot be read") from None


def _one_row_per_keypoint(matches: PairMatches, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(K,) index of the match or -1, and (K,) float16 scores."""
    indices = np.asarray(matches.indices).reshape(-1, 2)
    where = f"matches of {matches.names[0]} and {matches.names[1]}"
    if len(indices) and (indices.min() < 0 or indices[:, 0].max() >= count):
        raise ArgumentError(f"{where} refer to keypoints that do not exist; image A has {count}")
    if len(np.unique(indices[:, 0])) != len(indices) or np.shape(matches.scores) != (len(indices),):
        raise ArgumentError(f"{where}: a keypoint of image A must have at most one match, and each match one score")
    largest = int(indices[:, 1].max(initial=-1))
    matches0 = np.full(count, -1, np.int16 if largest <= np.iinfo(np.int16).max else np.int32)
    scores0 = np.zeros(count, np.float16)
    matches0[indices[:, 0]] = indices[:, 1]
    scores0[indices[:, 0]] = matches.scores
    return matches0, scores0


def load_h5py() -> Any:
    """The module h5py."""
    return need("h5py", CORE, "reading and writing hloc's .h5 files")


@contextmanager
def reading(path: str | Path) -> Iterator[Any]:
    """An open HDF5 file; any problem while reading it becomes a FileError that names the file in one line."""
    h5py = load_h5py()
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except MatchKernelError:
        raise
    except READING_FAILS as error:
        reason = short_message(error)
        raise FileError(f"{path}: not a complete HDF5 file, or not in hloc's layout ({reason})") from None


@contextmanager
def adding(path: str | Path) -> Iterator[Any]:
    """An HDF5 file to add to: a copy of the existing file, which it replaces at the end."""
    h5py = load_h5py()
    path = Path(path)
    with replacing(path) as part:
        if path.exists():
            with reading(path):
                pass
            shutil.copyfile(path, part)
        try:
            with h5py.File(part, "a", libver=VERSIONS) as file:
                yield file
        except WriteError as error:
            raise WriteError(str(error).replace(str(part), str(path))) from None
        except MatchKernelError:
            raise
        except (OSError, RuntimeError, ValueError, KeyError) as error:  # h5py reports a full disk in several ways
            reason = short_message(error)
            raise WriteError(f"{path}: could not be written ({reason})") from error


def write_array(group: Any, name: str, values: np.ndarray) -> Any:
    """Write a dataset; datasets of a kilobyte or more get checksums, which every HDF5 reader verifies.

    It is refused while there is room for what HDF5 still holds in memory: a disk that is full when that is written
    ends the process.
    """
    check_free_space(group.file.filename, values.nbytes + SPARE)
    return group.create_dataset(name, data=values, fletcher32=True if values.nbytes >= CHECKED_FROM else None)


def read_array(group: Any, name: str, shape: tuple[int | None, ...], kinds: str = "fiu") -> np.ndarray:
    """Read a dataset of a group after checking its shape, number type and size.

    Args:
        group: of an open file.
        name: of the dataset.
        shape: wanted; None for any length.
        kinds: numpy's letters of the accepted number types.
    """
    where = f"{group.file.filename}: {group.name.strip('/')}/{name}"
    dataset = group.get(name)
    if not isinstance(dataset, load_h5py().Dataset):
        raise FileError(f"{where} is missing")
    found = dataset.shape
    fits = found is not None and len(found) == len(shape)
    if not fits or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
        wanted = "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
        raise FileError(f"{where} has shape {found}, expected {wanted}")
    if dataset.dtype.kind not in kinds or dataset.dtype.itemsize > 8 or dataset.is_virtual or dataset.external:
        raise FileError(f"{where} has type {dataset.dtype}, or its values are stored in another file; not read")
    if math.prod(found) * dataset.dtype.itemsize > DEFLATE * os.path.getsize(group.file.filename):  # noqa: PTH202
        raise FileError(f"{where} claims {found} values, far more than the file can hold")
    return np.asarray(dataset[()])


def check_name(name: str) -> str:
    """Check that an image's name can be a path inside an HDF5 file."""
    parts = name.split("/")
    if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of a file name that are not UTF-8
        raise ArgumentError(f"an .h5 file can hold only UTF-8 names, got {name!a}; rename the image")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ArgumentError(f"the name of an image must be like photo.jpg or folder/photo.jpg, got {name!r}")
    return name
