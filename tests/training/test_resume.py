"""Runs that were stopped: they continue to the same bits or are refused, and nothing they had written is lost."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from helpers import refuses, tree, wait_until
from made_runs import assert_equal, config, saved, stopper, weights

from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.log import read_log
from matchkernel.training.loop import train

CALM = {**os.environ, "OMP_NUM_THREADS": "1"}  # bit-equal needs equal numbers of threads, and the cores are shared


def start(toml, out, changes):
    """A run in a process of its own, with nested tables of changes."""
    settings = [f"{table}.{name}={value}" for table, values in changes.items() for name, value in values.items()]
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "matchkernel", "train", str(toml), "-o", str(out), "--device", "cpu", *options]
    return subprocess.Popen(command, env=CALM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(process, out, step):
    """Until the log of a run shows this step; the test fails if the run ends before."""
    log = out / "log.jsonl"
    lines = [f'"step": {k}, "event": "training"' for k in range(step, step + 50)]
    wait_until(lambda: log.exists() and any(line in log.read_text() for line in lines), process)


@pytest.mark.parametrize("variant", [pytest.param("dual", marks=pytest.mark.slow), "fc"])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(small, tmp_path, variant):
    settings = config({**small, "model": {"variant": variant, "patch_size": 8, "d": 16}})  # fc: with dropout
    train(settings, tmp_path / "whole", device="cpu")
    with pytest.raises(StopIteration):
        train(settings, tmp_path / "run", device="cpu", report=stopper(8))
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 6
    train(settings, tmp_path / "run", device="cpu", resume=True)
    for name in ("final", "best"):
        assert_equal(*(weights(tmp_path / run, f"{name}.safetensors") for run in ("run", "whole")))
    steps = [entry["step"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert steps == [4, 8, 12]


def test_kill_at_a_random_step_and_resume_gives_the_same_bits(small, small_toml, tmp_path):
    """Weights and optimiser, with one thread each time."""
    changes = {
        "sampling": {"steps": 4000},
        "loop": {"save_every": 7, "log_every": 2, "validate_every": 100_000},
        "optimizer": {"rate": 1.0},
    }
    out = tmp_path / "run"
    process = start(small_toml, out, changes)
    wait_for_step(process, out, random.Random(time.time_ns()).randrange(8, 40))
    process.kill()
    process.communicate()
    killed = read_checkpoint(out / "last.safetensors")
    assert 0 < killed.step < 4000
    stop_at = killed.step + 14  # two more checkpoints, then compare with a run that was never killed
    for folder, resume in ((out, True), (tmp_path / "uninterrupted", False)):
        with pytest.raises(StopIteration):
            train(config(small, **changes), folder, device="cpu", resume=resume, report=stopper(stop_at))
    steps = [read_checkpoint(folder / "last.safetensors").step for folder in (out, tmp_path / "uninterrupted")]
    assert steps[0] == steps[1] > killed.step
    assert_equal(saved(out), saved(tmp_path / "uninterrupted"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_save_and_end_cleanly(small, small_toml, tmp_path, number, code):
    out, steps = tmp_path / "run", {"steps": 100_000}
    process = start(small_toml, out, {"sampling": steps, "loop": {"save_every": 100_000}})
    wait_for_step(process, out, 8)
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == code, printed
    assert "Traceback" not in printed
    step = read_checkpoint(out / "last.safetensors").step
    assert step >= 8
    again = config(small, sampling=steps, loop={"save_every": 1})
    with pytest.raises(StopIteration):
        train(again, out, device="cpu", resume=True, report=stopper(step + 1))
    assert read_checkpoint(out / "last.safetensors").step > step


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(small, tmp_path):
    absurd = config(small, optimizer={"rate": 1e25}, loop={"save_every": 1}, data={"validation": []})
    with refuses(WorkError):
        train(absurd, tmp_path / "run", device="cpu")
    kept = read_checkpoint(tmp_path / "run" / "last.safetensors")
    assert kept.step >= 1
    assert all(bool(tensor.isfinite().all()) for tensor in kept.tensors.values())
    assert not (tmp_path / "run" / "final.safetensors").exists()


@pytest.mark.parametrize("name", ["loss.margin", "model.s", "data.train"])
def test_resume_with_other_settings_or_patches_is_refused_by_name(small, small_sets, finished, name):
    """test_training_config.py has the settings that a resumed run must share."""
    table, key = name.split(".")
    value = {"margin": 0.5, "s": 2, "train": str(small_sets / "other")}[key]
    with pytest.raises(ArgumentError, match=name):
        train(config(small, **{table: {key: value}}), finished, device="cpu", resume=True)


def test_the_same_patches_elsewhere_and_another_log_are_accepted(small, small_sets, finished, tmp_path):
    (tmp_path / "moved").symlink_to(small_sets / "train")
    moved = config(small, data={"train": str(tmp_path / "moved")}, loop={"log_every": 2})
    assert train(moved, finished, device="cpu", resume=True).is_finished


def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used_without_it(small, tmp_path, whole):
    folder = tmp_path / "run"
    with pytest.raises(StopIteration):
        train(config(small), folder, device="cpu", report=stopper(12))
    last = folder / "last.safetensors"
    good = bytearray(last.read_bytes())
    for bad in (good[: len(good) // 2], good[:-100] + bytes([good[-100] ^ 1]) + good[-99:]):
        last.write_bytes(bad)
        with refuses(FileError):
            train(config(small), folder, device="cpu", resume=True)
    last.unlink()
    train(config(small), folder, device="cpu", resume=True)
    assert_equal(weights(folder), whole)


def test_a_second_run_in_the_folder_is_refused(small, tmp_path):
    out, refused = tmp_path / "run", []

    def second(line):
        for resume in (True, False):
            with refuses(FileError):
                train(config(small), out, device="cpu", resume=resume)
        refused.append(line.step)

    assert train(config(small), out, device="cpu", report=second).is_finished
    assert refused
    with refuses(FileError):  # it holds a run now
        train(config(small), out, device="cpu")


def test_a_full_disk_is_one_line_and_the_old_checkpoint_stays(small, small_disk):
    mount = small_disk("3m")
    settings, last = config(small, data={"validation": []}), mount / "run" / "last.safetensors"
    with pytest.raises(StopIteration):
        train(settings, mount / "run", device="cpu", report=stopper(4))
    subprocess.run(["dd", "if=/dev/zero", f"of={mount / 'filler'}"], capture_output=True, check=False)  # fill it
    with refuses(WorkError):
        train(settings, mount / "run", device="cpu", resume=True)
    assert read_checkpoint(last).step == 3
    (mount / "filler").unlink()
    assert train(settings, mount / "run", device="cpu", resume=True).is_finished


def test_resuming_without_a_checkpoint_is_refused_and_leaves_everything_as_it_was(small, tmp_path):
    """A typo, an empty folder, or weights of a run whose checkpoints were removed, which no new run overwrites."""
    for name in ("best", "final"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.safetensors").write_text("precious")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*")), tree(tmp_path)
    for place in ("typo", "typo/run", "empty", "best", "final"):
        with refuses(FileError):
            train(config(small), tmp_path / place, device="cpu", resume=True)
    for place in ("best", "final"):
        with refuses(FileError):
            train(config(small), tmp_path / place, device="cpu")
    assert (sorted(tmp_path.rglob("*")), tree(tmp_path)) == before


def test_synthetic_sets_are_rendered_again_but_not_others_and_not_over_foreign_ones(synthetic, tmp_path):
    run = tmp_path / "run"
    train(config(synthetic), run, device="cpu")
    before, other = tree(run), config(synthetic, data={"synthetic": {"points": 13}})
    with refuses(FileError):
        train(other, run, device="cpu", resume=True)
    assert tree(run) == before
    manifest = run / "sets" / "train" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "source": {"kind": "colmap"}}))
    before = tree(run)
    with refuses(FileError):
        train(config(synthetic), run, device="cpu", resume=True)
    assert tree(run) == before
    shutil.rmtree(run / "sets")
    with pytest.raises(ArgumentError, match=r"data\.synthetic\.points"):
        train(other, run, device="cpu", resume=True)
    assert not (run / "sets").exists()
    assert train(config(synthetic), run, device="cpu", resume=True).is_finished


def test_a_file_system_without_links_keeps_a_copy(small, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)  # what FAT does
    train(config(small), tmp_path / "run", device="cpu")
    assert read_checkpoint(tmp_path / "run" / "previous.safetensors").step == 9
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 12
