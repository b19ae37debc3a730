"""Places where nothing can be written, and no network: verbs do without, or say in one line what they cannot do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run

READ_ONLY = Path("/proc")  # even for root
pytestmark = pytest.mark.skipif(not READ_ONLY.exists(), reason="needs a folder in which nobody can write")

# A program that ends as soon as it looks for another machine.
ALONE = """
import os, sys
sys.addaudithook(lambda event, _: event in ("socket.connect", "socket.getaddrinfo") and os._exit(99))
from matchkernel.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("match", "photos/0.png", "photos/1.png", "--keypoints", "50", "--out", "m.png"), "-> m.png\n"),
        (("plot", "conventions", "--out", "c.png"), "-> c.png\n"),
    ],
    ids=lambda words: words[0],
)
def test_neither_a_home_nor_a_network_is_needed(words, said, photos):
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    environment = {**os.environ, **dict.fromkeys(names, str(READ_ONLY / "none"))}
    command = [sys.executable, "-c", ALONE, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, said)


@pytest.mark.parametrize(
    "words",
    [
        ("match", "{photos}/0.png", "{photos}/1.png", "--keypoints", "50", "--out", "m.png"),
        ("extract", "{photos}", "--keypoints", "50", "--out", "f.h5"),
        ("extract", "{photos}", "--keypoints", "50", "--out", "f"),
        ("demo",),
        ("data", "synthetic", "--points", "9", "--out", "set"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_current_folder_that_cannot_be_written_is_one_line(words, photos, monkeypatch):
    places = [word.format(photos=photos.resolve()) for word in words]
    monkeypatch.chdir(READ_ONLY)
    done = run(*places)
    assert done.exit_code in (1, 2)  # root has the right to write, and learns later that it is of no use
    assert done.stderr.startswith("error: ")
    assert "written" in done.stderr
    assert done.stderr.count("\n") == 1
