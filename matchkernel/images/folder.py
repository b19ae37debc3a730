"""Features of many images into a folder of .npz files or one features.h5, so that a stopped run can go on."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matchkernel.data.building import file_hash
from matchkernel.data.images import SUFFIXES, read_gray
from matchkernel.errors import ArgumentError, FileError
from matchkernel.images.describers import Describer
from matchkernel.images.extract import Detector, extract_with, recorded_settings
from matchkernel.images.features import Features, load_features, save_features

H5_SUFFIXES = (".h5", ".hdf5")
IMAGE_HASH = "image_sha256"  # among the settings of features made here


@dataclass(frozen=True)
class Extraction:
    """What became of the images: names of those done now, of those there already, and why others were skipped."""

    done: list[str]
    kept: list[str]
    skipped: dict[str, str]
    keypoints: int


def find_images(places: Sequence[str | Path]) -> dict[str, Path]:
    """Images by name: a file by its own, those in a folder (and below) by their path in it, in order of names."""
    found: dict[str, Path] = {}
    for place in map(Path, places):
        if place.is_dir():
            inside = [path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
            named = {path.relative_to(place).as_posix(): path for path in sorted(inside)}
            if not named:
                raise FileError(f"{place}: no image ({', '.join(SUFFIXES)}) here")
        else:
            named = {place.name: place}  # looked at when its turn comes: one missing file does not stop the others
        twice = named.keys() & found.keys()
        if twice:
            raise ArgumentError(f"two images are called {min(twice)}: {found[min(twice)]} and {named[min(twice)]}")
        found |= named
    return dict(sorted(found.items()))


def extract_images(
    images: dict[str, Path],
    out: str | Path,
    describer: Describer,
    detector: Detector | None = None,
    *,
    say: Callable[[str], object] = lambda line: None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Extraction:
    """Extract features of images, each written whole; an image that cannot be read is skipped and said.

    Run again, images that have features of the same settings are left as they are, and one that has changed is done
    again. Features of other settings are refused. Features for an .h5 are gathered in `<out>.parts` and put into the
    file at the end, all of them or none.

    Args:
        images: files by name (see find_images).
        out: a folder, for `<name>.npz`, made if it is not there; or an hloc file, .h5, which may hold other images.
        describer: from open_describer.
        detector: how keypoints are found.
        say: told of each image that is skipped.
        progress: told how many of how many images are done.
    """
    out, detector = Path(out), detector or Detector()
    is_h5 = out.suffix.lower() in H5_SUFFIXES
    folder = out.with_name(out.name + ".parts") if is_h5 else out
    wanted = json.loads(json.dumps(recorded_settings(describer, detector)))
    there = _in_h5(out) if is_h5 and out.exists() else {}
    if out.is_file() != bool(is_h5 and out.exists()) or (is_h5 and not out.parent.is_dir()):
        raise FileError(f"{out}: its folder does not exist" if is_h5 else f"{out}: is a file, not a folder")
    report = Extraction([], [], {}, 0)
    count = 0
    for number, (name, path) in enumerate(images.items(), 1):
        target = folder / f"{name}.npz"
        try:
            hashed = {**wanted, IMAGE_HASH: _hash(path)}
            known = there[name]() if name in there else load_features(target) if target.is_file() else None
            if known is not None and _is_current(known, hashed, describer.name, name, out):
                report.kept.append(name)
                count += len(known)
                continue
            features = replace(extract_with(read_gray(path), describer, detector), settings=hashed)
        except FileError as error:
            report.skipped[name] = str(error)
            say(f"skipped {error}")
            continue
        finally:
            progress(number, len(images))
        target.parent.mkdir(parents=True, exist_ok=True)
        save_features(features, target)
        report.done.append(name)
        count += len(features)
    if is_h5:
        _gather(folder, out)
    return replace(report, keypoints=count)


def _hash(path: Path) -> str:
    try:
        return file_hash(path)
    except OSError as error:
        raise FileError(f"{path}: {'no such file' if not path.exists() else error.strerror}") from None


def _is_current(known: Features, wanted: dict[str, Any], model: str, name: str, out: Path) -> bool:
    """Whether features need not be made again; refused where they were made in another way."""
    before = {"model": known.model, **known.settings}
    now = {"model": model, **wanted}
    for key in sorted((before.keys() | now.keys()) - {IMAGE_HASH}):
        if before.get(key) != now.get(key):
            raise ArgumentError(
                f"{out}: features of {name} were made with {key} {before.get(key)!r}, now {now.get(key)!r}; "
                "remove them or choose another place"
            )
    return before.get(IMAGE_HASH) == now[IMAGE_HASH]


def _in_h5(path: Path) -> dict[str, Callable[[], Features]]:
    from matchkernel.images.adapters.hloc import image_names, read_features

    return {name: lambda name=name: read_features(path, name) for name in image_names(path)}  # type: ignore[misc]


def _gather(folder: Path, out: Path) -> None:
    """Put the parts into the .h5 and remove them."""
    from matchkernel.images.adapters.hloc import write_features

    parts = {path.relative_to(folder).as_posix().removesuffix(".npz"): path for path in folder.rglob("*.npz")}

    def entries() -> Iterator[tuple[str, Features]]:
        for name, path in sorted(parts.items()):
            yield name, load_features(path)

    if parts:
        write_features(out, entries())
    shutil.rmtree(folder, ignore_errors=True)
