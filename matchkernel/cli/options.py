"""Options that several verbs share."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from matchkernel.cli.console import user_errors
from matchkernel.geometry.detect import Detector

Model = Annotated[str, typer.Option(help="name of trained weights, or a .safetensors file")]
PhotoModel = Annotated[str, typer.Option(help="name of trained weights, a .safetensors file, sift or rootsift")]
Untrained = Annotated[
    bool, typer.Option("--untrained", help="take --model as the name of a descriptor, with random weights")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto")]
Seed = Annotated[int, typer.Option(min=0, help="seed of everything random")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, overrides the file; may be given several times")
]
Picture = Annotated[Path, typer.Option("--out", "-o", help="PNG file to write")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]

Verb = Callable[..., None]


def detector_options(default: Detector | None = None) -> Callable[[Verb], Verb]:
    """Replace a verb's argument `detector` by one option for each field of Detector that has a help text."""
    fields = [field for field in dataclasses.fields(Detector) if "help" in field.metadata]
    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(
            field.name,
            kind,
            default=getattr(default or Detector(), field.name),
            annotation=Annotated[field.type, typer.Option(f"--{field.name}", help=field.metadata["help"])],
        )
        for field in fields
    ]

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def run(**values: Any) -> None:
            with user_errors():
                detector = Detector(**{field.name: values.pop(field.name) for field in fields})
            verb(detector=detector, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb).parameters.values():
            parameters += options if parameter.name == "detector" else [parameter.replace(kind=kind)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate
