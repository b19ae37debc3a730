"""Features, matches and lists of pairs on disk: .npz folders, and the files of hloc (cvg/Hierarchical-Localization).

HDF5 files have hloc's layout: descriptors are stored as (D, K), scales are sigmas, oris are degrees from +x towards +y.
As elsewhere in the package, the centre of the top-left pixel is (0, 0); hloc adds 0.5 itself when it exports to COLMAP.
Two things differ. Keypoints are float32, because hloc's own float16 has a resolution of one pixel beyond 1,024. Model
and settings, for which hloc has no field, are JSON in an attribute that hloc ignores.

Files of other programs are read too, so every size is checked before memory is allocated, and any failure of reading
becomes a FileError of one line. Files are replaced as a whole, so they are never left incomplete. The .npz of one
image: see features.py.
"""

import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError, short_message
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import STORE, Features, load_features, parse_facts, read_facts
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.files import check_free_space, read_small_text, replacing

H5_SUFFIXES = (".h5", ".hdf5")
NPZ_SUFFIX = ".npz"
ATTRIBUTE = "matchkernel"  # the HDF5 attribute that holds model and settings, or a digest
CHECKSUM = "matchkernel_crc32"  # the HDF5 attribute that tells features which were edited
UNCERTAINTY = 1.0  # pixels; hloc's value for DoG
MAX_COMPRESSION_RATIO = 1032  # of gzip: a dataset may claim at most this many times the bytes of its file
HDF5_VERSIONS = ("v110", "v110")  # since HDF5 1.10 all structures of a file have checksums; values, as _write_array
RESERVED_BYTES = 8_000_000  # of disk, left free while an HDF5 file is written
GLOBAL = "global_descriptor"  # hloc's dataset
DEEPEST = 32  # groups inside each other in an .h5
MAX_LIST_BYTES = 2**31  # maximum size of a list of pairs

Pair = tuple[str, str]


@dataclass(frozen=True)
class FeatureFiles:
    """The features of a collection."""

    path: Path  # a folder of .npz files, or an .h5
    names: list[str]  # of the images, sorted

    def load(self, name: str) -> Features:
        """The features of one image; squares of half width 1 if the file has no scales."""
        if is_h5(self.path):
            return read_features(self.path, name, need_regions=False)
        return load_features(self.path / f"{name}{NPZ_SUFFIX}")


def open_features(path: str | Path) -> FeatureFiles:
    """List the images whose features a folder of .npz files or an .h5 holds; raises FileError if there are none."""
    path = Path(path)
    if not is_h5(path) and not path.is_dir():
        reason = "is neither a folder nor an .h5" if path.exists() else "no such file or folder"
        raise FileError(f"{path}: {reason}; features are what `matchkernel extract` writes")
    names = image_names(path) if is_h5(path) else npz_names(path)
    if not names:
        raise FileError(f"{path}: contains no features")
    return FeatureFiles(path, names)


def npz_names(folder: Path) -> list[str]:
    """Names of the images that a folder holds .npz files of, sorted."""
    paths = (path for path in folder.rglob(f"*{NPZ_SUFFIX}") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix().removesuffix(NPZ_SUFFIX) for path in paths)


def first_facts(folder: Path) -> tuple[str, dict[str, Any]]:
    """Model and settings of some features of a folder that can be read; nothing if there are none."""
    for path in sorted(folder.rglob(f"*{NPZ_SUFFIX}")):
        with suppress(FileError):  # damaged, or not ours: said when its photo is read
            return read_facts(path)
    return "", {}


def is_h5(path: Path) -> bool:
    """True if the name is that of an HDF5 file."""
    return path.suffix.lower() in H5_SUFFIXES


# features.h5


def append_features(path: str | Path, image_name: str, features: Features) -> None:
    """Add or replace the features of one image in a features.h5, atomically.

    The whole file is copied. For many images use write_features, or `extract_images` of the collection, which resumes.

    Example:
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> from matchkernel.photos.extract import extract
        >>> from matchkernel.photos.feature_files import append_features, image_names, read_features
        >>> path = "features.h5"
        >>> append_features(path, "left.png", extract(FOLDER / "left.png", "sift", keypoints=50))
        >>> image_names(path), len(read_features(path, "left.png"))
        (['left.png'], 50)
    """
    write_features(path, [(image_name, features)])


def write_features(path: str | Path, entries: Iterable[tuple[str, Features]], *, removed: Iterable[str] = ()) -> None:
    """Add or replace the features of named images (slashes make folders) in a features.h5, all of them or none.

    Those of the images called `removed` are deleted.
    """
    with _update(path) as file:
        for name in removed:
            del file[check_h5_name(name)]
        for name, features in entries:
            _write_image(file, check_h5_name(name), features)


def _write_image(file: Any, name: str, features: Features) -> None:
    is_inside = any(_is_image(file.get(str(folder))) for folder in PurePosixPath(name).parents)
    if is_inside or (name in file and not _is_image(file[name])):
        raise ArgumentError(f"{name} cannot be added: in the file it would be inside another image, or hold others")
    if name in file:
        del file[name]
    group = file.create_group(name)
    _write_array(group, "keypoints", features.keypoints.astype(np.float32)).attrs["uncertainty"] = UNCERTAINTY
    kind = np.float32 if features.settings.get(STORE, "float32") == "float32" else np.float16  # hloc has no bytes
    _write_array(group, "descriptors", np.ascontiguousarray(features.descriptors.T, kind))
    _write_array(group, "scores", features.scores.astype(np.float32))
    _write_array(group, "scales", features.scales.astype(np.float32))
    _write_array(group, "oris", np.rad2deg(features.orientations).astype(np.float32))
    _write_array(group, "image_size", np.array(features.image_size, np.int64))
    if not features.frames.are_squares.all():
        _write_array(group, "shapes", features.frames.shapes.astype(np.float32))  # scale and angle are not enough
    facts = {"model": features.model, "settings": dict(features.settings)}
    _write_text(group, json.dumps(facts, sort_keys=True))
    group.attrs[CHECKSUM] = _checksum(group)


def read_features(path: str | Path, image_name: str, *, need_regions: bool = True) -> Features:
    """Read the features of one image of a features.h5.

    Args:
        path: the file.
        image_name: name of the image in the file.
        need_regions: raise if the file has no scales (most learned detectors write none); if False, use squares of half
            width 1.

    Example: see append_features.
    """
    with _open(path) as file:
        group = _item(file, check_h5_name(image_name))
        if not _is_image(group):
            raise FileError(f"{path}: contains no features of {image_name}")
        centers = _read_array(group, "keypoints", None, 2).astype(np.float64)
        K = len(centers)
        descriptors = np.ascontiguousarray(_read_array(group, "descriptors", None, K).T, np.float32)
        scores = _read_array(group, "scores", K).astype(np.float32) if "scores" in group else np.ones(K, np.float32)
        width, height = _read_array(group, "image_size", 2)
        model, settings = _group_facts(group) or ("unknown", {})
        if "shapes" in group:
            frames = Frames(centers, _read_array(group, "shapes", K, 2, 2))
        elif "scales" in group:
            half_widths = _read_array(group, "scales", K) * np.float64(settings.get("magnification", MAGNIFICATION))
            degrees = _read_array(group, "oris", K).astype(np.float64) if "oris" in group else np.zeros(K)
            frames = Frames.turned_squares(centers, half_widths, np.deg2rad(degrees))
        elif need_regions:
            raise FileError(f"{path}: features of {image_name} have no scales")
        else:
            frames = Frames.of_points(centers)
        return Features(frames, descriptors, scores, (int(width), int(height)), model, settings)


def image_names(path: str | Path) -> list[str]:
    """Names of the images of a features.h5, sorted.

    Example: see append_features.
    """
    with _open(path) as file:
        return sorted(name.removesuffix("/keypoints") for name in _paths_of("keypoints", file))


def recorded_facts(path: str | Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """For images of a features.h5 (default: all): `D`, `K`, and `model`, `settings` and `checksum` if we wrote it.

    Names that the file does not contain are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    with _open(path) as file:
        for name in image_names(path) if names is None else names:
            group = _item(file, check_h5_name(name))
            if _is_image(group):
                D, K = group["descriptors"].shape
                facts = _group_facts(group)
                found[name] = {**({"model": facts[0], "settings": facts[1]} if facts else {}), "D": D, "K": K}
                if CHECKSUM in group.attrs:  # which files of version 0.2 lack
                    found[name]["checksum"] = int(group.attrs[CHECKSUM])
    return found


def _checksum(group: Any) -> int:
    """CRC-32 of all arrays of an image."""
    found = 0
    for name in sorted(group):
        found = zlib.crc32(np.ascontiguousarray(group[name][()]).tobytes(), zlib.crc32(name.encode(), found))
    return found


def _group_facts(group: Any) -> tuple[str, dict[str, Any]] | None:
    """Model and settings of an image; None if another program wrote it."""
    return None if (text := _text_of(group)) is None else parse_facts(text, group.file.filename)


def _is_image(item: Any) -> bool:
    return isinstance(item, need_h5py().Group) and _has_values(item, "keypoints")


def read_global_descriptors(path: str | Path) -> tuple[list[str], np.ndarray]:
    """Names and (n, V) unit rows of hloc's global descriptors (NetVLAD, MegaLoc, ...), sorted by name."""
    with _open(path) as file:
        names = sorted(name.removesuffix(f"/{GLOBAL}") for name in _paths_of(GLOBAL, file))
        if not names:
            raise FileError(f"{path}: contains no {GLOBAL}; hloc's extract_features writes it with a global network")
        V = len(file[names[0]][GLOBAL])
        return names, unit_rows(np.stack([_read_array(file[name], GLOBAL, V).astype(np.float32) for name in names]))


# matches.h5


@dataclass(frozen=True)
class PairMatches:
    """Matches of two images in a matches.h5.

    Attributes:
        names: names of image A and image B.
        indices: (M, 2) row in A and row in B; a row of A at most once.
        scores: (M,) from 0 to 1, higher is better.
        key: digest of everything the matches were computed from, by which a later run recognises finished pairs; stored
            as an attribute if it is not empty.
    """

    names: Pair
    indices: np.ndarray
    scores: np.ndarray
    key: str = ""


def write_matches(
    path: str | Path,
    pairs: Iterable[tuple[PairMatches, int]],
    facts: str | None = None,
    *,
    removed: Iterable[Pair] = (),
) -> None:
    """Add or replace matches in a matches.h5, all of them or none.

    `matches0` is int16 as in hloc; if an index exceeds 32,767 it is int32, which hloc can read as well (its own writer
    would overflow to a negative index).

    Args:
        path: the file; created if it does not exist.
        pairs: matches, and the number of keypoints of image A.
        facts: how all matches of the file were computed, stored as an attribute if it is given.
        removed: pairs whose matches are deleted; the names in the order of the file.

    Example:
        >>> import numpy as np
        >>> from matchkernel.photos.feature_files import PairMatches, read_matches, write_matches
        >>> path = "matches.h5"
        >>> indices = np.array([[0, 2], [3, 1]])  # rows of a.jpg and of b.jpg
        >>> write_matches(path, [(PairMatches(("a.jpg", "b.jpg"), indices, np.array([0.9, 0.8])), 4)])
        >>> read_matches(path, "b.jpg", "a.jpg").indices.tolist()
        [[1, 3], [2, 0]]
    """
    with _update(path) as file:
        if facts is not None:
            _write_text(file, facts)
        for pair in removed:
            del file[pair_key(*pair)]
        for matches, count in pairs:
            matches0, scores0 = _one_row_per_keypoint(matches, count)
            for names in (matches.names, matches.names[::-1]):
                if pair_key(*names) in file:
                    del file[pair_key(*names)]
            group = file.create_group(pair_key(*matches.names))
            _write_array(group, "matches0", matches0)
            _write_array(group, "matching_scores0", scores0)
            if matches.key:
                _write_text(group, matches.key)


def _one_row_per_keypoint(matches: PairMatches, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(K,) index of the match or -1, and (K,) float16 scores."""
    rows, partners = np.asarray(matches.indices).reshape(-1, 2).T
    is_known = rows.min(initial=0) >= 0 and partners.min(initial=0) >= 0 and rows.max(initial=-1) < count
    if not is_known or len(np.unique(rows)) != len(rows) or np.shape(matches.scores) != rows.shape:
        raise ArgumentError(
            f"matches of {matches.names[0]} and {matches.names[1]}: each of the {count} keypoints of image A may have "
            "one match, with one score"
        )
    matches0 = np.full(count, -1, np.int16 if partners.max(initial=-1) <= np.iinfo(np.int16).max else np.int32)
    scores0 = np.zeros(count, np.float16)
    matches0[rows] = partners
    scores0[rows] = matches.scores
    return matches0, scores0


def recorded_matches(path: str | Path, pairs: Iterable[Pair]) -> tuple[str | None, dict[Pair, tuple[str, int]]]:
    """The facts of a matches.h5 and, for each listed pair with a digest, the digest and the number of matches."""
    found = {}
    with _open(path) as file:
        for pair in pairs:
            group = _item(file, pair_key(*pair))
            if isinstance(group, need_h5py().Group) and (key := _text_of(group)) is not None:
                matches0 = _read_array(group, "matches0", None, kinds="iu")
                found[pair] = key, int((matches0 >= 0).sum())
        return _text_of(file), found


def read_matches(path: str | Path, name0: str, name1: str) -> PairMatches:
    """Read the matches of two images in the order of their rows in A, whichever way round the file stores them.

    If the file stores them the other way round and they were not mutual, a row of A keeps its best match, or the first
    of equally good ones.

    Example: see write_matches.
    """
    (found,) = read_matches_of(path, [(name0, name1)])
    return found


def read_matches_of(path: str | Path, pairs: Iterable[Pair]) -> Iterator[PairMatches]:
    """Yield the matches of many pairs as read_matches returns them; the file is opened once."""
    with _open(path) as file:
        for pair in pairs:
            is_swapped = pair_key(*pair) not in file
            group = _item(file, pair_key(*(pair[::-1] if is_swapped else pair)))
            if group is None:
                raise FileError(f"{path}: contains no matches of {pair[0]} and {pair[1]}")
            matches0 = _read_array(group, "matches0", None, kinds="iu").astype(np.int64)
            scores0 = _read_array(group, "matching_scores0", len(matches0)).astype(np.float32)
            if (matches0 < -1).any():
                raise FileError(f"{path}: matches of {pair[0]} and {pair[1]} contain an index below -1")
            rows = np.flatnonzero(matches0 >= 0)
            indices, scores = np.column_stack([rows, matches0[rows]]), scores0[rows]
            if is_swapped:
                best_first = np.lexsort((rows, -scores, indices[:, 1]))
                _, first = np.unique(indices[best_first, 1], return_index=True)
                indices, scores = indices[best_first[first], ::-1], scores[best_first[first]]
            yield PairMatches(pair, indices, scores)


def check_matches(path: str | Path) -> None:
    """Refuse a matches.h5 of which any pair cannot be read."""
    with _open(path) as file:
        pairs = [(a, b) for a in file for b in file[a]]
    for _ in read_matches_of(path, pairs):
        pass


def check_pair_names(names: Iterable[str]) -> None:
    """Refuse image names that have the same key in a matches.h5, such as `a/b.jpg` and `a-b.jpg`."""
    written: dict[str, str] = {}
    for name in names:
        same = written.setdefault(name.replace("/", "-"), name)
        if same != name:
            raise ArgumentError(f"{same} and {name} get the same key in hloc's matches file; rename one of them")


def pair_key(name0: str, name1: str) -> str:
    """The group of a pair in a matches.h5."""
    return "/".join(check_h5_name(name).replace("/", "-") for name in (name0, name1))


# HDF5


def need_h5py() -> Any:
    """The module h5py."""
    return need("h5py", CORE, "reading and writing hloc's .h5 files")


@contextmanager
def _open(path: str | Path) -> Iterator[Any]:
    """An open HDF5 file; any problem while reading it becomes a FileError that names the file in one line."""
    h5py = need_h5py()
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except MatchKernelError:
        raise
    except Exception as error:  # h5py raises almost anything for a damaged file or another layout
        raise FileError(f"{path}: not a complete HDF5 file, or not in hloc's layout ({short_message(error)})") from None


@contextmanager
def _update(path: str | Path) -> Iterator[Any]:
    """A copy of the HDF5 file, or a new file, open for writing; it replaces the file at the end."""
    h5py = need_h5py()
    path = Path(path)
    with replacing(path) as part:
        if path.exists():
            with _open(path):
                pass  # a damaged file is refused; the copy is outside the block, so that a full disk is a WriteError
            shutil.copyfile(path, part)
        try:
            with h5py.File(part, "a", libver=HDF5_VERSIONS) as file:
                yield file
        except MatchKernelError:
            raise
        except (OSError, RuntimeError, ValueError, KeyError) as error:  # h5py reports a full disk in several ways
            raise WriteError(f"{path}: could not be written ({short_message(error)})") from error


def _write_array(group: Any, name: str, values: np.ndarray) -> Any:
    """Write a dataset after checking free space: HDF5 aborts the process if the disk fills while it flushes its cache.

    Every HDF5 reader verifies the checksums.
    """
    check_free_space(Path(group.file.filename).parent, values.nbytes + RESERVED_BYTES)
    return group.create_dataset(name, data=values, fletcher32=True if values.size else None)


def _write_text(group: Any, text: str) -> None:
    """Write an attribute of fixed length: it is part of a header, which has a checksum."""
    group.attrs[ATTRIBUTE] = np.bytes_(text)


def _text_of(group: Any) -> str | None:
    found = group.attrs.get(ATTRIBUTE)  # of any length in files of version 0.2
    return found.decode() if isinstance(found, bytes) else None if found is None else str(found)


def _read_array(group: Any, name: str, *shape: int | None, kinds: str = "fiu") -> np.ndarray:
    """Read finite numbers of this shape (None for any length); `kinds` are numpy's letters of the accepted types."""
    dataset = _item(group, name)
    if not isinstance(dataset, need_h5py().Dataset):
        raise FileError(f"{group.file.filename}: {group.name} has no {name}")
    fits = len(dataset.shape) == len(shape) and all(w in (None, n) for w, n in zip(shape, dataset.shape, strict=True))
    is_inside = not (dataset.is_virtual or dataset.external)
    limit = MAX_COMPRESSION_RATIO * os.path.getsize(group.file.filename)  # noqa: PTH202
    if fits and is_inside and dataset.dtype.kind in kinds and dataset.nbytes <= limit:
        values = np.asarray(dataset[()])
        if np.isfinite(values).all():
            return values
    found = f"{dataset.name} has shape {dataset.shape} and type {dataset.dtype}"
    lengths = ", ".join("any" if length is None else str(length) for length in shape)
    wanted = f"finite numbers of shape ({lengths}), stored in this file"
    raise FileError(f"{group.file.filename}: {found}; expected {wanted}")


def _item(group: Any, path: str) -> Any:
    """What is at a path inside a group; None if there is nothing. A link to another file is refused."""
    h5py = need_h5py()
    for part in path.split("/"):
        if not isinstance(group, h5py.Group) or not _has(group, part):
            return None
        if group.id.links.get_info(part.encode()).type == h5py.h5l.TYPE_EXTERNAL:
            raise FileError(f"{group.file.filename}: {group.name} has a link to another file; links are not followed")
        group = group[part]
    return group


def _has(group: Any, name: str) -> bool:
    """True if a group has an item of this name, be it damaged: for h5py, `name in group`, it is not there then."""
    return bool(group.id.links.exists(name.encode()))


def _has_values(group: Any, name: str) -> bool:
    """True if a group has an item of this name that is no group, such as a folder of photos; links are not followed."""
    if not _has(group, name):
        return False
    h5py = need_h5py()
    is_link = group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD
    return is_link or group.get(name, getclass=True) is not h5py.Group


def _paths_of(name: str, group: Any, seen: Collection[Any] = ()) -> Iterator[str]:
    """The paths of all items of this name; the groups that hold them hold no others."""
    if len(seen) > DEEPEST or group.id in seen:
        raise FileError(f"{group.file.filename}: its groups are nested deeper than {DEEPEST}")
    if _has_values(group, name):
        yield name
        return
    for part in group:
        item = _item(group, part)
        if isinstance(item, need_h5py().Group):
            yield from (f"{part}/{path}" for path in _paths_of(name, item, (*seen, group.id)))


def check_h5_name(name: str) -> str:
    """Check that an image's name can be a path inside an HDF5 file."""
    if not _is_utf8(name):
        raise ArgumentError(f"an .h5 file can hold only UTF-8 names, got {name!a}; rename the image")
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ArgumentError(f"the name of an image must be like photo.jpg or folder/photo.jpg, got {name!r}")
    return name


def _is_utf8(name: str) -> bool:
    """False for the name of a file whose bytes are not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


# Lists of pairs
#
# hloc's text format has two names per line, separated by a space, and cannot hold names that contain spaces. We write
# a tab between such names, so that files without them are exactly hloc's.


def read_pairs(path: str | Path, names: Collection[str] | None = None) -> list[Pair]:
    """Read a list of pairs in its order; a pair that is listed again, either way round, is left out.

    A line is split at its tab or, if that does not give two names, at white space. Blank lines are skipped. So are
    lines that begin with # and are not a pair. With `names`, a pair with any other image is refused.
    """
    known = None if names is None else set(names)
    lines = read_small_text(path, MAX_LIST_BYTES, what="a list of pairs").split("\n")
    found = (_parse_pair(line, known, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
    return list(unique_pairs(filter(None, found)))


def _parse_pair(line: str, known: set[str] | None, where: str) -> Pair | None:
    """The two names of a line, or None for a comment."""
    readings = [
        (names[0], names[1])
        for names in (line.split("\t"), line.split())
        if len(names) == 2 and names[0] != names[1] and all(name.strip() and "\0" not in name for name in names)
    ]
    for pair in readings:
        if known is None or known.issuperset(pair):
            return pair
    if line.lstrip().startswith("#"):
        return None
    if readings and known is not None:
        unknown = next(name for name in readings[0] if name not in known)
        raise FileError(f"{where}: there is no image {unknown[:80]!r} among the {len(known)} given")
    tab = "; names with spaces need a tab between them" if len(line.split()) > 2 else ""
    raise FileError(f"{where}: expected the names of two different images, got {line[:80]!r}{tab}")


def write_pairs(path: str | Path, pairs: Iterable[Pair]) -> int:
    r"""Write a list of pairs, atomically, in the order given, each pair once; returns their number.

    Example:
        >>> from pathlib import Path
        >>> from matchkernel.photos.feature_files import read_pairs, write_pairs
        >>> path = Path("pairs.txt")
        >>> write_pairs(path, [("a.jpg", "b.jpg"), ("b.jpg", "c 2.jpg"), ("b.jpg", "a.jpg")])
        2
        >>> path.read_text()
        'a.jpg b.jpg\nb.jpg\tc 2.jpg\n'
        >>> read_pairs(path)
        [('a.jpg', 'b.jpg'), ('b.jpg', 'c 2.jpg')]
    """
    count = 0
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for first, second in unique_pairs(pairs):
            for name in (first, second):
                if not _is_utf8(name) or not name.strip() or any(letter in name for letter in "\t\n\r\0\ufeff"):
                    raise ArgumentError(f"a list of pairs cannot hold an image called {name!a}: rename it")
            if first == second:
                raise ArgumentError(f"a pair must be two images, got {first!r} twice")
            separator = " " if all(name.split() == [name] for name in (first, second)) else "\t"
            file.write(f"{first}{separator}{second}\n")
            count += 1
    return count


def unique_pairs(*lists: Iterable[Pair]) -> Iterator[Pair]:
    """The union of lists: every pair once, as it comes first, in the order of the lists."""
    seen: set[Pair] = set()
    for pairs in lists:
        for first, second in pairs:
            key = (first, second) if first <= second else (second, first)
            if key not in seen:
                seen.add(key)
                yield first, second
