"""The house: imports go downward only, optional packages stay in their rooms, files stay readable."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "matchkernel"
MODULES = sorted(PACKAGE.rglob("*.py"))

LEVELS = {
    "errors": 0, "files": 0, "folding": 0, "geometry": 0, "locks": 0, "plots": 0, "positions": 0, "precision": 0,
    "resize": 0, "settings": 0, "tensor_files": 0, "von_mises": 0,
    "backbone": 1, "config": 1, "detect": 1, "devices": 1, "encoding": 1,
    "data": 2, "descriptors": 2, "paper": 2,
    "counting": 3, "kernel_view": 3, "weights": 3,
    "describe": 4, "overview": 4, "pictures": 4,
    "describe_files": 5, "evaluation": 5, "images": 5, "training": 5,
    "report": 6,
    "cli": 7, "__init__": 8, "__main__": 8,
}  # fmt: skip

ROOMS = {
    "matplotlib": ["plots"],
    "typer": ["cli"],
    "rich": ["cli"],
    "PIL": ["data"],
    "cv2": ["detect", "evaluation", "geometry", "images"],
    "kornia": ["evaluation", "images"],
    "h5py": ["images"],
    "onnx": ["images"],
    "onnxruntime": ["images"],
    "faiss": ["images"],
    "scipy": [],
    "skimage": ["images"],
    "torchvision": [],
    "triton": ["training"],
}


def room(path):
    """The part of the package a file belongs to: a top-level module or a folder."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module a file imports, whole names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module in ("matchkernel", "matchkernel.cli", "matchkernel.data"):
                yield from submodules  # `from matchkernel import pictures` imports a module, not a name
            else:
                yield node.module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward(path):
    for name in imports(path):
        if name.startswith("matchkernel.") and name != "matchkernel.__version__":
            target = name.split(".")[1]
            assert LEVELS[target] <= LEVELS[room(path)], f"{path.name} (level {LEVELS[room(path)]}) imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_optional_packages_stay_in_their_rooms(path):
    for name in imports(path):
        allowed = ROOMS.get(name.split(".")[0])
        assert allowed is None or room(path) in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_readable(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (node.end_lineno - body[0].lineno + 1) if body else 0
            assert lines <= 45, f"{path.name}: {node.name} has {lines} lines"


def test_every_module_is_listed_and_none_is_gone():
    assert {room(path) for path in MODULES} == set(LEVELS)


def test_there_is_no_cycle():
    graph = {}
    for path in MODULES:
        name = "matchkernel." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = {
            target for target in imports(path) if target.startswith("matchkernel.")
        }
    done = set()
    while len(done) < len(graph):
        free = {name for name in graph if name not in done and not (graph[name] & graph.keys()) - done - {name}}
        assert free, f"cycle among {sorted(graph.keys() - done)}"
        done |= free


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_import_needs_no_extra_and_does_no_input_or_output():
    """Torch, numpy and safetensors are there first; then our import may open Python files of ours and nothing else."""
    result = python(
        """
import sys
for name in ("typer", "rich", "PIL", "matplotlib", "kornia", "cv2", "h5py", "scipy", "pytest"):
    sys.modules[name] = None
import numpy, safetensors.torch, torch
seen = []
def hook(event, arguments):
    if event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.listdir", "os.mkdir"):
        seen.append((event, str(arguments[0])))
sys.addaudithook(hook)
import matchkernel
finding_modules = lambda event, path: event == "os.listdir" or path.endswith((".py", ".pyc"))
print([entry for entry in seen if not finding_modules(*entry)])
"""
    )
    assert result.stderr == ""
    assert result.stdout == "[]\n"


def test_the_command_line_loads_no_compiler():
    """It takes seconds to import, which every command would pay."""
    result = python("import sys, matchkernel.cli.app; print('torch._dynamo' in sys.modules)")
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_the_bare_command_says_what_is_missing():
    result = python("import sys; sys.modules['typer'] = None; from matchkernel.cli.entry import main; main()")
    assert result.returncode == 2
    assert result.stderr == "the command line needs typer, rich and Pillow: pip install 'matchkernel[cli]'\n"


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [
        ("PIL", "from matchkernel.data.patch_files import read_patches; read_patches(sys.argv[1])", "matchkernel[cli]"),
        ("matplotlib", "from matchkernel.pictures import kernel_pictures; kernel_pictures('.')", "matchkernel[plots]"),
    ],
)
def test_a_missing_extra_is_named(missing, code, extra, tmp_path):
    (tmp_path / "p.png").touch()
    result = python(
        f"import sys; sys.modules['{missing}'] = sys.modules['{missing}.figure'] = None; {code}",
        str(tmp_path / "p.png"),
    )
    assert result.returncode == 1
    assert extra in result.stderr.splitlines()[-1]
    assert "MissingExtraError" in result.stderr.splitlines()[-1]
