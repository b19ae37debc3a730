"""matchkernel demo: a stereo pair, and its left image with a rotated, smaller copy; both have known ground truth."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from matchkernel.cli.console import plain_table, say, show_table, user_errors
from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import extract
from matchkernel.photos.pipeline import ImageMatches, match_features
from matchkernel.photos.verify import transfer_errors
from matchkernel.plots.matches import save_picture
from matchkernel.runtime.onnx import ONNX
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import check_folder
from matchkernel.storage.images import write_png

DEGREES, SCALE = 30.0, 0.7  # of the copy
PIXELS = 3.0  # a match this close to the truth is correct
MODELS: dict[str, dict[str, Any]] = {"light-wide": {"engine": ONNX, "device": "cpu"}, "rootsift": {}}  # exact: float32


@dataclass(frozen=True)
class DemoRow:
    """One pair matched by one descriptor.

    Attributes:
        pair: "stereo" or "rotated copy".
        model: name of the descriptor.
        matches: number of matches.
        inliers: matches that agree on one geometry.
        known: matches for which the truth is known.
        correct: those of them within 3 px of the truth.
        picture: the PNG file written.
    """

    pair: str
    model: str
    matches: int
    inliers: int
    known: int
    correct: int
    picture: Path

    @property
    def share(self) -> float:
        """Share of correct matches among those for which the truth is known."""
        return self.correct / self.known if self.known else math.nan


def demo(out: Annotated[Path, typer.Option("--out", "-o", help="folder for the pictures")] = Path("out/demo")) -> None:
    """Match a stereo pair and a rotated, smaller copy, both with known ground truth, and draw the matches."""
    with user_errors():
        rows = run_demo(out)
        show_table(results_table(rows))
        for row in rows:
            say(f"-> {row.picture}")


def results_table(rows: list[DemoRow]) -> Table:
    """Show the number of correct matches before their share, as a larger share may mean fewer correct matches."""
    numbers = ("correct", "share", "truth known", "matches", "inliers")
    table = plain_table("pair", "descriptor", *numbers, numbers=numbers)
    for row in rows:
        correct, *others = (f"{count:,}" for count in (row.correct, row.known, row.matches, row.inliers))
        table.add_row(row.pair, row.model, correct, f"{100 * row.share:.1f} %", *others)
    table.caption = f"correct: within {PIXELS:g} px of the truth; share: of the matches for which the truth is known"
    table.caption_justify = "left"
    return table


def run_demo(out: str | Path) -> list[DemoRow]:
    """Match Middlebury's motorcycle pair, which comes with the package, and its left image with a rotated copy.

    Args:
        out: folder for the pictures and the two photos; made if it does not exist.
    """
    out = Path(out)
    check_folder(out)
    left, right, disparity = load_motorcycle()
    copy, H = rotated_copy(left)
    pairs: dict[str, tuple[Any, ...]] = {
        "stereo": (right, lambda a, b: stereo_errors(a, b, disparity)),
        "rotated copy": (copy, lambda a, b: transfer_errors(H, a, b)),
    }
    for name, photo in {"left.png": left, "right.png": right}.items():
        write_png(out / name, photo)
    rows, describers = [], [open_describer(name, **chosen) for name, chosen in MODELS.items()]
    features = [extract(left, describer) for describer in describers]
    for pair, (other, errors) in pairs.items():
        for describer, of_left in zip(describers, features, strict=True):
            found = match_features(of_left, extract(other, describer))
            picture = out / f"{pair} {describer.name}.png".replace(", ", "-").replace(" ", "-")
            save_picture(found, left, other, picture, f"{pair}, {describer.name}")
            rows.append(_row(pair, found, errors(*found.points), picture))
    return rows


def rotated_copy(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The image rotated by 30 degrees and scaled by 0.7, on black; (3, 3) homography from the image to the copy."""
    cv2 = need_opencv()
    height, width = image.shape[:2]
    rotation = SCALE * np.array(
        [
            [math.cos(math.radians(DEGREES)), -math.sin(math.radians(DEGREES))],
            [math.sin(math.radians(DEGREES)), math.cos(math.radians(DEGREES))],
        ]
    )
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]) @ rotation.T
    size = np.ceil(corners.max(0) - corners.min(0)).astype(int) + 1
    matrix = np.column_stack([rotation, -corners.min(0)])
    # Blurred as by a camera, so that the smaller copy has no aliasing.
    sharpness = 0.5 * math.sqrt(1 / SCALE**2 - 1)
    copy = cv2.warpAffine(cv2.GaussianBlur(image, (0, 0), sharpness), matrix, size.tolist(), flags=cv2.INTER_LINEAR)
    return copy, np.vstack([matrix, [0, 0, 1]])


def stereo_errors(points_a: np.ndarray, points_b: np.ndarray, disparity: np.ndarray) -> np.ndarray:
    """(M,) distance in the right image from the true position (x - disparity, y); NaN where it is unknown."""
    height, width = disparity.shape
    column, row = np.round(points_a).astype(int).T
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    shift = np.full(len(points_a), np.nan)
    shift[inside] = disparity[row[inside], column[inside]]
    shift[~np.isfinite(shift)] = np.nan
    return np.linalg.norm(points_a - np.column_stack([shift, np.zeros(len(shift))]) - points_b, axis=1)


def _row(pair: str, found: ImageMatches, errors: np.ndarray, picture: Path) -> DemoRow:
    known, correct = int((~np.isnan(errors)).sum()), int((errors <= PIXELS).sum())
    return DemoRow(pair, found.features[0].model, len(found.matches), int(found.inliers.sum()), known, correct, picture)
