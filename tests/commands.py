"""Running command lines in this process."""

from pathlib import Path

from typer.testing import CliRunner

from matchkernel.cli.app import app


def run(*arguments, answers=""):
    """The result of a command line, with what is typed at its questions."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answers)


def good(*arguments):
    """The result of a command line that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, f"{arguments}: {result.stderr}"
    return result


def refused(*arguments):
    """The error of a command line that is refused: exit code 2, one line on stderr, and no file has changed."""
    before = files()
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output or result.exception
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert files() == before
    return result.stderr


def files():
    """All files below the current folder, with their sizes and times."""
    found = [path for path in Path().rglob("*") if path.name != "__pycache__"]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found if not path.is_dir()}
