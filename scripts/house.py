"""Count the house: lines by room, files and imports, options of the command line, settings of training.

python scripts/house.py [CHECKOUT]
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines(place: Path, *suffixes: str) -> int:
    """Lines of all files below a folder that end so."""
    files = [file for file in sorted(place.rglob("*")) if file.suffix in suffixes]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def imports(package: Path) -> tuple[int, int]:
    """Modules that are not empty, and imports from one to another."""
    files = {file: file.read_text(encoding="utf-8") for file in package.rglob("*.py")}
    names = {".".join(file.relative_to(package.parent).with_suffix("").parts): file for file in files if files[file]}
    arrows = set()
    for name, file in names.items():
        for node in ast.walk(ast.parse(files[file])):
            if isinstance(node, ast.ImportFrom) and node.module:
                found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                arrows |= {(name, other) for other in found if other in names and other != name}
    return len(names), len(arrows)


def count_options(checkout: Path) -> int:
    """Options and arguments of all commands, --help apart."""
    code = "from matchkernel.cli.app import VERBS, load_verb; import typer\n"
    code += "def count(c): return len(c.params) + sum(map(count, getattr(c, 'commands', {}).values()))\n"
    code += "print(sum(count(load_verb(name)) for name in VERBS))"
    place = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, "-c", code], env=place, capture_output=True, text=True, check=True)
    return int(done.stdout)


def count_settings(checkout: Path) -> int:
    """Settings of a training, in all its sections: annotated fields of the classes in its files."""
    found = 0
    for name in ("training/config.py", "training/augment.py", "training/loss.py", "training/optimizer.py"):
        for node in ast.parse((checkout / "matchkernel" / name).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and any(isinstance(part, ast.AnnAssign) for part in node.body):
                found += sum(isinstance(part, ast.AnnAssign) for part in node.body)
    return found


def main(checkout: Path) -> None:
    """Print the counts of a checkout."""
    package = checkout / "matchkernel"
    for room in sorted(place for place in package.iterdir() if place.is_dir() and any(place.rglob("*.py"))):
        page = lines(room, ".js", ".css", ".html")
        print(f"{room.name:12} {lines(room, '.py'):6,}" + (f"  and {page:,} of page" if page else ""))
    for place in ("matchkernel", "tests", "experiments", "benchmarks", "scripts"):
        print(f"{place:12} {lines(checkout / place, '.py'):6,}")
    words = [
        path for path in [checkout / "README.md", *(checkout / "docs").rglob("*.md")] if path.name != "commands.md"
    ]
    print(f"{'words':12} {sum(len(path.read_text(encoding='utf-8').split()) for path in words):6,} in README and docs")
    print("{:12} {:6,} and {:,} imports among them".format("modules", *imports(package)))
    print(f"{'options':12} {count_options(checkout):6,}")
    print(f"{'settings':12} {count_settings(checkout):6,} of training")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT).resolve())
