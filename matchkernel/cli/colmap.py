"""matchkernel colmap"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say, user_errors
from matchkernel.cli.detector_options import detector_options
from matchkernel.cli.options import Device, Engine, Json, MatchFilter, PhotoModel, Untrained
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.filters import FOR_A_SCENE, parse_filter


@detector_options(COLMAP_LIKE)
def colmap(
    *,
    images: Annotated[Path, typer.Argument(help="folder of images of one scene")],
    out: Annotated[Path, typer.Option("--out", "-o", help="workspace to create; run the command again to resume")],
    model: PhotoModel = "light-wide",
    untrained: Untrained = False,
    detector: Detector,
    keep: MatchFilter = str(FOR_A_SCENE),
    overlap: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="match each image with this many following ones in name order (default: all; 10 above 120 images)",
        ),
    ] = None,
    single_camera: Annotated[bool, typer.Option("--single-camera", help="all images were taken by one camera")] = False,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Reconstruct a scene with COLMAP's importers, verification and mapper from our features and matches."""
    from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
    from matchkernel.photos.describers import open_describer

    with user_errors():
        settings = ReconstructSettings(detector, parse_filter(keep), overlap, single_camera)
        describer = open_describer(model, untrained=untrained, device=device, engine=engine)
        with progress_bar("reconstructing") as progress:
            found = reconstruct(images, out, describer, settings, say=say, progress=progress)
        if as_json:
            print(json.dumps(dataclasses.asdict(found)))
        counts = f"{found.registered} of {found.images} images, {found.points:,} points"
        counts += f" seen in {found.track_length:.2f} images on average"
        say(f"{counts}, mean error {found.error:.3f} px ({describer.label}) -> {out}")
