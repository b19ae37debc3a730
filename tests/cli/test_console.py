import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console

from matchkernel.cli import console
from matchkernel.cli.console import progress_bar, show_traceback, user_errors
from matchkernel.errors import FileError, WorkError

ADVICE = "lower --batch-size or --keypoints, or sampling.pairs in training"
CUDA = """CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.00 GiB of which 1.00 GiB is
free. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True."""


def told(error, capsys):
    """What stderr and the exit code say of an error."""
    with pytest.raises(typer.Exit) as end, user_errors():
        raise error
    return capsys.readouterr().err, end.value.exit_code


def test_no_memory_of_the_cpu_is_one_line(capsys):
    with pytest.raises(typer.Exit) as end, user_errors():
        torch.empty(2**60, dtype=torch.uint8)
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == f"error: not enough memory (tried to allocate {2**60} bytes); {ADVICE}\n"


def test_no_memory_of_a_gpu_is_one_line(capsys):
    words = f"error: not enough memory (tried to allocate 20.00 GiB); {ADVICE}\n"
    assert told(torch.OutOfMemoryError(CUDA), capsys) == (words, 1)
    words = f"error: not enough memory; {ADVICE}\n"
    assert told(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), capsys) == (words, 1)


def test_the_traceback_of_no_memory_is_there_for_who_asks(capsys):
    token = show_traceback.set(True)
    try:
        words, _ = told(torch.OutOfMemoryError(CUDA), capsys)
    finally:
        show_traceback.reset(token)
    assert words.startswith("Traceback")
    assert words.endswith(f"{ADVICE}\n")


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), typer.Exit(3), ZeroDivisionError()])
def test_other_errors_pass_on_as_they_are(error, capsys):
    with pytest.raises(type(error)) as caught, user_errors():
        raise error
    assert caught.value is error
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (FileError("a: no such\nfile"), "error: a: no such file\n", 2),
        (WorkError("failed"), "error: failed\n", 1),
        (MemoryError(), "error: MemoryError\n", 1),
    ],
)
def test_our_errors_are_one_line(error, words, code, capsys):
    assert told(error, capsys) == (words, code)


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


@pytest.mark.parametrize("told", ["print('x' * 9999)", "answer('x' * 9999)"])
def test_a_pipe_that_is_closed_ends_quietly(told):
    code = f"from matchkernel.cli.console import answer, run_script; run_script(lambda: [{told} for _ in range(99)])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (128 + signal.SIGPIPE, b"")


def test_another_pipe_that_breaks_is_an_error(capsys):
    assert told(BrokenPipeError(32, "worker pipe broke"), capsys) == ("error: [Errno 32] worker pipe broke\n", 1)


def test_ctrl_c_says_how_to_go_on(capsys):
    with pytest.raises(typer.Exit) as end, user_errors(), progress_bar("work", resumes=Path("out.h5")):
        raise KeyboardInterrupt
    assert end.value.exit_code == 130
    assert capsys.readouterr().err == "interrupted: run the same command again to resume out.h5\n"
