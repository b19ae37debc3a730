"""Running command lines in this process."""

from typer.testing import CliRunner

from matchkernel.cli.app import app

SETS = ("one", "two", "three")  # patch sets in the folder `place`


def run(*arguments):
    """The result of a command line."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    """The result of one that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result
