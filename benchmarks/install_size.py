"""Megabytes that an installation takes, with the pins, from the public package index.

Nothing is installed for the systems: the directory at the end of a wheel says how large its files are, and only that is
read. The bytecode that pip adds, and uv does not, is counted as large as its source. With --install the core is also
installed by pip into an empty environment of this machine, and its files are measured. The table of docs/install.md is
filled.
"""

import argparse
import io
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from timing import read_result, write_result

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from check_install import MACOS, SYSTEMS  # noqa: E402
from public_index import find_uv, public_environment  # noqa: E402

PYTHON = "3.11"
PAGE = ROOT / "docs" / "install.md"
FILLED = re.compile(r"(?<=<!-- filled by benchmarks/install_size.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
PURPOSES = {
    "core": "photos on a CPU",
    "torch": "the modules of the paper, training, evaluation, `adapt`, GPUs",
    "plots": "`matchkernel plot`, charts",
    "explore": "serving the explorer page (saving it needs no extra)",
    "faiss": "pairs of very many photos",
    "heic": "photos of phones in HEIC",
    "hub": "models that are named `hf://owner/name`",
    "colmap": "COLMAP by pip: models from photos; elsewhere its program",
    "kornia": "keypoints and shapes by networks, AdaLAM; with `torch`",
    "baselines": "learned and classic descriptors to compare with; with `kornia` and contrib's OpenCV",
    "peers": "what LightGlue and XFeat need ([how](evaluation.md)); with `kornia`",
    "onnx": "looking into exported files",
    "tensorboard": "event files of training runs",
    "ray": "collections on several machines",
    "dev": "tests, style, types, releases: all of these but `peers`",
}


class Size(NamedTuple):
    """Bytes: to download, of the files, and of the bytecode that pip adds to them."""

    download: int
    files: int
    bytecode: int

    @classmethod
    def of(cls, download: int, files: dict[str, int]) -> "Size":
        """From the bytes of files by name."""
        return cls(download, sum(files.values()), sum(size for name, size in files.items() if name.endswith(".py")))

    @classmethod
    def total(cls, sizes: "Iterable[Size]") -> "Size":
        """The sum of several."""
        return cls(*map(sum, zip((0, 0, 0), *sizes, strict=True)))

    def megabytes(self) -> dict[str, float]:
        """As it is written: pip compiles what it installs, uv does not."""
        installed = {"pip": self.files + self.bytecode, "uv": self.files}
        return {name: round(size / 1e6, 1) for name, size in {"download": self.download, **installed}.items()}


@cache
def wheel_size(url: str) -> Size:
    """The size of a wheel."""
    for tail in (1 << 20, 1 << 24):
        request = urllib.request.Request(url, headers={"Range": f"bytes=-{tail}"})
        with urllib.request.urlopen(request) as answer:
            content = answer.read()
            whole = int(answer.headers.get("Content-Range", f"/{len(content)}").partition("/")[2])
        try:
            directory = zipfile.ZipFile(io.BytesIO(content)).infolist()
        except zipfile.BadZipFile:
            continue  # the directory is longer
        return Size.of(whole, {file.filename: file.file_size for file in directory})
    raise ValueError(f"{url}: no directory found")


def wheels(extra: str, system: str) -> set[str]:
    """The addresses of the wheels that are installed on a system; extra "" is the core."""
    command = [str(find_uv()), "pip", "compile", "--no-config", "--quiet", "--only-binary", ":all:"]
    command += ["--python-version", PYTHON, "--python-platform", SYSTEMS[system], "--python", sys.executable]
    command += ["-c", "constraints.txt", "--format", "pylock.toml", "pyproject.toml"]
    command += ["--extra", extra] if extra else []
    environment = {**public_environment(), "MACOSX_DEPLOYMENT_TARGET": MACOS}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=True).stdout
    packages = tomllib.loads(said)["packages"]
    return {max((wheel["url"] for wheel in package["wheels"]), key=preference) for package in packages}


def preference(url: str) -> tuple[Any, ...]:
    """Of the wheels of one release that fit a system, the largest of these is the one that pip takes."""
    python, abi, platform = url.removesuffix(".whl").split("-")[-3:]
    systems = [(int(a), int(b)) for a, b in re.findall(r"(?:manylinux|macosx)_(\d+)_(\d+)", platform)]
    return (
        platform != "any",
        abi not in ("abi3", "none"),
        max(systems, default=(0, 0)),
        "arm64" in platform,
        len(python),
    )


def own_size() -> Size:
    """The size of this package."""
    files = [path for path in (ROOT / "matchkernel").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return Size.of(0, {str(path): path.stat().st_size for path in files})


def installed_here() -> float:
    """Megabytes of the files that pip writes for the core."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        before = set(Path(folder).rglob("*"))
        command = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "-c", "constraints.txt", "."]
        subprocess.run(command, cwd=ROOT, env=public_environment(), check=True)
        new = [path for path in Path(folder).rglob("*") if path not in before and path.is_file()]
        return round(sum(path.stat().st_size for path in new) / 1e6, 1)


def table(systems: dict[str, dict[str, dict[str, float]]]) -> str:
    """The table of the page: megabytes to download / installed by pip."""
    lines = [f"| extra | for | {' | '.join(systems)} |", "|---" * (2 + len(systems)) + "|"]
    for extra, purpose in PURPOSES.items():
        cells = [f"{sizes[extra]['download']:,.0f} / {sizes[extra]['pip']:,.0f}" for sizes in systems.values()]
        lines.append(f"| {f'`{extra}`' if extra != 'core' else '(the core)'} | {purpose} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--install", action="store_true", help="also install the core here, and measure it")
    parser.add_argument("--only", help="measure only this extra, and keep the stored numbers of the others")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name, needs in project["optional-dependencies"].items() if needs]
    before = read_result("install_size") if options.only else {}
    extras, systems = [options.only] if options.only else extras, before.get("megabytes", {})
    for system in SYSTEMS:
        core = wheels("", system)
        needed = {"core": core, **{extra: wheels(extra, system) - core for extra in extras}}
        with ThreadPoolExecutor(8) as threads:
            [*threads.map(wheel_size, set().union(*needed.values()))]
        own = {"core": [own_size()]}
        sizes = {name: Size.total([*map(wheel_size, urls), *own.get(name, [])]) for name, urls in needed.items()}
        measured = {name: size.megabytes() for name, size in sizes.items() if name in extras or not options.only}
        systems[system] = {**systems.get(system, {}), **measured}
        for name, values in measured.items():
            print(f"{system:15} {name:12}", *(f"{value:8.1f} MB {kind}" for kind, value in values.items()))
    result: dict[str, object] = {**before, "megabytes": systems, "extras": "what they add to the core"}
    if options.install:
        result["the core installed here"] = installed_here()
        print(f"the core installed here: {result['the core installed here']} MB")
    write_result("install_size", result)
    PAGE.write_text(FILLED.sub(table(systems), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
