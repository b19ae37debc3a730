"""The text files that COLMAP's importers read: keypoints of an image, and lists of matches."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from matchkernel.errors import ArgumentError, FileError, short_message
from matchkernel.geometry.conventions import MAGNIFICATION, frames_from_colmap, frames_to_colmap
from matchkernel.geometry.frames import Frames
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing
from matchkernel.storage.photo_folders import first_names

WIDTH = 128  # bytes of a descriptor, fixed by the importer
# Descriptors with negative values do not fit COLMAP's unsigned bytes, so matches are imported instead. Zeros in place
# of the descriptors are harmless: all dot products are 0, so COLMAP's own matcher finds nothing.
NO_DESCRIPTOR = " 0" * WIDTH


def write_keypoints(path: str | Path, frames: Frames, magnification: float = MAGNIFICATION) -> None:
    """Write the keypoints of an image for `colmap feature_importer`: x, y, scale, orientation, then 128 zeros.

    Args:
        path: `<name of the image>.txt`.
        frames: K regions; a non-square one becomes the square of the same area, as the format has no affine shape.
        magnification: half side of a region / scale.

    Example:
        >>> import numpy as np
        >>> from matchkernel.colmap.text_files import read_keypoints, write_keypoints
        >>> from matchkernel.geometry.frames import Frames
        >>> frames = Frames.turned_squares(np.array([[10.0, 20.0]]), np.array([6.0]), np.array([0.5]))
        >>> write_keypoints("a.jpg.txt", frames)
        >>> read_keypoints("a.jpg.txt").centers.tolist()
        [[10.0, 20.0]]
    """
    places = frames_to_colmap(frames, magnification)[:, :2]
    rows = np.column_stack([places, frames.half_widths / magnification, frames.angles])
    if not np.isfinite(rows).all():
        raise ArgumentError(f"{path}: keypoints contain numbers that are not finite")
    lines = [f"{x:.6f} {y:.6f} {scale:.6f} {angle:.8f}{NO_DESCRIPTOR}\n" for x, y, scale, angle in rows.tolist()]
    with replacing(path) as part, part.open("w", encoding="ascii") as file:
        file.write(f"{len(lines)} {WIDTH}\n")
        file.writelines(lines)


def read_keypoints(path: str | Path, magnification: float = MAGNIFICATION) -> Frames:
    """Read the keypoints of an image from COLMAP's text layout.

    Example: see write_keypoints.
    """
    lines = read_small_text(path, LONG_TEXT, encoding="ascii").splitlines()
    body = [line for line in lines[1:] if line.strip()]
    try:
        if lines[0].split() != [str(len(body)), str(WIDTH)]:
            raise ValueError("a different number of lines")
        # The last column is read, so that a line with fewer is an error.
        rows = np.loadtxt(body, usecols=(0, 1, 2, 3, 3 + WIDTH), ndmin=2)[:, :4] if body else np.empty((0, 4))
    except (IndexError, ValueError) as error:
        expected = f"`number {WIDTH}`, then x, y, scale, orientation and {WIDTH} bytes on each line"
        raise FileError(f"{path}: not COLMAP's keypoints: expected {expected} ({short_message(error)})") from None
    if not np.isfinite(rows).all():
        raise FileError(f"{path}: keypoints contain numbers that are not finite")
    return frames_from_colmap(rows, magnification)


def write_match_list(path: str | Path, pairs: Iterable[tuple[str, str, np.ndarray]]) -> int:
    """Write matches for `colmap matches_importer --match_type raw`; returns the number of pairs written.

    Args:
        path: the file.
        pairs: names of two images and (M, 2) index pairs; a pair without matches is left out.

    Example:
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from matchkernel.colmap.text_files import write_match_list
        >>> write_match_list("matches.txt", [("a.jpg", "b.jpg", np.array([[0, 7], [3, 5]]))])
        1
        >>> print(Path("matches.txt").read_text().strip())
        a.jpg b.jpg
        0 7
        3 5
    """
    written = 0
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        for name0, name1, indices in pairs:
            check_match_names((name0, name1))
            if len(indices):
                lines = "".join(f"{i} {j}\n" for i, j in np.asarray(indices).tolist())
                file.write(f"{name0} {name1}\n{lines}\n")
                written += 1
    return written


def check_image_name(name: str) -> None:
    """Refuse an image name that COLMAP's list of images cannot contain."""
    if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of a file name that are not UTF-8
        raise ArgumentError(f"COLMAP's lists are written in UTF-8: rename the image {name!a}")
    if name.strip() != name or len(name.splitlines()) != 1:
        raise ArgumentError(f"COLMAP's lists have one name per line: rename the image {name!r}")


def check_match_names(names: Iterable[str]) -> None:
    """Refuse image names that a match list cannot contain."""
    unique = sorted(set(names))
    odd = [ascii(name) for name in unique if any("\ud800" <= letter <= "\udfff" for letter in name)]  # not UTF-8
    if odd:
        raise ArgumentError(f"COLMAP's match lists are written in UTF-8: rename {first_names(odd)}")
    spaced = [repr(name) for name in unique if name.split() != [name]]
    if spaced:
        raise ArgumentError(
            f"COLMAP's match lists separate names with spaces: rename {first_names(spaced)}, write an .h5 instead, or"
            " use `matchkernel colmap`, which takes such names"
        )
