"""The console: errors in one line, the progress bar, and what a log file shows of long work."""

import re
import shlex
import subprocess
import sys
from io import StringIO

import pytest
import torch
import typer
from rich.console import Console

from matchkernel.cli import console
from matchkernel.cli.console import Bar, duration, user_errors
from matchkernel.errors import FileError, WorkError

ADVICE = "lower --batch-size or --keypoints, or sampling.pairs in training"
CUDA = """CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.00 GiB of which 1.00 GiB is
free. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True."""


def reported(error, capsys):
    """What stderr and the exit code say of an error."""
    with pytest.raises(typer.Exit) as end, user_errors():
        raise error
    return capsys.readouterr().err, end.value.exit_code


def test_no_memory_of_the_cpu_is_one_line(capsys):
    with pytest.raises(RuntimeError) as full:
        torch.empty(2**60, dtype=torch.uint8)
    message = f"error: not enough memory (tried to allocate {2**60} bytes); {ADVICE}\n"
    assert reported(full.value, capsys) == (message, 1)


def test_no_memory_of_a_gpu_is_one_line(capsys):
    message = f"error: not enough memory (tried to allocate 20.00 GiB); {ADVICE}\n"
    assert reported(torch.OutOfMemoryError(CUDA), capsys) == (message, 1)
    message = f"error: not enough memory; {ADVICE}\n"
    assert reported(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), capsys) == (message, 1)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), typer.Exit(3), ZeroDivisionError()])
def test_other_errors_pass_on_as_they_are(error, capsys):
    with pytest.raises(type(error)) as caught, user_errors():
        raise error
    assert caught.value is error
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (FileError("a: no such\nfile"), "error: a: no such file\n", 2),
        (WorkError("failed"), "error: failed\n", 1),
        (MemoryError(), "error: MemoryError\n", 1),
        (BrokenPipeError(32, "worker pipe broke"), "error: [Errno 32] worker pipe broke\n", 1),
    ],
)
def test_our_errors_are_one_line(error, message, code, capsys):
    assert reported(error, capsys) == (message, code)


def test_a_bar_has_the_unit_of_its_stage(monkeypatch):
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(console, "stderr", terminal)

    def shown():
        text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.file.getvalue())
        terminal.file.seek(terminal.file.truncate(0))
        return text

    with console.progress_bar("reading", 9, unit="images") as bar:
        for what, unit in (("reading", "images"), ("matching", "pairs"), ("mapping", "")):
            if what != "reading":
                bar.rename(what, unit)
            for done in (0, 3, 9):
                bar(done, 9)
                bar.progress.refresh()
            said = shown()
            assert what in said
            assert set(re.findall(r"\d (\w+)/s", said)) == ({unit} if unit else set())


class Log:
    """The lines of a log file; `wait` lets one second pass after the other, as the thread that keeps the time does."""

    def __init__(self, monkeypatch):
        self.now, self.said = 1000.0, []
        monkeypatch.setattr(console, "say", self.said.append)
        self.bar = Bar("extracting features", 1, "images", lambda: self.now)

    def wait(self, seconds):
        for _ in range(seconds):
            self.now += 1
            self.bar.tick()

    def new(self):
        lines, self.said[:] = list(self.said), []
        return lines


@pytest.fixture
def log(monkeypatch):
    return Log(monkeypatch)


def test_half_a_minute_of_work_prints_nothing(log):
    for done in range(29):
        log.bar(done, 29)
        log.wait(1)
    log.bar.rename("matching", "pairs")
    assert log.new() == []


def test_longer_work_prints_its_state_every_half_minute(log):
    for second in range(90):
        log.bar(3 * second, 400)
        log.wait(1)
    assert log.new() == [
        "extracting features: 87 of 400 images, 3.0 images/s, about 1 min 45 s left",
        "extracting features: 177 of 400 images, 3.0 images/s, about 1 min 15 s left",
        "extracting features: 267 of 400 images, 3.0 images/s, about 45 s left",
    ]


def test_two_results_at_one_moment_are_no_speed(log):
    log.wait(20)
    for done in (1, 2):
        log.bar(done, 11)
        log.now += 0.0001
    log.wait(10)
    assert log.new() == ["extracting features: 2 of 11 images, 0.067 images/s, about 2 min 16 s left"]


def test_a_stage_that_begins_later_is_printed_at_once_and_counts_anew(log):
    log.bar(400, 400)
    log.wait(40)
    assert log.new() == ["extracting features: 400 of 400 images"]
    log.bar.rename("matching", "pairs")
    assert log.new() == ["matching"]
    log.wait(30)
    assert log.new() == ["matching: 30 s so far"]
    log.bar(10, 20)  # of an earlier run: they say nothing about the speed
    log.wait(25)
    log.bar(11, 20)
    log.wait(5)
    assert log.new() == ["matching: 11 of 20 pairs, 0.04 pairs/s, about 3 min 45 s left"]


def test_lines_that_the_work_prints_itself_take_the_place_of_its_state(log):
    for _ in range(9):
        log.wait(29)
        log.bar.announce("step")
    assert set(log.new()) == {"step"}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (90, "1 min 30 s"), (3600, "1 h 0 min"), (7505, "2 h 5 min")],
)
def test_times_duration(seconds, words):
    assert duration(seconds) == words


def test_only_lines_that_begin_a_stage_rename_it(capsys):
    with console.progress_bar("adapting") as lines:
        for line in ("matching 9 pairs", "skipped a.jpg: cannot be read"):
            lines.announce(line)
        lines(3, 9)
        assert lines._state() == "matching 9 pairs: 3 of 9 pairs"
    assert capsys.readouterr().err == "matching 9 pairs\nskipped a.jpg: cannot be read\n"


def test_the_time_is_kept_while_nothing_is_reported():
    code = (
        "from matchkernel.cli import console\n"
        "console.SECONDS_BETWEEN_LINES = 0\n"
        "with console.progress_bar('reading'):\n    input()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "reading: 1 s so far\n"
        process.communicate("\n")
    assert process.returncode == 0


def test_what_a_terminal_would_obey_is_shown_instead(capsys):
    name = "a\x1b[2J\x9b31m\x07\u202egnp.\u00fc.png"
    shown = "a\\x1b[2J\\x9b31m\\x07\\u202egnp.\u00fc.png"
    for show in (console.say, console.say_error, console.answer):
        show(name)
    table = console.plain_table(["file"], ["file"])
    table.add_row(name)
    console.show_table(table)
    written = "".join(capsys.readouterr())
    assert written.count(shown) == 4
    assert not set("\x1b\x9b\x07\u202e") & set(written)


def test_json_that_cannot_be_printed_is_an_error(tmp_path):
    command = f"exec {shlex.quote(sys.executable)} -m matchkernel info --json >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
