"""The package needs nothing that Windows lacks: commands run in a Python without it (see without_posix/)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from made_images import save, texture

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at open files as Linux shows them")

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE / "without_posix", *sys.path)))}
MATCHKERNEL = ("-m", "matchkernel")


def start(*command, **options):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], env=ENVIRONMENT, **{**pipes, **options})


def run(*command, **options):
    """The exit code, stdout and stderr."""
    with start(*command, **options) as process:
        stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


def test_every_module_can_be_imported():
    """Except those of optional packages that are not installed here."""
    code = """
import importlib, pkgutil, matchkernel
for found in pkgutil.walk_packages(matchkernel.__path__, "matchkernel."):
    try:
        found.name.endswith("__main__") or importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        print(error.name)
    except matchkernel.errors.MissingExtraError as error:
        print(error)
import matchkernel.cli.console, matchkernel.storage.folders
print(matchkernel.storage.folders.fcntl, hasattr(matchkernel.cli.console.select, "poll"))
"""
    returncode, stdout, stderr = run("-c", code)
    assert (returncode, stderr) == (0, "")
    *missing, last = stdout.splitlines()
    assert last == "None False"
    assert not {"fcntl", "resource", "pwd", "grp", "termios"} & set(missing)


def test_the_command_starts():
    returncode, stdout, stderr = run(*MATCHKERNEL, "info")
    assert (returncode, stderr) == (0, "")
    assert "small-wide" in stdout


BUILDER = """
import sys
from matchkernel.storage.folders import resumable_build
with resumable_build("set", {}) as build:
    (build.folder / "half").touch()
    print("begun", flush=True)
    input()
"""


def test_a_second_build_is_refused_until_the_first_is_killed(tmp_path):
    second = (*MATCHKERNEL, "data", "synthetic", "-o", "set", "--points", "10", "--size", "16")
    with start("-c", BUILDER, cwd=tmp_path) as first:
        assert first.stdout.readline() == "begun\n"
        assert run(*second, cwd=tmp_path)[0] == 2
        assert (tmp_path / "set.part" / "half").exists()
        first.kill()
    returncode, _, stderr = run(*second, cwd=tmp_path)
    assert returncode == 0, stderr
    assert (tmp_path / "set" / "manifest.json").exists()
    assert not (tmp_path / "set.part").exists()


def test_two_workers_extract_two_photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for seed in range(2):
        save(texture(seed, 90, 110), tmp_path / "photos" / f"{seed}.png")
    (tmp_path / "pairs.txt").write_text("0.png 1.png\n")
    extract = (*MATCHKERNEL, "extract", "photos", "-o", "features.h5", "--keypoints", "50")
    match = (*MATCHKERNEL, "match-pairs", "features.h5", "pairs.txt", "-o", "matches.h5")
    first = (*extract, "--workers", "2")
    for command, done in ((first, "2 images done"), (extract, "2 already there"), (match, "1 pair done")):
        returncode, _, stderr = run(*command, cwd=tmp_path)
        assert (returncode, done in stderr) == (0, True), stderr


WORK = """
from matchkernel.__main__ import main
from matchkernel.cli import app, console
app.app = lambda: console.run_script(work)
main()
"""


def test_ctrl_c_ends_the_work():
    work = "def work():\n    print('begun', flush=True)\n    input()\n"
    with start("-c", work + WORK) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == "interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("work", ["print('x' * 99_999)", "raise OSError(22, 'Invalid argument')"])
def test_a_reader_that_has_gone_ends_the_work_quietly(work, tmp_path):
    """On Windows the pipe is broken or the argument invalid; for a file, an invalid argument is an error."""
    code = f"def work():\n    input()\n    {work}\n" + WORK
    with start("-c", code) as process:
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        stderr = process.stderr.read()
    assert (process.returncode, stderr) == (141, "")
    with (tmp_path / "out.txt").open("w") as out, start("-c", code, stdout=out) as process:
        stderr = process.communicate("\n")[1]
    expected = (0, "") if "print" in work else (1, "error: [Errno 22] Invalid argument\n")
    assert (process.returncode, stderr) == expected


def test_a_photo_that_colmap_must_read_is_copied_where_links_are_not_allowed(tmp_path):
    code = """
from pathlib import Path
from matchkernel.colmap.converted import readable_photos
for unreadable in (["0.png"], ["0.png", "1.png"]):
    place, named = readable_photos(Path("photos"), Path("copies"), ["0.png", "1.png", "2.png"], unreadable)
    print([name for name in named.values() if (place / name).read_bytes()[:4] == b"\\x89PNG"])
"""
    (tmp_path / "photos").mkdir()
    for seed in range(3):
        save(texture(seed, 20, 30), tmp_path / "photos" / f"{seed}.png")
    assert run("-c", code, cwd=tmp_path) == (0, "['1.png', '2.png']\n['2.png']\n", "")
