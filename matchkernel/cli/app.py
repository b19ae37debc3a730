"""The command line: its verbs, each imported when it is used, and the options before the verb."""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import matchkernel
from matchkernel.cli.console import INTERRUPTED, say, say_error, show_traceback, user_errors
from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.work import is_ending

# The first line of each verb's help; it is here so that `matchkernel --help` need not import all verbs.
VERBS = {
    "info": "List the descriptors and the trained weights, or show the contents of a weight file.",
    "params": "Count the parameters of the paper's Table 1 from their shapes, next to the paper's own numbers.",
    "describe": "Describe patches: one unit-length row per patch; zeros for constant or non-finite patches.",
    "extract": "Extract features from images; run it again to resume.",
    "pairs": "Choose pairs of images to match: the most similar by their descriptors, neighbours by name, or all.",
    "match": "Match two images: detect, describe, match, verify; draw the matches, list them, or print them as JSON.",
    "match-pairs": "Match many pairs of images whose features were extracted; run it again to resume.",
    "explore": "Explore matches, patches and similarity maps of two photos in a local page, or in one file.",
    "demo": "Match a stereo pair and a rotated, smaller copy, both with known ground truth, and draw the matches.",
    "colmap": "Reconstruct scenes from our features and matches with COLMAP, which verifies them and builds the model.",
    "export": "Export a descriptor to ONNX, (B, 1, N, N) patches to (B, D) unit rows, and check it against torch.",
    "reduce": "Shorten the descriptors of trained weights, as new weights, and measure the loss.",
    "train": "Train a descriptor; checkpoints, a log and the weights are written to one folder.",
    "train-matcher": "Train a matcher, which judges candidate matches by their context, on COLMAP's scenes.",
    "adapt": "Adapt trained weights to your own photos, and measure the gain on photos held out.",
    "report": "Gather results into one page of tables and charts.",
    "plot": "Draw pictures that explain the method.",
    "data": "Make, check and look at patch sets.",
    "evaluate": "Score a model, a baseline or descriptor files.",
}

WITH_TORCH = ("describe", "export", "reduce", "train", "train-matcher", "adapt", "evaluate")

UsageError: Any = typer.BadParameter.__base__  # Typer has no name of its own for errors in a command line


class Verbs(TyperGroup):
    """A group of verbs of which only the names and help texts are loaded until one of them is run."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **settings: Any) -> Any:  # type: ignore[override]
        """Run a command line; a mistake in it is reported in one line, like every other error."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **settings)
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            _check_none_empty(arguments)
            code = super().main(arguments, standalone_mode=False, **settings)
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # no mistake: the help, which was printed
                path = error.ctx.command_path if error.ctx else " ".join(["matchkernel", *arguments[:1]])
                say_error(f"{error.format_message()} (see {path} --help)")
            code = error.exit_code
        except typer.Abort:
            code = 1
        except ImportError as error:
            code = _report_import_error(error, arguments)
        except OSError as error:  # the help could not be printed
            say_error(str(error))
            code = 1
        sys.exit(code)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Replace the placeholder that is listed in the help with the verb itself."""
        name, entry, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name and entry else entry, rest


class Verb(TyperCommand):
    """A verb that refuses a second value of an option that takes one, of which only the last would count."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the arguments of the verb."""
        given: list[Any] = self.make_parser(ctx).parse_args(args=[*args])[2]
        for option in given:
            if given.count(option) > 1 and not (option.multiple or getattr(option, "is_flag", False)):
                raise UsageError(f"{option.opts[0]} takes one value, and was given {given.count(option)} times.", ctx)
        return super().parse_args(ctx, args)


def _report_import_error(error: ImportError, arguments: Sequence[str]) -> int:
    """Report a package that is missing or broken; an error in our own modules is raised again."""
    if is_ending():  # Ctrl-C during the import
        say("interrupted")
        return INTERRUPTED
    top = (error.name or "").partition(".")[0]
    try:
        if isinstance(error, MissingExtraError) or top in ("", "matchkernel"):
            raise error
        verb = next((text for text in arguments if not text.startswith("-")), "")
        need(top, "torch" if top == "torch" else CORE, f"matchkernel {verb}")
    except MissingExtraError as missing:
        say_error(str(missing))
        return 2
    raise error


def _check_none_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, perhaps a shell variable that is not set: as a path it is the current folder."""
    for before, text in pairwise(["matchkernel", *arguments]):
        if not text:
            raise UsageError(f"The argument after {before} is empty: a variable that is not set?")
        if text.startswith("--") and text.endswith("=") and text.count("=") == 1:
            raise UsageError(f"{text} is empty: a variable that is not set?")


@functools.cache
def load_verb(name: str) -> Any:
    """Import cli/<name>.py, which holds a function of that name, or a group of commands called `app`."""
    python_name = name.replace("-", "_")
    module = import_module(f"matchkernel.cli.{python_name}")
    if hasattr(module, "app"):
        verbs = module.app
    else:
        verbs = typer.Typer(add_completion=False)
        verbs.command(name)(getattr(module, python_name))
    for command in verbs.registered_commands:
        command.callback, command.cls = _reporting_errors(command.callback, name), Verb
    return get_command(verbs)


def _reporting_errors(verb: Callable[..., None], name: str) -> Callable[..., None]:
    """The verb; its errors, and a torch that is missing or broken, are reported in one line."""

    @functools.wraps(verb)
    def run(*values: Any, **options: Any) -> None:
        if name in WITH_TORCH:
            need("torch", "torch", f"matchkernel {name}")
        with user_errors():
            verb(*values, **options)

    return run


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"matchkernel {matchkernel.__version__}")
        raise typer.Exit


app = typer.Typer(cls=Verbs, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for _name, _help in VERBS.items():
    app.command(_name, help=_help)(lambda: None)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="show the version and exit")
    ] = False,
) -> None:
    """Local patch descriptors with explicit spatial encoding."""
    show_traceback.set(debug)
