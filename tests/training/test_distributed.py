"""Two processes with gloo on the CPU, started by torchrun as a user would."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from matchkernel import load
from matchkernel.errors import ArgumentError
from matchkernel.storage.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.loop import train

CALM = {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(toml, out, *options):
    # Standalone: a free port of this machine, so that tests running at once do not meet.
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "matchkernel"]
    command += ["train", str(toml), "-o", str(out), "--device", "cpu", *options]
    return subprocess.Popen(
        command, env=CALM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finished(process):
    out, words = process.communicate(timeout=240)
    assert process.returncode == 0, words
    return out


def changed(folder, config):
    """What training changed, as one vector."""
    from matchkernel.model.descriptors import Descriptor

    start = Descriptor(config.model, torch.Generator().manual_seed(config.seed))
    final = load(folder / "final.safetensors")
    return torch.cat([(a - b).detach().flatten() for a, b in zip(final.parameters(), start.parameters(), strict=True)])


def test_a_batch_is_shared_equally_and_in_order():
    shares = [Team(rank, 4).share(12) for rank in range(4)]
    assert [k for share in shares for k in range(12)[share]] == list(range(12))
    with pytest.raises(ArgumentError, match="12 pairs cannot be shared equally by 5 processes"):
        Team(0, 5).share(12)
    with pytest.raises(ArgumentError, match="4 processes need at least 8 pairs a batch, got 4"):
        Team(0, 4).share(4)


@pytest.mark.parametrize("size", ["2", "two"])
def test_a_number_of_processes_without_torchrun_is_one_line(small_toml, tmp_path, size):
    command = [sys.executable, "-m", "matchkernel", "train", str(small_toml), "-o", str(tmp_path / "run")]
    started_by_torchrun = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in CALM.items() if name not in started_by_torchrun}
    environment["WORLD_SIZE"] = size
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    words = "WORLD_SIZE is set, but torchrun did not start this process: use torchrun, or unset it"
    assert (result.returncode, result.stderr) == (2, f"error: {words}\n")
    assert not (tmp_path / "run").exists()


def test_two_processes_learn_what_one_does(small, small_toml, tmp_path):
    """With shared BatchNorm statistics the gradients are those of one process."""
    short = ["sampling.steps=3", "optimizer.rate=1.0"]
    options = [word for setting in short for word in ("--set", setting)]
    two = torchrun(small_toml, tmp_path / "two", *options, "--set", "loop.sync_batch_norm=true")
    config = TrainingConfig.from_toml(small_toml, short)
    train(config, tmp_path / "one", device="cpu")
    finished(two)
    one, two = changed(tmp_path / "one", config), changed(tmp_path / "two", config)
    assert (one - two).norm() / one.norm() < 1e-4  # float32, three updates
    stats = [load(tmp_path / name / "final.safetensors").state_dict() for name in ("one", "two")]
    for name in stats[0]:
        if "running" in name:
            torch.testing.assert_close(stats[0][name], stats[1][name], rtol=1e-4, atol=1e-5, msg=name)


def test_without_shared_statistics_each_process_normalises_its_own_part(small, small_toml, tmp_path):
    """The documented difference: close to one process, but not it."""
    short = ["sampling.steps=1", "optimizer.rate=1.0"]
    options = [word for setting in short for word in ("--set", setting)]
    two = torchrun(small_toml, tmp_path / "two", *options)
    config = TrainingConfig.from_toml(small_toml, short)
    train(config, tmp_path / "one", device="cpu")
    finished(two)
    one, two = changed(tmp_path / "one", config), changed(tmp_path / "two", config)
    assert 1e-3 < (one - two).norm() / one.norm() < 2
    assert torch.cosine_similarity(one, two, dim=0) > 0.2


def test_when_one_process_dies_the_other_ends_and_the_run_resumes(small, small_toml, tmp_path):
    options = ["--set", "sampling.steps=100000", "--set", "loop.save_every=5", "--set", "loop.sync_batch_norm=true"]
    out = tmp_path / "run"
    process = torchrun(small_toml, out, *options)
    try:
        while not (out / "previous.safetensors").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        workers = children(process.pid)
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGKILL)
        killed_at = time.monotonic()
        _, words = process.communicate(timeout=60)
        assert time.monotonic() - killed_at < 60
        assert process.returncode != 0
        assert not any(alive(worker) for worker in workers), words
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    saved = read_checkpoint(out / "last.safetensors").step
    tables = merged(small, {"sampling": {"steps": 100_000}, "loop": {"save_every": 5, "sync_batch_norm": True}})
    again = torchrun(small_toml, out, *options, "--resume")
    while read_checkpoint(out / "last.safetensors").step <= saved:
        assert again.poll() is None, again.communicate()
        time.sleep(0.02)
    again.send_signal(signal.SIGTERM)  # torchrun passes it on: both save together and end
    again.communicate(timeout=60)
    assert not any(alive(worker) for worker in children(again.pid))
    assert read_checkpoint(out / "last.safetensors").config == TrainingConfig.from_dict(tables).binding()


def test_a_survivor_alone_says_what_happened(small_toml, tmp_path):
    """Without torchrun to end it: a process whose peer is gone stops by itself, with one line."""
    port = str(29500 + os.getpid() % 20000)
    command = [sys.executable, "-m", "matchkernel", "train", str(small_toml), "-o", str(tmp_path / "run"), "--device"]
    command += ["cpu", "--set", "sampling.steps=100000"]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    first, second = (
        subprocess.Popen(
            command,
            env={**CALM, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    )
    while not (tmp_path / "run" / "last.safetensors").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    second.kill()
    second.communicate()
    _, words = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "error: another process of this run ended or does not answer" in words
    assert "Traceback" not in words


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return sorted(int(word) for word in listed.stdout.split())


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
