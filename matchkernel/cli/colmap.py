"""matchkernel colmap"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import counting_bar, stderr, user_errors
from matchkernel.cli.match import DEFAULT, Contrast, Device, Edge, Keypoints, Magnification, Model, Untrained, Upright
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import Detector
from matchkernel.photos.reconstruct import DETECTOR, Ratio, ReconstructSettings, reconstruct


def colmap(
    images: Annotated[Path, typer.Argument(help="folder of images of one scene")],
    out: Annotated[Path, typer.Option("--out", "-o", help="workspace to make; a stopped run goes on when run again")],
    model: Model = "dual",
    untrained: Untrained = False,
    keypoints: Keypoints = DETECTOR.keypoints,
    ratio: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="nearest / second nearest distance (0.85; sift 0.8); 1: no test"),
    ] = None,
    overlap: Annotated[int | None, typer.Option(min=1, help="match so many neighbours by name, not all pairs")] = None,
    contrast: Contrast = DETECTOR.contrast,
    edge: Edge = DEFAULT.edge,
    upright: Upright = False,
    magnification: Magnification = DEFAULT.magnification,
    single_camera: Annotated[bool, typer.Option(help="all images are of one camera")] = False,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
) -> None:
    """Reconstruct a scene: our features and matches, COLMAP's importers, verification and mapper."""
    with user_errors():
        detector = Detector(keypoints, contrast, edge, upright, magnification)
        chosen: Ratio = "calibrated" if ratio is None else None if ratio == 1 else ratio
        settings = ReconstructSettings(detector, chosen, overlap, single_camera)
        describer = open_describer(model, untrained=untrained, device=device)
        with counting_bar("reconstructing") as progress:
            found = reconstruct(
                images, out, describer, settings, say=lambda stage: stderr.print(stage, markup=False), progress=progress
            )
        if as_json:
            print(json.dumps(dataclasses.asdict(found)))
        counts = (
            f"{found.registered} of {found.images} images, {found.points:,} points in {found.track_length:.2f} each"
        )
        stderr.print(f"{counts}, error {found.error:.3f} px ({describer.name}) -> {out}", markup=False)
