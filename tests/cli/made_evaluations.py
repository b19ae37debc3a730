"""Command lines, and the names of the sets they are run on, for tests of evaluate."""

from typer.testing import CliRunner

from matchkernel.cli.app import app

SETS = ("one", "two", "three")


def run(*arguments):
    """What a command line gives."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    """The same of one that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result
