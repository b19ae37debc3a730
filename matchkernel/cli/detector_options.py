"""The detector's settings as options of the verbs that look for keypoints."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from matchkernel.cli.console import user_errors
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector

Verb = Callable[..., None]
OF_DOG = ("contrast", "edge")  # fields that Key.Net does not use


def detector_options(default: Detector | None = None) -> Callable[[Verb], Verb]:
    """Replace a verb's argument `detector` with one option for each field of Detector that has a help text."""
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
            with user_errors():
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


def _check_used(detector: Detector, usual: Detector) -> None:
    given = [f"--{name}" for name in OF_DOG if getattr(detector, name) != getattr(usual, name)]
    if detector.keynet is not None and given:
        raise ArgumentError(f"{' and '.join(given)} cannot be combined with --keynet, which replaces DoG")
