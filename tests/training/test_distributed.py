"""Two processes with gloo on the CPU."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
import torch
from helpers import refuses, wait_until
from made_runs import config

from matchkernel import load
from matchkernel.errors import ArgumentError
from matchkernel.model.descriptors import Descriptor, build
from matchkernel.model.weights import save
from matchkernel.storage.files import is_running
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.distributed import Team
from matchkernel.training.loop import train

CALM = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]  # a free port
STARTED = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets for each process


def popen(command, **environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen(command, env={**CALM, **environment}, **pipes)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def two_ranks(command):
    """The two processes of a run, without torchrun to end them."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [popen(command, **place, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]


def command_of(toml, out, *options):
    return ["-m", "matchkernel", "train", str(toml), "-o", str(out), "--device", "cpu", *options]


def changed(folder, start):
    """What training changed, as one vector."""
    final = load(folder / "final.safetensors")
    return torch.cat([(a - b).detach().flatten() for a, b in zip(final.parameters(), start.parameters(), strict=True)])


def test_a_batch_is_shared_equally_and_in_order_or_refused():
    shares = [Team(rank, 4).share(12) for rank in range(4)]
    assert [k for share in shares for k in range(12)[share]] == list(range(12))
    for size, pairs in ((5, 12), (4, 4)):
        with refuses(ArgumentError):
            Team(0, size).share(pairs)


@pytest.mark.parametrize("size", ["2", "two"])
def test_a_number_of_processes_without_torchrun_is_refused(small, tmp_path, monkeypatch, size):
    for name in STARTED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", size)
    with refuses(ArgumentError):
        train(config(small), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


TOGETHER_AND_ALONE = """
import json, os, sys
from matchkernel.training.config import TrainingConfig
from matchkernel.training.loop import train
ports = sys.argv[3:]
for name, tables in json.loads(sys.argv[1]).items():
    if name.startswith("one "):
        os.environ.pop("WORLD_SIZE", None)
        if os.environ["RANK"] != "0":
            break
    # A port of its own for each run: the slower process may still listen on that of the run before.
    os.environ["MASTER_PORT"] = ports.pop()
    train(TrainingConfig.from_dict(tables), f"{sys.argv[2]}/{name}", device="cpu")
"""


def test_two_processes_learn_what_one_does(small, tmp_path):
    """The same with fixed BatchNorm statistics; near it where each process has those of its share of the batch.

    Not bit for bit: sums of two processes are added in another order, and a hardest negative may turn.
    """
    save(build(**small["model"], output_norm="none"), tmp_path / "base.safetensors")
    fixed = {**small, "model": {}, "start": {"weights": str(tmp_path / "base.safetensors"), "layers": "head"}}
    fixed = config(fixed, sampling={"steps": 2}, optimizer={"rate": 1.0}, data={"validation": []})
    own = config(small, sampling={"steps": 1}, optimizer={"rate": 1.0})
    runs = {"two fixed": fixed, "two own": own, "one fixed": fixed, "one own": own}
    tables = json.dumps({name: run.to_dict() for name, run in runs.items()})
    ports = [free_port() for _ in runs]
    for rank in two_ranks([sys.executable, "-c", TOGETHER_AND_ALONE, tables, str(tmp_path), *ports]):
        _, printed = rank.communicate(timeout=240)
        assert rank.returncode == 0, printed
    start = load(tmp_path / "base.safetensors")
    alone, together = (changed(tmp_path / f"{count} fixed", start) for count in ("one", "two"))
    assert alone.norm() > 0.01
    assert (alone - together).norm() / alone.norm() < 1e-3
    start = Descriptor(own.model, torch.Generator().manual_seed(own.seed))
    alone, apart = (changed(tmp_path / f"{count} own", start) for count in ("one", "two"))
    assert 0.05 < (alone - apart).norm() / alone.norm() < 2
    assert torch.cosine_similarity(alone, apart, dim=0) > 0.2


@pytest.mark.slow
def test_when_one_process_dies_the_other_ends_with_one_line_and_the_run_resumes(small_toml, tmp_path):
    options = ["--set", "sampling.steps=100000", "--set", "loop.save_every=5"]
    out = tmp_path / "run"
    first, second = two_ranks([sys.executable, *command_of(small_toml, out, *options)])
    wait_until((out / "previous.safetensors").exists, first)
    second.kill()
    second.communicate()
    _, printed = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "error: " in printed
    assert "Traceback" not in printed
    last = out / "last.safetensors"
    saved, written = read_checkpoint(last).step, last.stat().st_mtime_ns
    again = popen([*TORCHRUN, *command_of(small_toml, out, *options, "--resume")])
    wait_until(lambda: last.stat().st_mtime_ns > written, again)  # not read: it may be replaced meanwhile
    workers = children(again.pid)
    assert len(workers) == 2
    again.send_signal(signal.SIGTERM)  # torchrun passes it on: both save together and end
    again.communicate(timeout=60)
    assert not any(is_running(worker) for worker in workers)
    assert read_checkpoint(last).step > saved


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return sorted(int(word) for word in listed.stdout.split())
