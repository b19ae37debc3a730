"""matchkernel demo: a stereo pair, and its left image with a rotated, smaller copy; the truth of both is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from matchkernel.cli.console import plain_table, say, stdout, user_errors
from matchkernel.errors import FileError
from matchkernel.model.card import available
from matchkernel.photos.describers import Describer, open_describer
from matchkernel.photos.pipeline import ImageMatches, MatchSettings, match_images
from matchkernel.photos.verify import transfer_errors
from matchkernel.plots.matches import save_picture
from matchkernel.storage.extras import need, need_opencv

DEGREES, SCALE = 30.0, 0.7  # of the copy
PIXELS = 3.0  # a match this near to the truth is right
PREFERRED = ("dual", "light")  # weights to show, the first that came with the package


@dataclass(frozen=True)
class DemoRow:
    """One pair matched by one descriptor.

    Attributes:
        pair: "stereo" or "turned copy".
        model: name of the descriptor.
        matches: how many.
        inliers: how many agree on one geometry.
        known: matches whose truth is known.
        right: of these, within 3 px of it.
        picture: the PNG written.
    """

    pair: str
    model: str
    matches: int
    inliers: int
    known: int
    right: int
    picture: Path

    @property
    def share(self) -> float:
        """Of the matches whose truth is known, the share within 3 px of it."""
        return self.right / self.known if self.known else math.nan


def demo(out: Annotated[Path, typer.Option("--out", "-o", help="folder for the pictures")] = Path("out/demo")) -> None:
    """Match a stereo pair and a rotated, smaller copy, for which the truth is known, and draw the matches."""
    with user_errors():
        rows = run_demo(out, say=say)
        stdout.print(results_table(rows))
        for row in rows:
            say(f"-> {row.picture}")


def results_table(rows: list[DemoRow]) -> Table:
    """How many matches are right, then their share: of few matches a larger share may be right, and still be fewer."""
    numbers = ("right matches", "share", "truth known", "matches", "inliers")
    table = plain_table("pair", "descriptor", *numbers, numbers=numbers)
    for row in rows:
        right, *others = (f"{count:,}" for count in (row.right, row.known, row.matches, row.inliers))
        table.add_row(row.pair, row.model, right, f"{100 * row.share:.1f} %", *others)
    table.caption = f"right: within {PIXELS:g} px of the truth; share: of the matches whose truth is known"
    table.caption_justify = "left"
    return table


def run_demo(out: str | Path, say: Callable[[str], object] = lambda line: None) -> list[DemoRow]:
    """Match the Middlebury motorcycle pair in scikit-image's wheel, and its left image with a turned, smaller copy.

    Args:
        out: folder for the pictures; made if it is not there.
        say: told what is shown where no trained weights are in the package.
    """
    left, right, disparity = load_motorcycle()
    copy, H = turned_copy(left)
    pairs: dict[str, tuple[Any, ...]] = {
        "stereo": (right, "fundamental", lambda a, b: stereo_errors(a, b, disparity)),
        "turned copy": (copy, "homography", lambda a, b: transfer_errors(H, a, b)),
    }
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out}: cannot be made ({error.strerror})") from None
    rows, describers = [], (_shown(say), open_describer("rootsift"))
    for pair, (other, geometry, errors) in pairs.items():
        for describer in describers:
            found = match_images(left, other, describer, MatchSettings(geometry=geometry))
            picture = out / f"{pair} {describer.name}.png".replace(", ", "-").replace(" ", "-")
            save_picture(found, left, other, picture, f"{pair}, {describer.name}")
            rows.append(_row(pair, found, errors(*found.points), picture))
    return rows


def load_motorcycle() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(H, W, 3) left and right image, (H, W) disparity of the left, not finite where unknown. Nothing is fetched."""
    left, right, disparity = need("skimage.data", "demo", "the demo").stereo_motorcycle()
    return left, right, disparity


def turned_copy(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The image turned by 30 degrees and reduced to 0.7, on black; (3, 3) homography from the image to the copy."""
    cv2 = need_opencv()
    height, width = image.shape[:2]
    turn = SCALE * np.array(
        [
            [math.cos(math.radians(DEGREES)), -math.sin(math.radians(DEGREES))],
            [math.sin(math.radians(DEGREES)), math.cos(math.radians(DEGREES))],
        ]
    )
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]) @ turn.T
    size = np.ceil(corners.max(0) - corners.min(0)).astype(int) + 1
    matrix = np.column_stack([turn, -corners.min(0)])
    # Blurred by what a camera would blur, so that the smaller copy has no aliasing.
    sharpness = 0.5 * math.sqrt(1 / SCALE**2 - 1)
    copy = cv2.warpAffine(cv2.GaussianBlur(image, (0, 0), sharpness), matrix, size.tolist(), flags=cv2.INTER_LINEAR)
    return copy, np.vstack([matrix, [0, 0, 1]])


def stereo_errors(points_a: np.ndarray, points_b: np.ndarray, disparity: np.ndarray) -> np.ndarray:
    """(M,) distance in the right image from the truth, x - disparity and the same y; NaN where it is unknown."""
    height, width = disparity.shape
    column, row = np.round(points_a).astype(int).T
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    shift = np.full(len(points_a), np.nan)
    shift[inside] = disparity[row[inside], column[inside]]
    shift[~np.isfinite(shift)] = np.nan
    return np.linalg.norm(points_a - np.column_stack([shift, np.zeros(len(shift))]) - points_b, axis=1)


def _row(pair: str, found: ImageMatches, errors: np.ndarray, picture: Path) -> DemoRow:
    known, right = int((~np.isnan(errors)).sum()), int((errors <= PIXELS).sum())
    return DemoRow(pair, found.features[0].model, len(found.matches), int(found.inliers.sum()), known, right, picture)


def _shown(say: Callable[[str], object]) -> Describer:
    """The descriptor to show: trained where weights are there, else untrained, and that is said."""
    names = available()
    name = next((name for name in (*PREFERRED, *names) if name in names), None)
    if name is not None:
        return open_describer(name)
    say("no trained weights are in this version: shown is an untrained network (cartesian, random weights)")
    return open_describer("cartesian", untrained=True)
