"""Options that several verbs share."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matchkernel.cli.console import say
from matchkernel.errors import ArgumentError
from matchkernel.runtime.config import AUTO, ENGINES

if TYPE_CHECKING:
    from matchkernel.geometry.detect import Detector
    from matchkernel.storage.pool import Workers

Verb = Callable[..., None]
DOG_ONLY = ("contrast", "edge")  # fields of Detector that Key.Net does not use

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
On = Annotated[
    str,
    typer.Option(
        "--on", help="where to compute: local; ray (this machine, or RAY_ADDRESS); ray://HOST:PORT or HOST:PORT"
    ),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="number of processes (default: this one for up to 100 items or on a GPU, otherwise one per core)",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


class Geometry(StrEnum):
    """The model that matches are verified with."""

    auto = "auto"
    homography = "homography"
    fundamental = "fundamental"
    none = "none"


def check_model_options(model: str, untrained: bool, engine: str) -> None:
    """Refuse options of networks for sift and rootsift, which would ignore them."""
    from matchkernel.photos.extract import SIFTS

    given = ["--untrained"] * untrained + ["--engine"] * (engine != AUTO)
    if model in SIFTS and given:
        raise ArgumentError(f"{model} is not a network: leave out {' and '.join(given)}")


def weight_files(*models: str) -> list[Path]:
    """The models that are given as files, which no output may replace; a folder may have the name of a model."""
    return [Path(model) for model in models if os.path.isfile(model)]  # noqa: PTH113 - False for a name too long


def open_workers(on: str, count: int | None, items: int, device: str) -> "tuple[Workers | None, str]":
    """The workers that these options ask for (None for this process), and their name for JSON."""
    from matchkernel.collection.ray_pool import choose_workers
    from matchkernel.photos.extract import open_place

    has_gpu = on == "local" and device != "cpu" and open_place(device).startswith("cuda")
    workers = choose_workers(on, count, items=items, has_gpu=has_gpu, say=say)
    return workers, workers.label if workers else "local"


def speed(items: int, seconds: float, unit: str) -> dict[str, float]:
    """The elapsed time and the items per second, for JSON."""
    return {"elapsed": round(seconds, 3), f"{unit}_per_second": round(items / seconds, 3) if seconds > 0 else 0.0}


def detector_options(default: "Detector | None" = None) -> Callable[[Verb], Verb]:
    """Replace a verb's argument `detector` with one option for each field of Detector that has a help text."""
    from matchkernel.geometry.detect import Detector

    fields = [field for field in dataclasses.fields(Detector) if field.metadata.get("help")]
    kind, usual = inspect.Parameter.KEYWORD_ONLY, default or Detector()
    options = [
        inspect.Parameter(
            field.name,
            kind,
            default=getattr(usual, field.name),
            annotation=Annotated[field.type, typer.Option(f"--{field.name}", help=field.metadata["help"])],
        )
        for field in fields
    ]

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def run(**values: Any) -> None:
            detector = Detector(**{field.name: values.pop(field.name) for field in fields})
            _check_used(detector, usual)
            verb(detector=detector, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb).parameters.values():
            parameters += options if parameter.name == "detector" else [parameter.replace(kind=kind)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _check_used(detector: "Detector", usual: "Detector") -> None:
    """Refuse options of DoG beside Key.Net, which would ignore them."""
    ignored = [f"--{name}" for name in DOG_ONLY if getattr(detector, name) != getattr(usual, name)]
    if detector.keynet is not None and ignored:
        raise ArgumentError(f"{' and '.join(ignored)} cannot be combined with --keynet, which replaces DoG")
