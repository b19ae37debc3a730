"""matchkernel explore: its one-line errors, the file it saves, and a real process that serves and stops."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest
from typer.testing import CliRunner

from matchkernel.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, ["explore", *map(str, arguments)])


def test_mistakes_are_one_line(tmp_path, photos_cc0, monkeypatch):
    photo = photos_cc0 / "images" / "005.jpg"
    (tmp_path / "notes.txt").write_text("no photo")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, message in (
            ((photo,), "give two photos, or none for the sample pair"),
            ((photo, tmp_path / "absent.jpg"), f"{tmp_path / 'absent.jpg'}: no such file"),
            ((photo, tmp_path), f"{tmp_path}: is a folder, expected an image"),
            ((photo, tmp_path / "notes.txt"), "not a whole image"),
            (("--no-open", "--port", port), f"port {port} is taken: choose another with --port"),
            (("--no-open", "--port", 70000), "port must be from 0 to 65,535"),
            (("--no-open", "--host", "0.0.0.0"), "host 0.0.0.0 means every address"),
            (("--keypoints", 5), "keypoints must be from 10 to 8,000"),
            ((photo, photo, "--save", tmp_path / "page.txt"), "the name must end in .html"),
            ((photo, photo, "--save", tmp_path / "p.html", "--model", "lihgt"), "lihgt"),
            ((photo, photo, "--save", tmp_path / "p.html", "--compare", "nothing"), "nothing: no such file"),
            (("--no-open", "--port", 0, "--model", "lihgt"), "lihgt"),
            (("--no-open", "--port", 0, "--compare", "light"), "--compare is for --save"),
            (("--results", tmp_path / "absent"), "absent"),
        ):
            done = run(*arguments)
            assert done.exit_code == 2, (arguments, done.output)
            assert message in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "p.html").exists()
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = run("--no-open")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'matchkernel[explore]'" in done.stderr


def test_a_page_is_saved(tmp_path, photos_cc0):
    photos = [photos_cc0 / "images" / name for name in ("005.jpg", "008.jpg")]
    options = ("--model", "rootsift", "--keypoints", "100", "--matches", "20", "--save", tmp_path / "page.html")
    done = run(*photos, *options)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_serves_until_it_is_told_to_stop(number, photos_cc0):
    photos = [str(photos_cc0 / "images" / name) for name in ("005.jpg", "008.jpg")]
    command = [sys.executable, "-m", "matchkernel", "explore", *photos, "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stderr.readline().split()[0]
            with urllib.request.urlopen(f"{address}api/models", timeout=60) as answer:
                assert [photo["name"] for photo in json.load(answer)["pair"]] == ["005.jpg", "008.jpg"]
            process.send_signal(number)
            rest = process.stderr.read()
            process.wait(30)
        finally:
            process.kill()  # no effect on one that has ended
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert "Traceback" not in rest


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


def test_ctrl_c_during_a_match_is_one_line_and_soon(photos_cc0):
    photos = [str(photos_cc0 / "images" / name) for name in ("005.jpg", "008.jpg")]
    command = [sys.executable, "-c", SLOW_MATCH, "explore", *photos, "--no-open", "--port", "0"]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stderr.readline().split()[0]
            with urllib.request.urlopen(f"{address}api/models", timeout=60) as answer:
                a, b = [photo["id"] for photo in json.load(answer)["pair"]]
            body = json.dumps({"a": a, "b": b, "model": "light"}).encode()
            request = urllib.request.Request(f"{address}api/match", body, {"content-type": "application/json"})

            def ask():
                try:
                    urllib.request.urlopen(request, timeout=60)
                except urllib.error.HTTPError as error:
                    said.append(json.load(error))

            asking = threading.Thread(target=ask)
            asking.start()
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=20)[1] == "interrupted\n"
            asking.join()
        finally:
            process.kill()  # no effect on one that has ended
    assert process.returncode == 130
    assert said == [{"error": "the explorer was stopped"}]
