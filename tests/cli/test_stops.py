"""Ctrl-C, SIGTERM, kills and closed pipes, with real processes."""

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from commands import run
from helpers import wait_until

BOTH = [(signal.SIGINT, 130, "interrupted\n"), pytest.param(signal.SIGTERM, 143, "", marks=pytest.mark.slow)]


def start(*arguments, command=("-m", "matchkernel"), **options):
    command = [sys.executable, *command, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("module", ["typer", "numpy._core._multiarray_umath", "torch.types"])
def test_ctrl_c_while_modules_are_imported(module):
    """Python prints the name of each module it has imported; then the signal comes."""
    with start("describe", "absent.npy", "-o", "x.npy", command=("-X", "importtime", "-m", "matchkernel")) as process:
        while not (line := process.stderr.readline()).rstrip().endswith(f" {module}"):
            assert line, f"{module} was never imported"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert rest.splitlines()[-1] == "interrupted"


@pytest.mark.parametrize(("number", "code", "message"), BOTH)
def test_stopped_work_leaves_nothing(number, code, message, tmp_path):
    np.lib.format.open_memmap(tmp_path / "many.npy", "w+", np.uint8, (200_000, 32, 32))  # sparse on disk
    with start(
        "describe", tmp_path / "many.npy", "-o", tmp_path / "rows.csv", "--model", "sum", "--untrained"
    ) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, process)  # the file being written is beside its target
        process.send_signal(number)
        assert process.communicate() == (None, message)
    assert process.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["many.npy"]


SLOW_THREADS = """
import os, time
from matchkernel.__main__ import main
from matchkernel.cli import app, console
from matchkernel.storage.work import in_threads

def work(number):
    os.write(1, b"begun\\n")
    time.sleep(100)

app.app = lambda: console.run_script(lambda: list(in_threads(work, range(2), 2)))
main()
"""


@pytest.mark.parametrize(("number", "code", "message"), BOTH)
def test_nobody_waits_for_threads_after_a_signal(number, code, message):
    with start(command=("-c", SLOW_THREADS), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            assert process.communicate(timeout=20)[1] == message
        finally:
            process.kill()  # no effect on one that has ended
    assert process.returncode == code


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ("collection.extract.extract_images", "extract photos -o f.h5 --model sift"),
        ("collection.match.match_pairs", "match-pairs photos pairs.txt -o f.h5"),
        ("collection.reconstruct.reconstruct", "colmap photos -o f.h5 --model sift"),
        ("data.synthetic.build_synthetic", "data synthetic -o f.h5"),
    ],
)
def test_ctrl_c_says_that_the_same_command_resumes(where, command, photos, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    Path("pairs.txt").write_text("0.png 1.png\n")
    monkeypatch.setattr(f"matchkernel.{where}", interrupted)
    result = run(*command.split())
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted: run the same command again to resume f.h5"


@pytest.mark.parametrize("code", ["print('x' * 9999)", "answer('x' * 9999)"])
def test_a_closed_pipe_ends_the_work_quietly(code):
    code = f"from matchkernel.cli.console import answer, run_script; run_script(lambda: [{code} for _ in range(99)])"
    with start(command=("-c", code), stdout=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        message = process.stderr.read()
    assert (process.returncode, message) == (128 + signal.SIGPIPE, "")


# A match in the explorer that does not end.
SLOW_MATCH = """
import time
from matchkernel.__main__ import main
from matchkernel.explore.matching import PageMatcher

def compare(*_):
    print("begun", flush=True)
    time.sleep(100)

PageMatcher.compare = compare
main()
"""


# A browser in the terminal, such as w3m: the call lasts until its user quits it.
BROWSER_IN_TERMINAL = """
import time, urllib.request, webbrowser
from matchkernel.__main__ import main

def stay_open(address):
    print(urllib.request.urlopen(address, timeout=60).status, flush=True)
    time.sleep(100)

webbrowser.open = stay_open
main()
"""


def serve(photos_cc0, command=("-m", "matchkernel"), opening="--no-open"):
    """A process that serves two photos."""
    photos = [photos_cc0 / "images" / name for name in ("005.jpg", "008.jpg")]
    return start("explore", *photos, opening, "--port", "0", command=command, stdout=subprocess.PIPE)


def served_pair(address):
    with urllib.request.urlopen(f"{address}api/models", timeout=60) as answer:
        return json.load(answer)["pair"]


@pytest.mark.parametrize(("number", "code", "message"), BOTH)
def test_explore_serves_until_it_is_stopped(number, code, message, photos_cc0):
    with serve(photos_cc0) as process:
        try:
            address = process.stderr.readline().split()[0]
            assert [photo["name"] for photo in served_pair(address)] == ["005.jpg", "008.jpg"]
            process.send_signal(number)
            rest = process.communicate(timeout=30)[1]
        finally:
            process.kill()  # no effect on one that has ended
    assert (process.returncode, "Traceback" in rest) == (code, False)


def test_a_browser_in_the_terminal_gets_the_page(photos_cc0):
    with serve(photos_cc0, command=("-c", BROWSER_IN_TERMINAL), opening="--open") as process:
        try:
            assert process.stdout.readline() == "200\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[1].endswith("interrupted\n")
        finally:
            process.kill()  # no effect on one that has ended


def test_ctrl_c_during_a_match_of_the_explorer_is_one_line_and_soon(photos_cc0):
    answers = []
    with serve(photos_cc0, command=("-c", SLOW_MATCH)) as process:
        try:
            address = process.stderr.readline().split()[0]
            a, b = (photo["id"] for photo in served_pair(address))
            body = json.dumps({"a": a, "b": b, "model": "light"}).encode()
            request = urllib.request.Request(f"{address}api/match", body, {"content-type": "application/json"})

            def ask():
                try:
                    urllib.request.urlopen(request, timeout=60)
                except urllib.error.HTTPError as error:
                    answers.append(json.load(error))

            asking = threading.Thread(target=ask)
            asking.start()
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=20)[1] == "interrupted\n"
            asking.join()
        finally:
            process.kill()  # no effect on one that has ended
    assert process.returncode == 130
    assert [list(answer) for answer in answers] == [["error"]]
