"""Features of many images on disk: folders of .npz files, and the .h5 of hloc (cvg/Hierarchical-Localization).

HDF5 files have hloc's layout: descriptors are stored as (D, K), scales are sigmas, oris are degrees from +x towards +y.
As elsewhere in the package, the centre of the top-left pixel is (0, 0); hloc adds 0.5 itself when it exports to COLMAP.
Two things differ. Keypoints are float32, because hloc's own float16 has a resolution of one pixel beyond 1,024. Model
and settings, for which hloc has no field, are JSON in an attribute that hloc ignores. The .npz of one image: see
features.py.
"""

import json
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import STORE, Features, load_features, parse_facts, read_facts
from matchkernel.photos.hdf5 import (
    check_h5_name,
    has_values,
    is_h5,
    item_at,
    need_h5py,
    open_h5,
    paths_of,
    read_array,
    text_of,
    update_h5,
    write_array,
    write_text,
)
from matchkernel.storage.arrays import unit_rows

NPZ_SUFFIX = ".npz"
CHECKSUM = "matchkernel_crc32"  # the HDF5 attribute that tells features which were edited
UNCERTAINTY = 1.0  # pixels; hloc's value for DoG
GLOBAL = "global_descriptor"  # hloc's dataset


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
    with update_h5(path) as file:
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
    write_array(group, "keypoints", features.keypoints.astype(np.float32)).attrs["uncertainty"] = UNCERTAINTY
    kind = np.float32 if features.settings.get(STORE, "float32") == "float32" else np.float16  # hloc has no bytes
    write_array(group, "descriptors", np.ascontiguousarray(features.descriptors.T, kind))
    write_array(group, "scores", features.scores.astype(np.float32))
    write_array(group, "scales", features.scales.astype(np.float32))
    write_array(group, "oris", np.rad2deg(features.orientations).astype(np.float32))
    write_array(group, "image_size", np.array(features.image_size, np.int64))
    if not features.frames.are_squares.all():
        write_array(group, "shapes", features.frames.shapes.astype(np.float32))  # scale and angle are not enough
    facts = {"model": features.model, "settings": dict(features.settings)}
    write_text(group, json.dumps(facts, sort_keys=True))
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
    with open_h5(path) as file:
        group = item_at(file, check_h5_name(image_name))
        if not _is_image(group):
            raise FileError(f"{path}: contains no features of {image_name}")
        centers = read_array(group, "keypoints", None, 2).astype(np.float64)
        K = len(centers)
        descriptors = np.ascontiguousarray(read_array(group, "descriptors", None, K).T, np.float32)
        scores = read_array(group, "scores", K).astype(np.float32) if "scores" in group else np.ones(K, np.float32)
        width, height = read_array(group, "image_size", 2)
        model, settings = _group_facts(group) or ("unknown", {})
        if "shapes" in group:
            frames = Frames(centers, read_array(group, "shapes", K, 2, 2))
        elif "scales" in group:
            half_widths = read_array(group, "scales", K) * np.float64(settings.get("magnification", MAGNIFICATION))
            degrees = read_array(group, "oris", K).astype(np.float64) if "oris" in group else np.zeros(K)
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
    with open_h5(path) as file:
        return sorted(name.removesuffix("/keypoints") for name in paths_of("keypoints", file))


def recorded_facts(path: str | Path, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """For images of a features.h5 (default: all): `D`, `K`, and `model`, `settings` and `checksum` if we wrote it.

    Names that the file does not contain are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    with open_h5(path) as file:
        for name in image_names(path) if names is None else names:
            group = item_at(file, check_h5_name(name))
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
    return None if (text := text_of(group)) is None else parse_facts(text, group.file.filename)


def _is_image(item: Any) -> bool:
    return isinstance(item, need_h5py().Group) and has_values(item, "keypoints")


def read_global_descriptors(path: str | Path) -> tuple[list[str], np.ndarray]:
    """Names and (n, V) unit rows of hloc's global descriptors (NetVLAD, MegaLoc, ...), sorted by name."""
    with open_h5(path) as file:
        names = sorted(name.removesuffix(f"/{GLOBAL}") for name in paths_of(GLOBAL, file))
        if not names:
            raise FileError(f"{path}: contains no {GLOBAL}; hloc's extract_features writes it with a global network")
        V = len(file[names[0]][GLOBAL])
        return names, unit_rows(np.stack([read_array(file[name], GLOBAL, V).astype(np.float32) for name in names]))
