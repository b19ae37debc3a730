"""Photos are matched without torch, and what needs it, or another package that is missing or broken, says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_images import texture
from PIL import Image

ROOT = Path(__file__).parents[1]
COMMANDS = [
    ["info"],
    ["params"],
    ["match", "a.png", "b.png", "-o", "m.png", "-o", "m.csv", "--keypoints", "300"],
    ["extract", "a.png", "b.png", "-o", "f.h5", "--keypoints", "100"],
    ["extract", "a.png", "b.png", "-o", "rows", "--keypoints", "100", "--model", "tiny", "--workers", "2"],
    ["pairs", "f.h5", "-o", "p.txt"],
    ["match-pairs", "f.h5", "p.txt", "-o", "m.h5"],
]
RUN_ALL = """
import json, sys
from typer.testing import CliRunner
from matchkernel.cli.app import app
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    print(json.dumps([result.exit_code, result.stdout, result.stderr]))
print("torch" in sys.modules and sys.modules["torch"] is not None)
"""
BLOCKED = "import sys; sys.modules['torch'] = None\n"


@pytest.fixture
def photos(tmp_path):
    image = texture(240, 320)
    Image.fromarray(image).save(tmp_path / "a.png")
    Image.fromarray(image[8:, 12:]).save(tmp_path / "b.png")
    return tmp_path


def python(code, *arguments, cwd, first=None):
    """Run code in a new process, with a folder of packages that come before all others."""
    places = [str(place) for place in (first, ROOT) if place]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def run_all(commands, folder, *, blocked):
    done = python((BLOCKED if blocked else "") + RUN_ALL, json.dumps(commands), cwd=folder)
    assert done.returncode == 0, done.stderr
    *results, imported = done.stdout.splitlines()
    return [json.loads(line) for line in results], imported == "True"


def test_no_command_of_the_photo_path_imports_torch(photos):
    results, imported = run_all(COMMANDS, photos, blocked=False)
    assert [code for code, _, _ in results] == [0] * len(COMMANDS), results
    assert not imported


def test_without_torch_matches_are_the_same(photos):
    command = ["match", "a.png", "b.png", "--json", "--keypoints", "300"]
    [[code, out, _]], _ = run_all([command], photos, blocked=True)
    [[_, expected, _]], _ = run_all([command], photos, blocked=False)
    found, wanted = json.loads(out), json.loads(expected)
    del found["seconds"], wanted["seconds"]
    assert code == 0
    assert found == wanted
    assert len(found["matches"]) > 30


def test_weights_of_a_user_run_without_torch(photos):
    from matchkernel.model.descriptors import build
    from matchkernel.model.weights import save

    save(build("dual", d=8), photos / "mine.safetensors")
    command = ["match", "a.png", "b.png", "--json", "--keypoints", "100", "--model", "mine.safetensors"]
    [[code, out, error]], _ = run_all([command], photos, blocked=True)
    assert code == 0, error
    assert json.loads(out)["engine"] == "onnx"


@pytest.mark.slow
def test_the_demo_runs_without_torch(tmp_path):
    [[code, out, error]], imported = run_all([["demo", "-o", "demo"]], tmp_path, blocked=False)
    assert (code, imported) == (0, False), error
    assert out.count("small-wide") == 2


def test_the_explorer_saves_a_page_of_matches_without_torch(photos):
    command = ["explore", "a.png", "b.png", "--save", "page.html", "--keypoints", "100"]
    [[code, _, error]], _ = run_all([command], photos, blocked=True)
    assert code == 0, error
    assert (photos / "page.html").stat().st_size > 50_000


NEEDING = [
    ["describe", "x.npy", "-o", "y.npy"],
    ["train", str(ROOT / "configs" / "tiny.toml")],
    ["train-matcher", "x", "-o", "y.safetensors"],
    ["evaluate", "hpatches", "x", "-o", "y.json"],
    ["export", "tiny", "-o", "x.onnx"],
    ["adapt", "x", "-o", "y"],
    ["data", "pack", "a.png", "-o", "y"],
    ["plot", "conventions", "-o", "x.png"],
    ["match", "a.png", "b.png", "--engine", "torch"],
    ["match", "a.png", "b.png", "--device", "cuda"],
    ["match", "a.png", "b.png", "--model", "sum", "--untrained"],
]


def test_what_needs_torch_says_so_in_one_line(photos):
    results, _ = run_all(NEEDING, photos, blocked=True)
    for command, (code, out, error) in zip(NEEDING, results, strict=True):
        assert (code, out, error.count("\n")) == (2, "", 1), (command, error)
        assert "needs torch: pip install 'matchkernel[torch]'" in error, command


def test_python_functions_that_need_torch_say_so(tmp_path):
    code = """
import matchkernel
for name in ("load", "build", "describe", "save", "Descriptor"):
    try:
        getattr(matchkernel, name)
    except matchkernel.MatchKernelError as error:
        print(type(error).__name__, error)
print(matchkernel.match_images.__name__, matchkernel.available())
"""
    done = python(BLOCKED + code, cwd=tmp_path)
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 5
    assert all(line.startswith("MissingExtraError") and "matchkernel[torch]" in line for line in refused)
    assert last.startswith("match_images")


def fake(folder, name, code):
    """A package that hides the installed one of its name."""
    (folder / "fake" / name).mkdir(parents=True)
    (folder / "fake" / name / "__init__.py").write_text(code)
    return folder / "fake"


BROKEN = "raise {}('libbroken.so.1: cannot open shared object file')"
TOO_OLD = """
__version__ = "1.9.0"
class SessionOptions: pass
def InferenceSession(*_, **__):
    raise RuntimeError("Unsupported model IR version: 10, max supported IR version: 7")
"""


@pytest.mark.parametrize(
    ("package", "code", "hint"),
    [
        ("onnxruntime", BROKEN.format("ImportError"), "pip install --force-reinstall --no-deps onnxruntime"),
        ("onnxruntime", "", "onnxruntime is installed but incomplete"),
        ("onnxruntime", TOO_OLD, "pip install --upgrade onnxruntime"),
        ("cv2", BROKEN.format("ImportError"), "--force-reinstall --no-deps opencv-python-headless"),
        ("cv2", "", "perhaps as two packages of different versions"),
        ("h5py", BROKEN.format("OSError"), "--force-reinstall --no-deps h5py"),
    ],
)
def test_a_broken_package_is_one_line(photos, package, code, hint):
    verb = "extract a.png -o f.h5" if package == "h5py" else "match a.png b.png"
    run = f"{BLOCKED}sys.argv = ['matchkernel', *{verb.split()}]\nfrom matchkernel.__main__ import main\nmain()"
    done = python(run, cwd=photos, first=fake(photos, package, code))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert hint in done.stderr


@pytest.mark.parametrize("kind", ["OSError", "RuntimeError"])
def test_a_torch_that_cannot_be_imported_stops_only_what_needs_it(photos, kind):
    first = fake(photos, "torch", BROKEN.format(kind))
    run = "import sys; from matchkernel.__main__ import main; main()"
    driver = "import matchkernel.photos.extract as devices; devices.DRIVERS = ('/',)\n"  # as if there were a GPU
    for verb in (["match", "a.png", "b.png"], ["explore", "a.png", "b.png", "--save", "page.html"]):
        good = python(driver + run, *verb, "--keypoints", "50", cwd=photos, first=first)
        assert good.returncode == 0, good.stderr
    bad = python(run, "describe", "a.npy", "-o", "b.npy", cwd=photos, first=first)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1), bad.stderr
    assert "torch" in bad.stderr
    assert "cannot be imported" in bad.stderr
