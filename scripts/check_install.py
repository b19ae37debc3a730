"""Can strangers install this? Every extra, resolved from the public package index for every system and Python.

Only metadata is read. Each combination is resolved twice: with the pins of constraints.txt, and with the lowest
versions that pyproject.toml allows. A package without a wheel counts as missing, as most people cannot build it.
What can be installed together can be installed alone: all extras are resolved at once, and each one only where that
fails, or with --each. Exit status: 0 all can be installed, 1 some cannot, 2 it could not be checked.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

from public_index import find_uv, public_environment

ROOT = Path(__file__).parents[1]
SYSTEMS = {  # names of uv
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "Windows x86_64": "x86_64-pc-windows-msvc",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACOS = "14.0"  # onnxruntime has no wheels for older ones
VERSIONS = ("pins", "lowest")


class Case(NamedTuple):
    """One thing somebody may install; no extra is the core alone."""

    extras: tuple[str, ...]
    system: str
    python: str
    versions: str

    def __str__(self) -> str:
        name = f"matchkernel[{','.join(self.extras)}]" if self.extras else "matchkernel"
        return f"{name}, {self.system}, Python {self.python}, {self.versions}"


class UncheckedError(Exception):
    """Neither yes nor no: no uv, no network."""


class Source(NamedTuple):
    """What is resolved, and from where."""

    project: Path
    pins: Path
    wheels: Path | None = None  # a folder instead of the public index

    def extras(self) -> list[str]:
        """The extras of the project."""
        return [*tomllib.loads(self.project.read_text(encoding="utf-8"))["project"].get("optional-dependencies", {})]

    def conflict(self, case: Case) -> str:
        """Why a case cannot be installed, in one line; empty if it can."""
        uv = find_uv()
        if uv is None:
            raise UncheckedError("uv is not installed: pip install uv")
        command = [uv, "pip", "compile", "--no-config", "--quiet", "--only-binary", ":all:", "--python", sys.executable]
        command += ["--python-version", case.python, "--python-platform", SYSTEMS[case.system], str(self.project)]
        command += [part for extra in case.extras for part in ("--extra", extra)]
        command += ["-c", str(self.pins)] if case.versions == "pins" else ["--resolution", "lowest-direct"]
        command += ["--no-index", "--find-links", str(self.wheels)] if self.wheels else []
        environment = {**public_environment(), "MACOSX_DEPLOYMENT_TARGET": MACOS}
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
        if done.returncode == 0:
            return ""
        said = re.sub(r"\{[^}]*\}", "", " ".join(done.stderr.partition("hint:")[0].split()))  # without markers
        _, is_conflict, reason = said.partition("No solution found when resolving dependencies")
        if not is_conflict:
            raise UncheckedError(said[:300])
        return reason.strip(": ╰─▶×").removeprefix("cause: ")


def conflicts(source: Source, place: tuple[str, str, str], each: bool) -> dict[Case, str]:
    """The cases that cannot be installed in one place (system, Python, versions), and why."""
    together = Case(tuple(source.extras()), *place)
    reason = "" if each else source.conflict(together)
    if not (each or reason):
        return {}
    cases = [Case((), *place), *(Case((extra,), *place) for extra in together.extras)]
    found = {case: why for case in cases if (why := source.conflict(case))}
    return found or ({together: reason} if reason else {})


def table(found: dict[Case, str], extras: Sequence[str]) -> str:
    """One row for each extra, one column for each system; what fails is named."""
    rows = [["", *SYSTEMS]]
    alone = {"(core)": (), **{extra: (extra,) for extra in extras}}
    for name, chosen in {**alone, "(all at once)": tuple(extras)}.items():
        row = [name]
        for system in SYSTEMS:
            failing = [f"{p} {v}" for p, v in product(PYTHONS, VERSIONS) if Case(chosen, system, p, v) in found]
            row.append("FAILS " + ", ".join(failing) if failing else "ok")
        if name in alone or row[1:] != ["ok"] * len(SYSTEMS):
            rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--project", type=Path, default=ROOT / "pyproject.toml", help="a pyproject.toml")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt", help="the pins")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to take instead of the public index")
    parser.add_argument(
        "--each", action="store_true", help="resolve each extra even where all of them can be installed together"
    )
    options = parser.parse_args(arguments)
    source = Source(options.project, options.constraints, options.wheels)
    places = [*product(SYSTEMS, PYTHONS, VERSIONS)]
    try:
        with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as threads:
            parts = [*threads.map(lambda place: conflicts(source, place, options.each), places)]
    except UncheckedError as error:
        print(f"could not be checked: {error}", file=sys.stderr)
        return 2
    found = {case: reason for part in parts for case, reason in part.items()}
    for case, reason in found.items():
        print(f"{case}: {reason}")
    print(table(found, source.extras()))
    print(f"Python {', '.join(PYTHONS)}, with the pins and with the lowest versions: {len(found)} cannot be installed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
