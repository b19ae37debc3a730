"""Positions that photos record by GPS, in the file that COLMAP's model_aligner reads."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.images import open_image

GPS_IFD, NORTH, LATITUDE, EAST, LONGITUDE, BELOW, ALTITUDE = 0x8825, 1, 2, 3, 4, 5, 6  # tags of EXIF
ENOUGH = 3  # positions for model_aligner


def read_gps(photo: str | Path) -> tuple[float, float, float] | None:
    """Latitude and longitude in degrees and altitude in metres (0 if unknown) of a photo; None if it has none."""
    try:
        with open_image(Path(photo)) as image:
            tags: dict[int, Any] = dict(image.getexif().get_ifd(GPS_IFD))
        latitude, longitude = _degrees(tags[LATITUDE]), _degrees(tags[LONGITUDE])
        altitude = float(tags.get(ALTITUDE, 0)) * (-1 if tags.get(BELOW) in (1, b"\1") else 1)
        south, west = str(tags.get(NORTH)).upper() == "S", str(tags.get(EAST)).upper() == "W"
    except (FileError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError, SyntaxError):
        return None  # no EXIF header, or a broken one
    if not (abs(latitude) <= 90 and abs(longitude) <= 180) or latitude == longitude == 0:
        return None
    altitude = altitude if abs(altitude) < 1e6 else 0.0
    return -latitude if south else latitude, -longitude if west else longitude, altitude


def write_gps(path: Path, photos: Iterable[tuple[str, Path]]) -> tuple[int, int]:
    """Write `name latitude longitude altitude` of the photos that have a position.

    Returns how many were written, none if fewer than three could be, and how many were left out because of spaces in
    their names, which model_aligner cannot read.
    """
    found = [(name, place) for name, photo in photos if (place := read_gps(photo))]
    lines = [f"{name} {x:.8f} {y:.8f} {z:.3f}\n" for name, (x, y, z) in found if len(name.split()) == 1]
    left_out = len(found) - len(lines)
    if len(lines) < ENOUGH:
        return 0, left_out
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines), left_out


def _degrees(parts: Any) -> float:
    degrees, minutes, seconds = (float(part) for part in parts)
    return degrees + minutes / 60 + seconds / 3600
