"""Photos that COLMAP cannot read, such as HEIC, are given to it as JPEG, under names that end so."""

import filecmp
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from matchkernel.errors import ArgumentError
from matchkernel.storage.files import link_or_copy, replacing
from matchkernel.storage.images import as_jpeg

JPEG = (".jpg", ".jpeg")


def readable_photos(
    images: Path, folder: Path, names: Sequence[str], unreadable: Collection[str]
) -> tuple[Path, dict[str, str]]:
    """The folder that COLMAP reads, and the name of each photo in it and in the model.

    The folder holds JPEGs of the photos that COLMAP cannot read, and links to the others; it is that of the photos if
    COLMAP can read all. An interrupted run may have made some of them.
    """
    if not unreadable and not folder.exists():
        return images, {name: name for name in names}
    named = {}
    for name in names:
        source, jpeg = (images / name).resolve(), folder / jpeg_name(name)
        if name in unreadable or (jpeg.name != Path(name).name and jpeg.exists()):
            named[name] = jpeg_name(name)
            if not jpeg.exists() or filecmp.cmp(jpeg, source, shallow=False):
                jpeg.unlink(missing_ok=True)  # through a link, the photo of the user would be replaced
                with replacing(jpeg) as part:
                    part.write_bytes(as_jpeg(source))
        else:
            named[name] = name
            link_photo(source, folder / name)
    if len(set(named.values())) < len(named):
        raise ArgumentError(f"{images}: rename a photo, because the JPEG of another one gets its name")
    return folder, named


def readable_photo(images: Path, folder: Path, name: str) -> Path:
    """The photo of a name in the model: a JPEG that readable_photos made, or the original, not by a link of old."""
    made = folder / name
    return (made if made.is_file() and not made.is_symlink() else images / name).resolve()


def jpeg_name(name: str) -> str:
    """The name of the JPEG that is made of a photo."""
    return name if name.lower().endswith(JPEG) else f"{name}.jpg"


def flat_names(names: Iterable[str]) -> dict[str, str]:
    """Names without folders, of ASCII letters, digits, `_` and `-`, that differ before their .jpg or .png.

    Trainers of splats use the last part of a name up to its first dot, and some read only ASCII.

    Example:
        >>> flat_names(["left/1.JPG", "left_1.png", "é 2.heic.jpg"])
        {'left/1.JPG': 'left_1.jpg', 'left_1.png': 'left_1_2.png', 'é 2.heic.jpg': '_2_heic.jpg'}
    """
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(names):
        stem, _, suffix = name.rpartition(".")
        plain = re.sub(r"[^A-Za-z0-9-]+", "_", stem)
        candidates = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        unique = next(candidate for candidate in candidates if candidate.lower() not in used)
        used.add(unique.lower())
        found[name] = unique + (".jpg" if f".{suffix.lower()}" in JPEG else ".png")
    return found


def name_in_model(name: str, known: Collection[str]) -> str:
    """The name of a photo among those of a database or model: its own, or that of its JPEG.

    Example:
        >>> name_in_model("a.heic", {"a.heic.jpg", "b.jpg"}), name_in_model("b.jpg", {"a.heic.jpg", "b.jpg"})
        ('a.heic.jpg', 'b.jpg')
    """
    return name if name in known else jpeg_name(name)


def photo_names(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """For each name of a model, the name of its photo among those that are known."""
    own = {jpeg_name(name): name for name in known} | {name: name for name in known}
    return {name: own.get(name, name) for name in names}


def link_photo(source: Path, target: Path) -> None:
    """A link to a photo, or a copy where links are not allowed; what is there stays, if it leads to no other place."""
    if target.is_symlink() and target.readlink() != source:  # the photos were moved since
        target.unlink()
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.symlink_to(source)
    except OSError:  # not every user of Windows may
        link_or_copy(source, target)
