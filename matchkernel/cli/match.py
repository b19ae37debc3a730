"""matchkernel match"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import say, user_errors
from matchkernel.cli.detector_options import detector_options
from matchkernel.cli.options import Device, Json, MatchFilter, PhotoModel, Untrained, weight_files
from matchkernel.geometry.detect import Detector
from matchkernel.photos.filters import FOR_A_PAIR, parse_filter
from matchkernel.photos.verify import INLIER_PIXELS


class Geometry(StrEnum):
    """The model that matches are verified with."""

    auto = "auto"
    homography = "homography"
    fundamental = "fundamental"
    none = "none"


@detector_options()
def match(
    *,
    a: Annotated[Path, typer.Argument(metavar="A", help="image")],
    b: Annotated[Path, typer.Argument(metavar="B", help="another image")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="PNG file to draw the matches to")] = None,
    model: PhotoModel = "dual",
    untrained: Untrained = False,
    detector: Detector,
    geometry: Annotated[Geometry, typer.Option(help="model to verify matches with; auto tries both")] = Geometry.auto,
    pixels: Annotated[float, typer.Option(help="maximum error of an inlier, in pixels")] = INLIER_PIXELS,
    mutual: Annotated[bool, typer.Option(help="keep only mutual nearest neighbours")] = True,
    keep: MatchFilter = str(FOR_A_PAIR),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Match two images: detect, describe, match, verify; draw the matches or print them as JSON."""
    from matchkernel.photos.describers import open_describer
    from matchkernel.photos.pipeline import MatchSettings, match_images
    from matchkernel.plots.matches import save_picture
    from matchkernel.storage.files import check_output

    with user_errors():
        if out:
            check_output(out, a, b, *weight_files(model), suffixes=(".png",))
        settings = MatchSettings(detector, mutual, parse_filter(keep), geometry.value, pixels)
        describer = open_describer(model, untrained=untrained, device=device)
        found = match_images(a, b, describer, settings)
        if out:
            save_picture(found, a, b, out)
        if as_json:
            print(json.dumps(found.to_json()))
        say(found.one_line())
