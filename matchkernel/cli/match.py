"""matchkernel match"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from matchkernel.cli.console import say, user_errors
from matchkernel.cli.options import Device, Untrained
from matchkernel.errors import ArgumentError
from matchkernel.photos.describers import open_describer
from matchkernel.photos.pipeline import MatchSettings, match_images, save_json
from matchkernel.plots.matches import save_picture
from matchkernel.storage.files import check_output


class Geometry(StrEnum):
    """The model that matches are verified with."""

    homography = "homography"
    fundamental = "fundamental"
    none = "none"


Model = Annotated[str, typer.Option(help="name of trained weights, a .safetensors file, sift or rootsift")]
Keypoints = Annotated[
    int, typer.Option(min=0, help="maximum number of keypoints per image, strongest first; 0 for all")
]
Contrast = Annotated[float, typer.Option(help="contrast threshold of the detector")]
Edge = Annotated[float, typer.Option(help="edge threshold of the detector")]
Upright = Annotated[bool, typer.Option("--upright", help="ignore keypoint orientation (upright)")]
Magnification = Annotated[float, typer.Option(help="half the side of a region / sigma of its keypoint")]

DEFAULT = MatchSettings()


def match(
    a: Annotated[Path, typer.Argument(metavar="A", help="image")],
    b: Annotated[Path, typer.Argument(metavar="B", help="another image")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="PNG file to draw the matches to")] = None,
    json_: Annotated[
        Path | None, typer.Option("--json", help="JSON file to write keypoints, matches and model to")
    ] = None,
    model: Model = "dual",
    untrained: Untrained = False,
    keypoints: Keypoints = DEFAULT.keypoints,
    geometry: Annotated[Geometry, typer.Option(help="model to verify matches with")] = Geometry.homography,
    pixels: Annotated[float, typer.Option(help="maximum error of an inlier, in pixels")] = DEFAULT.pixels,
    ratio: Annotated[float | None, typer.Option(help="maximum ratio of nearest to second-nearest distance")] = None,
    mutual: Annotated[bool, typer.Option(help="keep only pairs that are each other's nearest")] = True,
    threshold: Annotated[
        str, typer.Option(help="maximum distance of a match: calibrated, none, or a number")
    ] = "calibrated",
    contrast: Contrast = DEFAULT.contrast,
    edge: Edge = DEFAULT.edge,
    upright: Upright = False,
    magnification: Magnification = DEFAULT.magnification,
    device: Device = "auto",
) -> None:
    """Match two images: detect, describe, match, verify; write a picture and JSON."""
    with user_errors():
        check_targets(a, b, out, json_)
        settings = MatchSettings(
            keypoints,
            contrast,
            edge,
            upright,
            magnification,
            mutual,
            ratio,
            _distance(threshold),
            geometry.value,
            pixels,
        )
        describer = open_describer(model, untrained=untrained, device=device)
        found = match_images(a, b, describer, settings)
        if json_:
            save_json(found, json_)
        if out:
            save_picture(found, a, b, out)
        say(found.one_line())


def check_targets(a: Path, b: Path, out: Path | None, json_: Path | None) -> None:
    """Before any work, refuse outputs that cannot be written or would replace an image."""
    if out:
        check_output(out, a, b, suffixes=(".png",))
    if json_:
        check_output(json_, a, b)
    if out and json_ and out.resolve() == json_.resolve():
        raise ArgumentError(f"{out}: the picture and the JSON cannot be the same file")


def _distance(text: str) -> Any:
    """The number in a string; MatchSettings refuses strings it does not know."""
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text
