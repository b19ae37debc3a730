"""Options that several verbs share."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matchkernel.cli.console import say
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector
from matchkernel.runtime.config import AUTO, ENGINES, PHOTO_MODEL, photo_model
from matchkernel.storage.settings import setting

if TYPE_CHECKING:
    from matchkernel.photos.extract import Describer
    from matchkernel.storage.pool import Workers

Verb = Callable[..., None]
NAMES = {"filter": ("--matcher", "--filter")}  # of options that are not called as their field
DOG_ONLY = ("contrast", "edge")  # fields of Detector that Key.Net does not use
DEVICES = "cpu, cuda or auto"
COMPUTES = f"what computes descriptors: {', '.join(ENGINES)}, or an .onnx file of the model"
UNTRAINED = "take --model as the name of a descriptor, with random weights"

Model = Annotated[str, typer.Option(help="name of trained weights, or a .safetensors file")]
Untrained = Annotated[bool, typer.Option("--untrained", help=UNTRAINED)]
Device = Annotated[str, typer.Option(help=DEVICES)]
Engine = Annotated[str, typer.Option(help=COMPUTES)]
Seed = Annotated[int, typer.Option(min=0, help="random seed")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, overrides a setting of the file; may be given several times"),
]
Picture = Annotated[Path, typer.Option("--out", "-o", help="PNG file to write")]
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
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """What describes the keypoints of photos."""

    model: str = setting(PHOTO_MODEL, about="name of trained weights, a .safetensors file, sift or rootsift")
    untrained: bool = setting(False, about=UNTRAINED)
    device: str = setting("auto", about=DEVICES)
    engine: str = setting(AUTO, about=COMPUTES)

    def __post_init__(self) -> None:
        from matchkernel.photos.extract import SIFTS

        given = ["--untrained"] * self.untrained + ["--engine"] * (self.engine != AUTO)
        if self.model in SIFTS and given:
            raise ArgumentError(f"{self.model} is not a network: leave out {' and '.join(given)}")

    def continuing(self, recorded: str, given: Sequence[str]) -> "ModelOptions":
        """The model that adds to features of this one."""
        return self if "model" in given else dataclasses.replace(self, model=photo_model(recorded))

    def open(self, *, later: bool = False) -> "Describer":
        """The describer; with `later`, only workers open its engine."""
        from matchkernel.photos.extract import open_describer

        return open_describer(self.model, untrained=self.untrained, device=self.device, engine=self.engine, later=later)


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """Where many images or pairs are computed."""

    on: str = setting(
        "local", about="where to compute: local; ray (this machine, or RAY_ADDRESS); ray://HOST:PORT or HOST:PORT"
    )
    workers: int | None = setting(
        None, about="number of processes (default: this one for up to 100 items or on a GPU, otherwise one per core)"
    )

    def open(self, items: int, device: str) -> "tuple[Workers | None, str]":
        """The workers (None for this process), and their name for JSON."""
        from matchkernel.collection.ray_pool import choose_workers
        from matchkernel.photos.extract import open_place

        has_gpu = self.on == "local" and device != "cpu" and open_place(device).startswith("cuda")
        workers = choose_workers(self.on, self.workers, items=items, has_gpu=has_gpu, say=say)
        return workers, workers.label if workers else "local"


def given_options(context: typer.Context) -> list[str]:
    """The options on the command line, even those that repeat the default, by the names of their arguments."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def weight_files(*models: str) -> list[Path]:
    """The models that are given as files or folders, which no output may replace; a model's name is none of these."""
    from matchkernel.runtime.hub import MODEL
    from matchkernel.runtime.weights import available

    files = [Path(model, part) for model in models for part in ("", MODEL) if not part or model not in available()]
    return [path for path in files if os.path.isfile(path)]  # noqa: PTH113 - False for a name too long


def speed(items: int, seconds: float, unit: str) -> dict[str, float]:
    """The elapsed time and the items per second, for JSON."""
    return {"elapsed": round(seconds, 3), f"{unit}_per_second": round(items / seconds, 3) if seconds > 0 else 0.0}


def option_names(settings: type) -> list[str]:
    """The fields of a dataclass that are options: those with a help text."""
    return [field.name for field in dataclasses.fields(settings) if field.metadata.get("help")]


def with_settings(verb: Verb) -> Verb:
    """Replace each argument that is a dataclass of settings with one option for each field that has a help text.

    The defaults of the options are those of the argument, if it has any, or of the dataclass.
    """
    usual: dict[str, Any] = {}
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    takes_context = "context" in inspect.signature(verb).parameters
    for parameter in inspect.signature(verb).parameters.values():
        if dataclasses.is_dataclass(parameter.annotation):
            settings: Any = parameter.annotation
            usual[parameter.name] = settings() if parameter.default is parameter.empty else parameter.default
            parameters += _options(usual[parameter.name])
        elif parameter.name != "context":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(verb)
    def run(*, context: typer.Context, **values: Any) -> None:
        for name, default in usual.items():
            chosen = {option: values.pop(option) for option in option_names(type(default))}
            values[name] = dataclasses.replace(default, **chosen)
            if isinstance(default, Detector):
                _check_used(values[name], given_options(context))
        verb(**values, **({"context": context} if takes_context else {}))

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options(settings: Any) -> list[inspect.Parameter]:
    """The options of a dataclass, with its values as defaults; values that are not plain are given as text."""
    found = []
    for field in dataclasses.fields(settings):
        if not field.metadata.get("help"):
            continue
        kind, default, flag = field.type, getattr(settings, field.name), f"--{field.name.replace('_', '-')}"
        if isinstance(default, tuple):
            kind, default = list[str], list(default)
        elif dataclasses.is_dataclass(default):
            kind, default = str, str(default)
        flags = NAMES.get(field.name, (f"{flag}/--no-{flag[2:]}" if default is True else flag,))
        option = typer.Option(*flags, help=field.metadata["help"], min=field.metadata["range"].low)
        annotation = Annotated[kind, option]  # type: ignore[valid-type]
        found.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return found


def _check_used(detector: Detector, given: Sequence[str]) -> None:
    """Refuse options that Key.Net would ignore, and a density where no photo is searched in a smaller copy."""
    ignored = [f"--{name}" for name in DOG_ONLY if name in given]
    if detector.keynet is not None and ignored:
        raise ArgumentError(f"{' and '.join(ignored)} cannot be combined with --keynet, which replaces DoG")
    if "density" in given and detector.density and not detector.copy_density:
        which = "the largest keypoints of DoG, up to a maximum"
        raise ArgumentError(
            f"--density is for {which}: it needs --choice largest, no --keynet, and --keypoints above 0"
        )
