"""matchkernel match"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from matchkernel.cli.console import stderr, user_errors
from matchkernel.errors import ArgumentError
from matchkernel.photos.describers import open_describer
from matchkernel.photos.pipeline import MatchSettings, match_images, save_json
from matchkernel.plots.matches import save_picture
from matchkernel.storage.files import check_output, check_picture


class Geometry(StrEnum):
    """What matches are verified by."""

    homography = "homography"
    fundamental = "fundamental"
    none = "none"


Model = Annotated[str, typer.Option(help="name of trained weights, a .safetensors file, sift or rootsift")]
Untrained = Annotated[bool, typer.Option(help="take --model as a descriptor's name, with random weights")]
Keypoints = Annotated[int, typer.Option(min=0, help="the strongest so many of an image; 0 for all")]
Contrast = Annotated[float, typer.Option(help="threshold of the detector on contrast")]
Edge = Annotated[float, typer.Option(help="threshold of the detector on edges")]
Upright = Annotated[bool, typer.Option(help="do not turn regions with the gradient")]
Magnification = Annotated[float, typer.Option(help="half side of a region / sigma of the keypoint")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto")]

DEFAULT = MatchSettings()


def match(
    a: Annotated[Path, typer.Argument(metavar="A", help="an image")],
    b: Annotated[Path, typer.Argument(metavar="B", help="another")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="PNG of the matches to write")] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="JSON of keypoints, matches and model to write")] = None,
    model: Model = "dual",
    untrained: Untrained = False,
    keypoints: Keypoints = DEFAULT.keypoints,
    geometry: Annotated[Geometry, typer.Option(help="what matches are verified by")] = Geometry.homography,
    pixels: Annotated[float, typer.Option(help="largest error of an inlier")] = DEFAULT.pixels,
    ratio: Annotated[float | None, typer.Option(help="of distances to the nearest and the next, at most")] = None,
    mutual: Annotated[bool, typer.Option(help="keep pairs that are each other's nearest only")] = True,
    threshold: Annotated[
        str, typer.Option(help="largest distance of a match: calibrated, none, or a number")
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
        stderr.print(found.one_line(), markup=False)


def check_targets(a: Path, b: Path, out: Path | None, json_: Path | None) -> None:
    """Refuse what could not be written, or would take the place of an image, before any work."""
    if out:
        check_picture(out, a, b)
    if json_:
        check_output(json_, a, b)
    if out and json_ and out.resolve() == json_.resolve():
        raise ArgumentError(f"{out}: the picture and the JSON need a file each")


def _distance(word: str) -> Any:
    """A number where it is one; MatchSettings refuses other words."""
    if word == "none":
        return None
    try:
        return float(word)
    except ValueError:
        return word
