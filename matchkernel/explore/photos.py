"""The photos of the page: kept in memory only, known by a digest of their bytes."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.sample_pair import FOLDER
from matchkernel.errors import ArgumentError, FileError
from matchkernel.explore.settings import ExploreSettings
from matchkernel.storage.images import check_image_file, decode_photo

PREVIEW_SIDE = 1600
SAMPLE_NAMES = ("sample, left", "sample, right")


class UnknownPhotoError(ArgumentError):
    """A photo that is no longer in memory, or never was."""


@dataclass(frozen=True)
class PagePhoto:
    """A decoded photo.

    Attributes:
        id: digest of its bytes, by which photos are compared.
        name: name shown on the page.
        gray: (H, W) uint8, upright.
        jpeg: a picture of it, not larger than PREVIEW_SIDE.
        to_file: (3, 3), from its pixels to those of the file, which may be larger and lie on its side.
    """

    id: str
    name: str = field(compare=False)
    gray: np.ndarray = field(compare=False)
    jpeg: bytes = field(compare=False)
    to_file: np.ndarray = field(compare=False, default_factory=lambda: np.eye(3))

    @property
    def facts(self) -> dict[str, object]:
        """What the page shows about it."""
        height, width = self.gray.shape
        rows = self.to_file[:2]
        shrunk = round(float(np.abs(rows[0, :2]).max()))
        named = {"id": self.id, "name": self.name, "sample": self.name in SAMPLE_NAMES}
        return {**named, "width": width, "height": height, "shrunk": shrunk, "to_file": rows.tolist()}


def decode(data: bytes, name: str, settings: ExploreSettings) -> PagePhoto:
    """A photo from the bytes of its file, upright, and shrunk if it is large; a damaged one is a FileError."""
    gray, jpeg, to_file = decode_photo(data, name, max_pixels=settings.upload_pixels, preview_side=PREVIEW_SIDE)
    return PagePhoto(hashlib.sha256(data).hexdigest()[:32], name, gray, jpeg, to_file)


def read_photo(path: Path, settings: ExploreSettings) -> PagePhoto:
    """A photo from a file."""
    check_image_file(path)
    if path.stat().st_size > settings.upload_bytes:
        raise FileError(f"{path}: larger than {settings.upload_bytes / 2**20:g} MiB")
    photo = decode(path.read_bytes(), str(path), settings)
    return replace(photo, name=path.name)


def read_sample(settings: ExploreSettings) -> tuple[PagePhoto, PagePhoto]:
    """The sample pair."""
    files = zip(("left.png", "right.png"), SAMPLE_NAMES, strict=True)
    left, right = (decode((FOLDER / file).read_bytes(), name, settings) for file, name in files)
    return left, right


def by_id(*arguments: Any) -> tuple[Any, ...]:
    """The arguments with the ids of photos in place of the photos, to keep results by without their pixels."""
    return tuple(one.id if isinstance(one, PagePhoto) else one for one in arguments)


class PhotoStore:
    """A bounded number of photos: those given at the start stay, of the others those used last."""

    def __init__(self, limit: int, fixed: tuple[PagePhoto, ...] = ()) -> None:
        self._limit, self._fixed = limit, frozenset(photo.id for photo in fixed)
        self._photos = OrderedDict((photo.id, photo) for photo in fixed)

    def add(self, photo: PagePhoto) -> None:
        """Keep a photo."""
        self._photos[photo.id] = photo
        self._photos.move_to_end(photo.id)
        for key in [key for key in self._photos if key not in self._fixed][: -self._limit]:
            del self._photos[key]

    def get(self, key: str) -> PagePhoto:
        """The photo of an id."""
        if key not in self._photos:
            raise UnknownPhotoError("this photo is no longer in memory: choose it again")
        self._photos.move_to_end(key)
        return self._photos[key]

    def __len__(self) -> int:
        return len(self._photos)
