"""Draw two images side by side, with their matches as lines."""

from pathlib import Path

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.photos.extract import Image
from matchkernel.photos.pipeline import ImageMatches
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import check_output
from matchkernel.storage.images import line_of_text, write_picture
from matchkernel.storage.pixels import as_colour
from matchkernel.storage.upright import turned, turned_points

WIDTH = 1440  # pixels of the picture
GAP, MARGIN, TITLE = 28, 6, 34  # between the images, around them, and the height of the title
MAX_SHARE = 2  # of the height to the width
MAX_LINES = 300  # maximum number drawn of each kind, evenly chosen; more would hide the images
FINE = 4  # bits of a pixel in which OpenCV places lines
WRONG = (138, 138, 138)


def draw_matches(
    image_a: np.ndarray,
    image_b: np.ndarray,
    points_a: np.ndarray,
    points_b: np.ndarray,
    inliers: np.ndarray | None,
    title: str = "",
) -> np.ndarray:
    """Draw inliers as lines, coloured by their height in image A, and the other matches faintly in gray.

    Args:
        image_a: (H, W) gray or (H, W, 3) colour, uint8.
        image_b: of any other size; drawn at the same scale, both centred vertically.
        points_a: (M, 2) x, y in image A.
        points_b: (M, 2) x, y in image B.
        inliers: (M,) bool; None if nothing was verified: all are drawn as inliers, and the title does not count them.
        title: text before the counts.

    Returns:
        (H, W, 3) uint8.
    """
    (height_a, width_a), (height_b, width_b) = image_a.shape[:2], image_b.shape[:2]
    room = WIDTH - 2 * MARGIN - GAP
    scale = min(room / (width_a + width_b), MAX_SHARE * WIDTH / max(height_a, height_b))
    drawn = [_resized(image, scale) for image in (image_a, image_b)]
    height = max(len(image) for image in drawn)
    picture = np.full((TITLE + height + MARGIN, WIDTH, 3), 255, np.uint8)
    ends, left = [], MARGIN
    for image, original, points in zip(drawn, (image_a, image_b), (points_a, points_b), strict=True):
        top = TITLE + (height - len(image)) // 2
        picture[top : top + len(image), left : left + image.shape[1]] = image
        factors = np.array(image.shape[1::-1]) / original.shape[1::-1]
        ends.append((points + 0.5) * factors - 0.5 + [left, top])
        left += image.shape[1] + GAP
    shown = np.ones(len(points_a), bool) if inliers is None else inliers
    picture = _with_lines(picture, np.stack(ends, 1), shown, points_a[:, 1] / max(height_a, 1))
    picture[:TITLE, MARGIN : WIDTH - MARGIN] = line_of_text(title_of(shown, inliers, title), WIDTH - 2 * MARGIN, TITLE)
    return picture


def title_of(shown: np.ndarray, inliers: np.ndarray | None, title: str) -> str:
    """How many matches there are, and how many of them agree."""
    counts = f"{len(shown):,} matches"
    if inliers is not None:
        counts = f"{int(inliers.sum()):,} of {counts} agree"
    if max(shown.sum(), (~shown).sum()) > MAX_LINES:
        counts += f" (at most {MAX_LINES} of each kind drawn)"
    return f"{title}: {counts}" if title else counts


def save_picture(found: ImageMatches, a: Image, b: Image, path: str | Path, title: str = "") -> None:
    """Draw the matches between both images, side by side and upright: turned as their EXIF headers say.

    Args:
        found: the result of match_images.
        a: image A, as it was given to match_images.
        b: image B.
        path: .png, or .jpg, to write.
        title: text before the counts (default: the model's name).

    Example:
        >>> from matchkernel import match_images, save_picture
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> left, right = FOLDER / "left.png", FOLDER / "right.png"
        >>> save_picture(match_images(left, right, "sift", keypoints=200), left, right, "matches.png")
    """
    check_output(path, suffixes=(".png", ".jpg", ".jpeg"))
    write_picture(path, picture_of(found, a, b, title or found.features[0].model))


def picture_of(found: ImageMatches, a: Image, b: Image, title: str) -> np.ndarray:
    """(H, W, 3) what save_picture writes; its first TITLE rows are the title."""
    photos, sizes = (as_colour(a), as_colour(b)), [features.image_size for features in found.features]
    given = [(photo.shape[1], photo.shape[0]) for photo, _ in photos]
    for side, size, wanted in zip("AB", given, sizes, strict=True):
        if size != wanted:
            problem = "both photos are swapped" if given == sizes[::-1] else "it is another photo"
            raise ArgumentError(
                f"photo {side} has {size[0]} x {size[1]} pixels, the matched one {wanted[0]} x {wanted[1]}: {problem}"
            )
    inliers = None if found.verification is None else found.inliers
    shown_a, shown_b = (turned(photo, turn) for photo, turn in photos)
    points_a, points_b = (
        turned_points(ends, turn, size) for ends, (_, turn), size in zip(found.points, photos, sizes, strict=True)
    )
    return draw_matches(shown_a, shown_b, points_a, points_b, inliers, title)


def _resized(image: np.ndarray, scale: float) -> np.ndarray:
    """(h, w, 3) of an image at another scale."""
    cv2 = need_opencv()
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    return np.repeat(resized[..., None], 3, 2) if resized.ndim == 2 else resized[..., :3]


def _with_lines(picture: np.ndarray, segments: np.ndarray, inliers: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """The picture under (M, 2, 2) lines; ends of inliers are dots."""
    cv2 = need_opencv()
    wrong, right = (
        found[np.linspace(0, len(found) - 1, min(len(found), MAX_LINES)).astype(int)]
        for found in (np.flatnonzero(~inliers), np.flatnonzero(inliers))
    )
    places = np.round(segments * 2**FINE).astype(np.int32)
    steps = (255 * (0.08 + 0.84 * np.clip(colours[right], 0, 1))).astype(np.uint8)
    turbo = cv2.applyColorMap(np.arange(256, dtype=np.uint8), cv2.COLORMAP_TURBO).reshape(-1, 3)[:, ::-1]
    paint = turbo[steps].tolist()
    for index, colour, share in ((wrong, [WRONG] * len(wrong), 0.35), (right, paint, 0.6)):
        above = picture.copy()
        for (start, end), shade in zip(places[index].tolist(), colour, strict=True):
            cv2.line(above, start, end, shade, 1, cv2.LINE_AA, FINE)
        picture = cv2.addWeighted(above, share, picture, 1 - share, 0)
    for line, shade in zip(places[right].tolist(), paint, strict=True):
        for end in line:
            cv2.circle(picture, end, round(1.6 * 2**FINE), shade, cv2.FILLED, cv2.LINE_AA, FINE)
    return picture
