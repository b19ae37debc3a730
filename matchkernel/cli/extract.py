"""matchkernel extract"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import counting_bar, stderr, user_errors
from matchkernel.cli.match import DEFAULT, Contrast, Device, Edge, Keypoints, Magnification, Model, Untrained, Upright
from matchkernel.errors import FileError
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import Detector
from matchkernel.photos.folder import extract_images, find_images


def extract(
    images: Annotated[list[Path], typer.Argument(help="images, and folders of images")],
    out: Annotated[Path, typer.Option("--out", "-o", help="features.h5 (hloc), or a folder for .npz files")],
    model: Model = "dual",
    untrained: Untrained = False,
    keypoints: Keypoints = DEFAULT.keypoints,
    contrast: Contrast = DEFAULT.contrast,
    edge: Edge = DEFAULT.edge,
    upright: Upright = False,
    magnification: Magnification = DEFAULT.magnification,
    device: Device = "auto",
) -> None:
    """Extract features of images; a stopped run goes on when started again."""
    with user_errors():
        detector = Detector(keypoints, contrast, edge, upright, magnification)
        describer = open_describer(model, untrained=untrained, device=device)
        found = find_images(images)
        with counting_bar("extracting features", len(found)) as progress:
            report = extract_images(
                found, out, describer, detector, say=lambda line: stderr.print(line, markup=False), progress=progress
            )
        done, kept, skipped = len(report.done), len(report.kept), len(report.skipped)
        if not done and not kept:
            raise FileError(f"{out}: nothing written, none of {skipped} images could be read")
        stderr.print(
            f"{done} images done, {kept} there before, {skipped} skipped; {report.keypoints:,} keypoints "
            f"({describer.name}) -> {out}",
            markup=False,
        )
