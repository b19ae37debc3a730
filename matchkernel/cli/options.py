"""Options that several verbs share."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from matchkernel.errors import ArgumentError
from matchkernel.runtime.onnx import AUTO, ENGINES

Model = Annotated[str, typer.Option(help="name of trained weights, or a .safetensors file")]
PhotoModel = Annotated[str, typer.Option(help="name of trained weights, a .safetensors file, sift or rootsift")]
Untrained = Annotated[
    bool, typer.Option("--untrained", help="take --model as the name of a descriptor, with random weights")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto")]
Engine = Annotated[
    str, typer.Option(help=f"what computes descriptors: {', '.join(ENGINES)}, or an .onnx file of the model")
]
Seed = Annotated[int, typer.Option(min=0, help="random seed")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, overrides a setting of the file; may be given several times"),
]
Picture = Annotated[Path, typer.Option("--out", "-o", help="PNG file to write")]
MatchFilter = Annotated[
    str,
    typer.Option(
        "--filter",
        help="matches to keep: none (all), ratio, distance, either, both, adalam; with limits other than the model's: "
        "ratio:0.85, distance:0.8, either:0.85,0.8",
    ),
]
InlierPixels = Annotated[float, typer.Option(help="maximum error of an inlier, in pixels")]
Guided = Annotated[
    bool, typer.Option("--guided", help="with the geometry found, match again among keypoints that agree with it")
]
Mutual = Annotated[bool, typer.Option(help="keep only mutual nearest neighbours")]
Profile = Annotated[bool, typer.Option("--profile", help="also print the seconds of each stage")]
Only = Annotated[
    list[str] | None,
    typer.Option(help="take only photos whose name matches this pattern, such as '*.jpg'; may be given several times"),
]
Listed = Annotated[
    Path | None, typer.Option("--list", help="take only the photos in this file, one name per line, as in the folder")
]
Masks = Annotated[
    Path | None, typer.Option(help="folder of masks, NAME.png for the photo NAME: no keypoints where a mask is 0")
]
Stored = Annotated[
    Literal["float32", "float16", "bytes"], typer.Option("--store", help="how descriptors are stored in features files")
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def check_model_options(model: str, untrained: bool, engine: str) -> None:
    """Refuse options of networks for sift and rootsift, which would ignore them."""
    from matchkernel.photos.describers import SIFTS

    given = ["--untrained"] * untrained + ["--engine"] * (engine != AUTO)
    if model in SIFTS and given:
        raise ArgumentError(f"{model} is not a network: leave out {' and '.join(given)}")


def weight_files(*models: str) -> list[Path]:
    """The models that are given as files, which no output may replace; a folder may have the name of a model."""
    return [Path(model) for model in models if os.path.isfile(model)]  # noqa: PTH113 - False for a name too long
