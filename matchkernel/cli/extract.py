"""matchkernel extract"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say, user_errors
from matchkernel.cli.match import DEFAULT, Contrast, Edge, Keypoints, Magnification, Model, Upright
from matchkernel.cli.options import Device, Untrained
from matchkernel.errors import FileError
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import Detector
from matchkernel.photos.folder import extract_images, find_images


def extract(
    images: Annotated[list[Path], typer.Argument(help="images and folders of images")],
    out: Annotated[Path, typer.Option("--out", "-o", help="features.h5 in hloc's layout, or a folder for .npz files")],
    model: Model = "dual",
    untrained: Untrained = False,
    keypoints: Keypoints = DEFAULT.keypoints,
    contrast: Contrast = DEFAULT.contrast,
    edge: Edge = DEFAULT.edge,
    upright: Upright = False,
    magnification: Magnification = DEFAULT.magnification,
    device: Device = "auto",
) -> None:
    """Extract features from images; run it again to resume."""
    with user_errors():
        detector = Detector(keypoints, contrast, edge, upright, magnification)
        describer = open_describer(model, untrained=untrained, device=device)
        found = find_images(images)
        with progress_bar("extracting features", len(found)) as progress:
            report = extract_images(found, out, describer, detector, say=say, progress=progress)
        done, kept, skipped = len(report.done), len(report.kept), len(report.skipped)
        if not done and not kept:
            raise FileError(f"{out}: nothing written: none of the {skipped} images could be read")
        say(
            f"{done} images done, {kept} already there, {skipped} skipped; {report.keypoints:,} keypoints "
            f"({describer.name}) -> {out}"
        )
