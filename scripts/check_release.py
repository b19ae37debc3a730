"""Does the wheel work for a stranger? Install it in an empty environment outside the clone, and run what README shows.

    python scripts/check_release.py dist/matchkernel-*.whl

The newest versions from the public package index, no extras, no pins: `pip install matchkernel`. Then
`matchkernel demo`, and the first Python block of README.md on the demo's photos.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

from public_index import public_environment

ROOT = Path(__file__).parents[1]


def first_python_block(page: str) -> str:
    """The code of a page that a reader tries first."""
    found = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit("README.md has no Python block")
    return found[1]


def dead_links(page: str) -> list[str]:
    """Links of a page that lead nowhere on a package index."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(((?!https?:|#)[^)\s]+)\)", prose)


def description(wheel: Path) -> str:
    """The page that a package index shows for a wheel."""
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return str(Parser().parsestr(file.read(name).decode()).get_payload())


def run(what: str, command: Sequence[str | Path], folder: Path) -> None:
    """Run a command in a folder, or stop with what it said."""
    print(f"{what} ...", flush=True)
    done = subprocess.run(
        command,
        cwd=folder,
        env=public_environment(),
        encoding="utf-8",
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()[-20:]), end="")
    if done.returncode:
        sys.exit(f"the wheel is not fit for release: {what} failed")


def main() -> None:
    """Check the wheel that the command line names."""
    wheel = Path(sys.argv[1]).resolve()
    if dead := dead_links(description(wheel)):
        sys.exit(f"the wheel is not fit for release: links that lead nowhere on a package index: {', '.join(dead)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = folder / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        run("an empty environment", [sys.executable, "-m", "venv", folder / "env"], folder)
        run("pip install", [programs / "python", "-m", "pip", "install", "--quiet", wheel], folder)
        run("pip check", [programs / "python", "-m", "pip", "check"], folder)
        run("matchkernel demo", [programs / "matchkernel", "demo", "-o", "out/demo"], folder)
        code = first_python_block((ROOT / "README.md").read_text(encoding="utf-8"))
        run("the first Python block of README.md", [programs / "python", "-c", code], folder)
    print(f"{wheel.name} is fit for release")


if __name__ == "__main__":
    main()
