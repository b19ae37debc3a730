"""Focal lengths that photos record where COLMAP does not look: its program reads the headers of JPEGs alone."""

from math import hypot
from pathlib import Path

from matchkernel.errors import FileError
from matchkernel.storage.images import open_image

EXIF_IFD, FOCAL_LENGTH_ON_FILM = 0x8769, 0xA405  # tags of EXIF
FILM_DIAGONAL = hypot(36, 24)  # mm; the tag is the focal length that gives the same view on this film
LONGEST = 5000  # mm


def read_focal_length(photo: str | Path) -> float | None:
    """Focal length of a photo in pixels, by its EXIF header; None if it does not record that for film of 35 mm."""
    try:
        with open_image(Path(photo)) as image:
            on_film = float(image.getexif().get_ifd(EXIF_IFD)[FOCAL_LENGTH_ON_FILM])
            diagonal = hypot(image.width, image.height)
    except (FileError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, SyntaxError):
        return None  # no EXIF header, or a broken one
    return on_film / FILM_DIAGONAL * diagonal if 0 < on_film < LONGEST else None
