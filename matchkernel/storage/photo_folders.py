"""Which files of a folder are photos to work on, and what is left out."""

import glob
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import LONG_TEXT, file_hash, read_small_text
from matchkernel.storage.images import SUFFIXES

SHOWN_KINDS, SHOWN_NAMES = 6, 3  # in messages: kinds of ignored files, names of photos
LINKED, UNREADABLE, BROKEN, NO_FILE = KINDS = ("linked folder", "unreadable folder", "broken link", "pipe or device")
OTHERS = "not chosen"
MASKED = " with mask "  # between the digests of a photo and of its mask


def first_names(names: Sequence[str]) -> str:
    """The first names for a message, and the number of the others: `a.jpg, b.jpg, c.jpg and 4 more`."""
    more = f" and {len(names) - SHOWN_NAMES} more" * (len(names) > SHOWN_NAMES)
    return f"{', '.join(names[:SHOWN_NAMES])}{more}"


def check_photo_folder(folder: Path) -> None:
    """Refuse a path that is not a folder."""
    if not folder.is_dir():
        reason = "is a file; a folder of photos is needed" if folder.exists() else "no such folder"
        raise FileError(f"{folder}: {reason}")


@dataclass(frozen=True)
class Photos:
    """Photos by name, sorted, and the number of other files by kind: suffix, "hidden", OTHERS or one of KINDS."""

    paths: dict[str, Path]
    ignored: dict[str, int] = field(default_factory=dict)

    def what_was_ignored(self) -> str:
        """A line such as `ignored 4 files (3 .mov, 1 hidden)`; empty if there is nothing to say."""
        if not self.ignored:
            return ""
        ordered = sorted(self.ignored.items(), key=lambda item: (-item[1], item[0]))
        kinds = [f"{count} {kind}{'s' * (count > 1 and kind in KINDS)}" for kind, count in ordered[:SHOWN_KINDS]]
        if len(ordered) > SHOWN_KINDS:
            kinds.append(f"{sum(count for _, count in ordered[SHOWN_KINDS:])} others")
        total = sum(self.ignored.values())
        return f"ignored {total} file{'s' * (total > 1)} ({', '.join(kinds)})"


def photos_in(
    folder: str | Path, *, only: Sequence[str] = (), listed: str | Path | None = None, without: Path | None = None
) -> Photos:
    """The photos in a folder and its folders, named by their path relative to it.

    Hidden files are left out: macOS puts a `._IMG.jpg` beside each photo on other disks.

    Args:
        folder: where to look.
        only: patterns, of which a name must match one: `*.jpg`, `left/*.png` (the last parts of the path are compared).
        listed: file of the names to take, one per line.
        without: folder of masks to leave out: those of a folder inside this one, or `IMG.jpg.png` beside `IMG.jpg`.
    """
    folder = Path(folder)
    check_photo_folder(folder)
    photos = _photos_of(folder, only, listed, without)
    if only and not photos.paths:
        raise ArgumentError(f"{folder}: none of its {photos.ignored.get(OTHERS, 0)} photos matches {' or '.join(only)}")
    return photos


def photos_at(
    places: Sequence[str | Path],
    *,
    only: Sequence[str] = (),
    listed: str | Path | None = None,
    without: Path | None = None,
) -> Photos:
    """The photos of several places, none twice.

    A place is a folder; a file, named by its file name; or a pattern such as `photos/**/*.jpg`, whose matches are named
    by their path relative to the part without wildcards. With `listed` a folder must be the only place. For the options
    see photos_in.
    """
    if listed is not None and (len(places) != 1 or not Path(places[0]).is_dir()):
        raise ArgumentError(f"{listed}: a list of names needs exactly one folder to look in")
    found: dict[str, Path] = {}
    ignored = Counter[str]()
    for place in map(Path, places):
        photos = _photos_of(place, only, listed, without)
        if not photos.paths and OTHERS not in photos.ignored:
            raise FileError(f"{place}: contains no images ({', '.join(SUFFIXES)})")
        for name in sorted(photos.paths.keys() & found.keys()):
            if found[name].resolve() != photos.paths[name].resolve():
                raise ArgumentError(f"two images are called {name}: {found[name]} and {photos.paths[name]}")
        if not photos.paths or photos.paths.keys() - found.keys():  # a place that is given twice is counted once
            ignored.update(photos.ignored)
        found |= photos.paths
    if only and not found:
        raise ArgumentError(f"none of the photos matches {' or '.join(only)}")
    return Photos(dict(sorted(found.items())), dict(ignored))


def _photos_of(place: Path, only: Sequence[str], listed: str | Path | None, without: Path | None) -> Photos:
    """The photos of one place: a folder, a file, or a pattern."""
    ignored = Counter[str]()
    if place.is_dir():
        found = _named(_files(place, ignored), place, without, ignored)
    elif not place.exists() and glob.has_magic(str(place)):
        fixed = next(number for number, part in enumerate(place.parts) if glob.has_magic(part))
        found = _named(_matches(place), Path(*place.parts[:fixed]), without, ignored)
    else:  # opened later: one missing file must not stop the others
        found = {place.name: place}
    names = found.keys() if listed is None else _names(Path(listed), found, place)
    chosen = {
        name: found[name]
        for name in sorted(names)
        if not only or any(PurePosixPath(name).match(pattern) for pattern in only)
    }
    if len(chosen) < len(found):
        ignored[OTHERS] = len(found) - len(chosen)
    return Photos(chosen, dict(ignored))


def _files(folder: Path, ignored: Counter[str]) -> Iterator[Path]:
    """Files of a folder and its folders; links to folders and folders that cannot be read are counted."""

    def unreadable(_: OSError) -> None:
        ignored[UNREADABLE] += 1

    for place, folders, names in os.walk(folder, followlinks=False, onerror=unreadable):
        folders.sort()
        ignored.update(LINKED for name in folders if (Path(place) / name).is_symlink())
        yield from (Path(place) / name for name in sorted(names))


def _matches(pattern: Path) -> Iterator[Path]:
    """Files that match a pattern, without duplicates that differ only by a symlinked folder."""
    seen = set()
    paths = (Path(path) for path in glob.iglob(str(pattern), recursive=True))  # noqa: PTH207
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        real = path.parent.resolve() / path.name
        if real not in seen and not path.is_dir():
            seen.add(real)
            yield path


def _named(files: Iterable[Path], root: Path, masks: Path | None, ignored: Counter[str]) -> dict[str, Path]:
    """Photos by their path relative to the root, without masks; other files are counted by kind.

    Masks are all files of a folder inside the root; if the folder of masks is the root itself, the masks of photos.
    """
    named = {}
    for path in files:
        kind = _kind(path, root)
        if kind:
            ignored[kind] += 1
        else:
            named[path.relative_to(root).as_posix()] = path
    if masks is None:
        return named
    root, masks = root.resolve(), masks.resolve()
    if masks != root and masks.is_relative_to(root):
        inside = f"{masks.relative_to(root).as_posix()}/"
        return {name: path for name, path in named.items() if not name.startswith(inside)}
    of_photos = {masks / f"{name}.png" for name in named}
    return {name: path for name, path in named.items() if root / name not in of_photos}


def _kind(path: Path, folder: Path) -> str:
    """Why a file is no photo; empty for a photo."""
    if any(part.startswith(".") for part in path.relative_to(folder).parts):
        return "hidden"
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        return suffix or "without suffix"
    return "" if path.is_file() else BROKEN if path.is_symlink() else NO_FILE


def _names(listed: Path, found: dict[str, Path], folder: Path) -> set[str]:
    """The names in a list, all of which must be found."""
    lines = map(str.strip, read_small_text(listed, LONG_TEXT, what="a list of names").split("\n"))
    names = {name: number for number, name in enumerate(lines, 1) if name}
    for name, number in names.items():
        if name not in found:
            raise FileError(f"{listed}, line {number}: {folder} has no photo {name!r}")
    if not names:
        raise FileError(f"{listed}: lists no photo")
    return set(names)


def mask_of(name: str, masks: Path | None) -> Path | None:
    """The mask of an image, if it has one."""
    mask = None if masks is None else masks / f"{name}.png"
    return mask if mask is not None and os.path.isfile(mask) else None  # noqa: PTH113 - False for a name too long


def check_masks(masks: Path | None, names: Collection[str]) -> int:
    """The number of images that have a mask; a folder without any is refused, as masks with other names would be."""
    if masks is None:
        return 0
    if not masks.is_dir():
        raise FileError(f"{masks}: no such folder of masks")
    count = sum(mask_of(name, masks) is not None for name in names)
    if names and not count:
        first = next(iter(names))
        raise FileError(f"{masks}: has no mask of these photos; that of {first} would be {first}.png")
    return count


def photo_digest(path: Path, mask: Path | None = None) -> str:
    """sha256 of a photo, and of its mask if it has one."""
    return _hash(path) if mask is None else f"{_hash(path)}{MASKED}{_hash(mask)}"


def _hash(path: Path) -> str:
    if not path.is_file():  # reading a pipe might never end
        raise FileError(f"{path}: no such file")
    try:
        return file_hash(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
