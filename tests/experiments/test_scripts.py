"""Commands of the experiments and benchmarks start. Finished studies are checked by `make check-results`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = [
    path
    for folder in ("experiments", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "ArgumentParser" in path.read_text(encoding="utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_command_starts_from_any_folder(path, tmp_path):
    done = subprocess.run([sys.executable, path, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
    assert not list(tmp_path.iterdir())
