"""Runs that were stopped: they go on to the same bits or are refused, and nothing they had written is lost."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made_runs import assert_equal, config, tree, weights

from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.log import read_log
from matchkernel.training.loop import train

CALM = {**os.environ, "OMP_NUM_THREADS": "1"}  # bit-equal needs equal numbers of threads, and the cores are shared


def start(toml, out, *options):
    command = [sys.executable, "-m", "matchkernel", "train", str(toml), "-o", str(out), "--device", "cpu", *options]
    return subprocess.Popen(command, env=CALM, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(process, out, step):
    """Until the log of a run shows this step; the test fails if the run ends before."""
    log = out / "log.jsonl"
    while not (
        log.exists() and any(f'"step": {k}, "event": "training"' in log.read_text() for k in range(step, step + 50))
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


@pytest.mark.parametrize("variant", [pytest.param("dual", marks=pytest.mark.slow), "fc"])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(small, tmp_path, variant):
    settings = config({**small, "model": {"variant": variant, "patch_size": 8, "d": 16}})  # fc: with dropout
    train(settings, tmp_path / "whole", device="cpu")

    class StopError(Exception):
        pass

    def stop_at_8(line):
        if line.step == 8:
            raise StopError

    with pytest.raises(StopError):
        train(settings, tmp_path / "run", device="cpu", report=stop_at_8)
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 6
    train(settings, tmp_path / "run", device="cpu", resume=True)
    assert_equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert_equal(weights(tmp_path / "run", "best.safetensors"), weights(tmp_path / "whole", "best.safetensors"))
    steps = [entry["step"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert steps == [4, 8, 12]


def test_kill_at_a_random_step_and_resume_gives_the_same_bits(small, small_toml, tmp_path):
    """Weights, optimiser and the average of the weights, by one thread each time."""
    changes = {
        "sampling": {"steps": 4000},
        "loop": {"save_every": 7, "log_every": 2, "validate_every": 100_000},
        "optimizer": {"rate": 1.0, "average": 0.9},
    }
    out = tmp_path / "run"
    process = start(small_toml, out, *as_options(changes))
    at = random.Random(time.time_ns()).randrange(8, 40)
    wait_for_step(process, out, at)
    process.kill()
    process.communicate()
    killed = read_checkpoint(out / "last.safetensors")
    assert 0 < killed.step < 4000
    stop_at = killed.step + 14  # go on for two more checkpoints, then compare with a run that was never killed
    results = []
    for folder, resume in ((out, True), (tmp_path / "uninterrupted", False)):
        with pytest.raises(StopIteration):
            train(config(small, **changes), folder, device="cpu", resume=resume, report=_stopper(stop_at))
        results.append(read_checkpoint(folder / "last.safetensors"))
    assert results[0].step == results[1].step
    assert results[0].step > killed.step
    assert_equal(results[0].tensors, results[1].tensors)


def as_options(changes):
    """Nested tables as options --set of the command."""
    settings = [f"{table}.{name}={value}" for table, values in changes.items() for name, value in values.items()]
    return [word for setting in settings for word in ("--set", setting)]


def _stopper(step):
    def report(line):
        if line.step >= step:
            raise StopIteration

    return report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_save_and_end_cleanly(small, small_toml, tmp_path, number, code):
    out = tmp_path / "run"
    process = start(small_toml, out, "--set", "sampling.steps=100000", "--set", "loop.save_every=100000")
    wait_for_step(process, out, 8)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == code, words
    assert words.splitlines()[-1].startswith("interrupted: saved after step" if code else "stopped after step")
    saved = read_checkpoint(out / "last.safetensors")
    assert saved.step >= 8
    again = config(small, sampling={"steps": 100_000}, loop={"save_every": 1})
    with pytest.raises(StopIteration):
        train(again, out, device="cpu", resume=True, report=_stopper(saved.step + 1))
    assert read_checkpoint(out / "last.safetensors").step > saved.step


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(small, tmp_path):
    absurd = config(small, optimizer={"rate": 1e25}, loop={"save_every": 1}, data={"validation": []})
    with pytest.raises(
        WorkError, match=r"^step \d+: the loss is no longer finite \(.*the checkpoint of step \d+ is kept$"
    ):
        train(absurd, tmp_path / "run", device="cpu")
    kept = read_checkpoint(tmp_path / "run" / "last.safetensors")
    assert kept.step >= 1
    assert all(bool(tensor.isfinite().all()) for tensor in kept.tensors.values())
    assert not (tmp_path / "run" / "final.safetensors").exists()


def test_resume_with_another_configuration_is_refused_by_name(small, finished):
    for changes, words in [
        ({"loss": {"margin": 0.5}}, "loss.margin = 1.0, not 0.5"),
        ({"sampling": {"steps": 13}}, "sampling.steps = 12, not 13"),
        ({"seed": 3}, "seed = 0, not 3"),
        ({"model": {"s": 2}}, "model.s = 1, not 2"),
        ({"augmentation": {"noise": 1.0}}, "augmentation.noise = 0.0, not 1.0"),
        ({"loop": {"statistics": "joint"}}, "loop.statistics = 'separate', not 'joint'"),
    ]:
        with pytest.raises(ArgumentError) as error:
            train(config(small, **changes), finished, device="cpu", resume=True)
        assert words in str(error.value)


def test_resume_with_other_data_is_refused_but_the_same_data_elsewhere_is_not(small, small_sets, finished, tmp_path):
    other = config(small, data={"train": str(small_sets / "other")})
    with pytest.raises(
        ArgumentError, match=r"trained on other patches, by another teacher or from other weights \(data.train differs"
    ):
        train(other, tmp_path / "run", device="cpu", resume=True)
    (tmp_path / "moved").symlink_to(small_sets / "train")
    moved = config(small, data={"train": str(tmp_path / "moved")}, loop={"log_every": 2})
    assert train(moved, tmp_path / "run", device="cpu", resume=True).is_finished


def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(small, tmp_path, whole):
    folder = tmp_path / "run"
    with pytest.raises(StopIteration):
        train(config(small), folder, device="cpu", report=_stopper(12))
    last = folder / "last.safetensors"
    good = bytearray(last.read_bytes())
    for bad in (good[: len(good) // 2], good[:-100] + bytes([good[-100] ^ 1]) + good[-99:]):
        last.write_bytes(bad)
        with pytest.raises(FileError, match=r"last.safetensors: .*; the one before it exists"):
            train(config(small), folder, device="cpu", resume=True)
    last.unlink()
    train(config(small), folder, device="cpu", resume=True)
    assert_equal(weights(folder), whole)


def test_a_second_run_in_the_folder_is_refused(small, tmp_path):
    out, refused = tmp_path / "run", []

    def second(line):
        for resume in (True, False):
            with pytest.raises(FileError, match="another run is using this folder"):
                train(config(small), out, device="cpu", resume=resume)
        refused.append(line.step)

    assert train(config(small), out, device="cpu", report=second).is_finished
    assert refused
    with pytest.raises(FileError, match="already holds a run"):
        train(config(small), out, device="cpu")


def test_a_full_disk_is_told_and_the_old_checkpoint_stays(small, tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small tmpfs here")
    try:
        settings = config(small, data={"validation": []})
        with pytest.raises(StopIteration):
            train(settings, mount / "run", device="cpu", report=_stopper(4))
        assert read_checkpoint(mount / "run" / "last.safetensors").step == 3
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={mount / 'filler'}"], capture_output=True, check=False
        )  # to the brim
        with pytest.raises(WorkError, match="could not be written"):
            train(settings, mount / "run", device="cpu", resume=True)
        assert read_checkpoint(mount / "run" / "last.safetensors").step == 3
        (mount / "filler").unlink()
        assert train(settings, mount / "run", device="cpu", resume=True).is_finished
    finally:
        subprocess.run(["umount", str(mount)], check=True)


NOTHING = "nothing to resume: neither last.safetensors nor previous.safetensors is there; leave out --resume"


def test_resume_where_there_is_no_checkpoint_is_refused_and_leaves_nothing(small, tmp_path):
    (tmp_path / "empty").mkdir()
    for place in ("typo", "typo/run", "empty"):
        with pytest.raises(FileError) as refusal:
            train(config(small), tmp_path / place, device="cpu", resume=True)
        assert str(refusal.value) == f"{tmp_path / place}: {NOTHING} to start a new run"
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_weights_without_a_checkpoint_are_left_alone(small, tmp_path):
    """Of a run stopped between its first validation and its first checkpoint, or whose checkpoints were removed."""
    for name in ("best", "final"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.safetensors").write_text("precious")
        for resume, words in ((True, NOTHING), (False, f"holds {name}.safetensors of an earlier run; choose another")):
            with pytest.raises(FileError, match=words):
                train(config(small), folder, device="cpu", resume=resume)
        assert tree(folder) == {f"{name}.safetensors": b"precious"}


def test_a_foreign_set_among_a_runs_own_is_left_alone(small, small_sets, tmp_path):
    synthetic = {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 4}}}
    train(config(synthetic), tmp_path / "run", device="cpu")
    mine = tmp_path / "run" / "sets" / "train"
    manifest = json.loads((mine / "manifest.json").read_text())
    manifest["source"] = {"kind": "colmap"}
    (mine / "manifest.json").write_text(json.dumps(manifest))
    before = tree(tmp_path)
    with pytest.raises(FileError, match="a set of another configuration or source"):
        train(config(synthetic), tmp_path / "run", device="cpu", resume=True)
    assert tree(tmp_path) == before


def test_resume_with_other_synthetic_sets_is_refused_by_name_and_changes_nothing(small, tmp_path):
    synthetic = {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 4}}}
    train(config(synthetic), tmp_path / "run", device="cpu")
    before = tree(tmp_path)
    more = config(synthetic, data={"synthetic": {"points": 13}})
    with pytest.raises(ArgumentError, match=r"data\.synthetic\.points = 12, not 13"):
        train(more, tmp_path / "run", device="cpu", resume=True)
    assert tree(tmp_path) == before
    shutil.rmtree(tmp_path / "run" / "sets")
    assert train(config(synthetic), tmp_path / "run", device="cpu", resume=True).is_finished


def test_a_file_system_without_links_keeps_a_copy(small, tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)  # what FAT does
    train(config(small), tmp_path / "run", device="cpu")
    assert read_checkpoint(tmp_path / "run" / "previous.safetensors").step == 9
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 12
