"""A run as a whole: it learns, it can be stopped at any moment, and nothing goes wrong silently."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from matchkernel import describe, load
from matchkernel.data.packed import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.log import read_log
from matchkernel.training.loop import chosen_device, train
from matchkernel.weights import read_card

TINY = Path(__file__).parents[2] / "configs" / "tiny.toml"
CALM = {**os.environ, "OMP_NUM_THREADS": "1"}  # bit-equal needs equal numbers of threads, and the cores are shared


def config(tables, **changes):
    return TrainingConfig.from_dict(merged(tables, changes))


def weights(folder, name="final.safetensors"):
    return load(folder / name).state_dict()


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.fixture
def whole(small, tmp_path):
    """The weights of an uninterrupted run."""
    train(config(small), tmp_path / "whole", device="cpu")
    return weights(tmp_path / "whole")


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


def test_the_tiny_run_learns(tmp_path):
    """Chance is FPR@95 = 0.95; 120 of tiny.toml's 300 steps bring it below 0.3."""
    tiny = TrainingConfig.from_toml(TINY, ["sampling.steps=120", "loop.log_every=20", "loop.validate_every=120"])
    outcome = train(tiny, tmp_path / "run", device="cpu")
    losses = [entry["loss"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert outcome.is_finished
    assert outcome.best["fpr95"] < 0.3
    assert outcome.best["map"] > 0.4
    assert losses[-1] < losses[0] - 0.15


def test_a_run_leaves_log_checkpoints_and_weights(small, tmp_path):
    seen = []
    outcome = train(config(small), tmp_path / "run", device="cpu", report=seen.append)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["best.safetensors", "final.safetensors", "last.safetensors", "log.jsonl", "previous.safetensors"]
    entries = read_log(tmp_path / "run" / "log.jsonl")
    assert [(entry["step"], entry["event"]) for entry in entries] == [
        (0, "start"), (4, "training"), (6, "validation"), (8, "training"),
        (12, "training"), (12, "validation"), (12, "end"),
    ]  # fmt: skip
    assert [(line.step, line.validation is not None) for line in seen] == [
        (4, False), (6, True), (8, False), (12, False), (12, True),
    ]  # fmt: skip
    assert seen[0].rate == pytest.approx(10 * (1 - 3 / 12))
    assert outcome.weights == tmp_path / "run" / "best.safetensors"
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 12
    assert read_checkpoint(tmp_path / "run" / "previous.safetensors").step == 9
    card = read_card(tmp_path / "run" / "final.safetensors")
    assert TrainingConfig.from_dict(json.loads(card["training"])) == config(small)
    assert card["trained_on"] == "train"
    manifest = open_patch_set(small["data"]["train"]).manifest
    known = {"name": "train", "patches_sha256": manifest["sha256"]["patches.npy"]}
    assert json.loads(card["training_sets"]) == [known]


def test_the_weights_describe_patches_as_the_run_validated_them(small, tmp_path):
    from matchkernel.training.validation import validate

    outcome = train(config(small), tmp_path / "run", device="cpu")
    model = load(tmp_path / "run" / "best.safetensors")
    validation = open_patch_set(small["data"]["validation"])
    again = validate(model, [validation])
    assert again == {name: outcome.best[name] for name in ("fpr95", "map")}
    assert describe(np.array(validation.patches), model, resize=True).shape == (60, 16)


def test_the_caller_keeps_its_random_numbers_and_signals(small, tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    train(config(small, model={"variant": "fc", "s": None} | {"dropout": 0.3}), tmp_path / "run", device="cpu")
    assert torch.equal(torch.rand(3), wanted)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_training_in_another_thread_works(small, tmp_path):
    thread = threading.Thread(target=train, args=(config(small), tmp_path / "run"), kwargs={"device": "cpu"})
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "final.safetensors").exists()


def test_the_same_seed_gives_the_same_weights_and_another_others(small, tmp_path, whole):
    train(config(small), tmp_path / "again", device="cpu")
    train(config(small, seed=1), tmp_path / "other", device="cpu")
    assert_equal(weights(tmp_path / "again"), whole)
    assert not torch.equal(weights(tmp_path / "other")["projection.weight"], whole["projection.weight"])


@pytest.mark.parametrize("variant", ["dual", "fc", "sum"])
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
    steps = ["--set", "sampling.steps=4000", "--set", "loop.save_every=7", "--set", "loop.log_every=2"]
    steps += ["--set", "loop.validate_every=100000", "--set", "optimizer.rate=1.0"]
    out = tmp_path / "run"
    process = start(small_toml, out, *steps)
    at = random.Random(time.time_ns()).randrange(8, 60)
    wait_for_step(process, out, at)
    process.kill()
    process.communicate()
    killed = read_checkpoint(out / "last.safetensors")
    assert 0 < killed.step < 4000
    stop_at = killed.step + 21  # go on for three more checkpoints, then compare with a run that was never killed
    longer = config(small, sampling={"steps": 4000}, loop={"save_every": 7, "log_every": 2, "validate_every": 100_000},
                    optimizer={"rate": 1.0})  # fmt: skip
    results = []
    for folder, resume in ((out, True), (tmp_path / "uninterrupted", False)):
        with pytest.raises(StopIteration):
            train(longer, folder, device="cpu", resume=resume, report=_stopper(stop_at))
        results.append(read_checkpoint(folder / "last.safetensors"))
    assert results[0].step == results[1].step
    assert results[0].step > killed.step
    assert_equal(results[0].tensors, results[1].tensors)


def _stopper(step):
    def report(line):
        if line.step >= step:
            raise StopIteration

    return report


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_save_and_end_cleanly(small_toml, tmp_path, number, code):
    out = tmp_path / "run"
    process = start(small_toml, out, "--set", "sampling.steps=100000", "--set", "loop.save_every=100000")
    wait_for_step(process, out, 8)
    process.send_signal(number)
    _, words = process.communicate(timeout=60)
    assert process.returncode == code, words
    assert words.splitlines()[-1].startswith("interrupted: saved after step" if code else "stopped after step")
    saved = read_checkpoint(out / "last.safetensors")
    assert saved.step >= 8
    again = start(small_toml, out, "--set", "sampling.steps=100000", "--resume")
    wait_for_step(again, out, saved.step + 1)
    again.terminate()
    again.communicate(timeout=60)
    assert again.returncode == 0
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": {"margin": 0.5}}, "loss.margin = 1.0, not 0.5"),
        ({"sampling": {"steps": 13}}, "sampling.steps = 12, not 13"),
        ({"seed": 3}, "seed = 0, not 3"),
        ({"model": {"s": 2}}, "model.s = 1, not 2"),
        ({"augmentation": {"noise": 1.0}}, "augmentation.noise = 0.0, not 1.0"),
        ({"loop": {"statistics": "joint"}}, "loop.statistics = 'separate', not 'joint'"),
    ],
)
def test_resume_with_another_configuration_is_refused_by_name(small, tmp_path, changes, words):
    train(config(small), tmp_path / "run", device="cpu")
    with pytest.raises(ArgumentError) as error:
        train(config(small, **changes), tmp_path / "run", device="cpu", resume=True)
    assert words in str(error.value)


def test_resume_with_other_data_is_refused_but_the_same_data_elsewhere_is_not(small, small_sets, tmp_path):
    train(config(small), tmp_path / "run", device="cpu")
    other = config(small, data={"train": str(small_sets / "other")})
    with pytest.raises(ArgumentError, match=r"trained on other patches \(data.train differs"):
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
        with pytest.raises(FileError, match=r"last.safetensors: .*; the one before it is there"):
            train(config(small), folder, device="cpu", resume=True)
    last.unlink()
    train(config(small), folder, device="cpu", resume=True)
    assert_equal(weights(folder), whole)


def test_a_second_run_in_the_folder_is_refused(small, small_toml, tmp_path):
    out = tmp_path / "run"
    process = start(small_toml, out, "--set", "sampling.steps=100000")
    wait_for_step(process, out, 4)
    with pytest.raises(FileError, match="another run is using this folder"):
        train(config(small), out, device="cpu", resume=True)
    process.kill()
    process.communicate()
    with pytest.raises(FileError, match="holds a run already"):
        train(config(small), out, device="cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampling": {"pairs": 64}}, "a batch of 64 pairs needs as many points"),
        ({"data": {"train": "nowhere"}}, "nowhere"),
        ({"data": {"validation": "nowhere"}}, "nowhere"),
    ],
)
def test_what_cannot_work_is_told_before_the_first_step_and_leaves_nothing(small, tmp_path, changes, words):
    with pytest.raises((ArgumentError, FileError), match=words):
        train(config(small, **changes), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_set_without_pairs_is_refused(small, tmp_path):
    build_synthetic(tmp_path / "single", SyntheticSettings(points=12, patches=1, size=16))
    with pytest.raises(ArgumentError, match="no point has two patches"):
        train(config(small, data={"train": str(tmp_path / "single")}), tmp_path / "run", device="cpu")


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


def test_streamed_patches_are_the_resident_ones(small, tmp_path, whole):
    resident = config(small, loop={"resident": "yes"})
    train(resident, tmp_path / "run", device="cpu")
    assert_equal(weights(tmp_path / "run"), whole)


def test_separate_statistics_are_those_of_two_passes(small, small_sets, tmp_path):
    """One pass with grouped statistics, against anchors and positives sent through a plain model in turn."""
    from matchkernel.descriptors import Descriptor
    from matchkernel.training.data import TrainingSet
    from matchkernel.training.distributed import Team
    from matchkernel.training.feed import Feed
    from matchkernel.training.loss import pair_loss
    from matchkernel.training.run import Run
    from matchkernel.training.warp import sample_patches

    settings = config(small)
    data = TrainingSet([open_patch_set(small_sets / "train")])
    run = Run(settings, tmp_path, data, [], Team(), torch.device("cpu"))
    batch = Feed(settings, data, Team(), streams=True, pins=False).batch(1)
    run.update(batch)
    plain = Descriptor(settings.model, torch.Generator().manual_seed(0)).train()
    optimizer = torch.optim.SGD(plain.parameters(), 10.0, 0.9, 0.9, 1e-4)
    patches = sample_patches(batch.patches, batch.index.flatten(), batch.warps.flatten(0, 1), 8)
    rows = [plain.embed(plain.feature_maps(part)) for part in patches.chunk(2)]
    pair_loss(*rows, settings.loss).backward()
    optimizer.step()
    for (name, mine), theirs in zip(run.model.state_dict().items(), plain.state_dict().values(), strict=True):
        if "num_batches" not in name:
            # The first update moves weights by up to 10: 1e-4 is float32 adding in another order.
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, msg=name)


def test_tensorboard_gets_what_the_log_gets(small, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(config(small, loop={"tensorboard": True}), tmp_path / "run", device="cpu")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    logged = [entry["loss"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert [point.value for point in events.Scalars("training/loss")] == pytest.approx(logged, rel=1e-6)


def test_a_device_that_is_not_there_is_told():
    with pytest.raises(ArgumentError, match="auto, cpu or cuda"):
        chosen_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="no GPU"):
            chosen_device("cuda")


def test_nothing_of_an_earlier_run_is_handed_out(small, tmp_path):
    """Weights left by a run stopped between its first validation and its first checkpoint are not the next run's."""
    early = config(small, loop={"validate_every": 2, "save_every": 12, "log_every": 3})
    with pytest.raises(StopIteration):
        train(early, tmp_path / "run", device="cpu", report=_stopper(3))
    assert (tmp_path / "run" / "best.safetensors").exists()
    with pytest.raises(FileError, match="holds a run already"):
        train(config(small), tmp_path / "run", device="cpu")
    unvalidated = config(small, data={"validation": []}, model={"D": 8})
    outcome = train(unvalidated, tmp_path / "run", device="cpu", resume=True)
    assert outcome.weights == tmp_path / "run" / "final.safetensors"
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_synthetic_sets_follow_the_configuration(small, tmp_path):
    synthetic = {**small, "data": {"synthetic": {"points": 6, "patches": 2, "validation_points": 4}}}
    with pytest.raises(ArgumentError, match="a batch of 8 pairs"):
        train(config(synthetic), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.raises(ArgumentError, match="a batch of 8 pairs"):
        train(config(synthetic), tmp_path / "run", device="cpu")
    more = merged(synthetic, {"data": {"synthetic": {"points": 12}}})
    assert train(config(more), tmp_path / "run", device="cpu").is_finished
    assert len(open_patch_set(tmp_path / "run" / "sets" / "train")) == 24


def tree(folder):
    """Every file's bytes, by its place."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["train", "validation"])
@pytest.mark.parametrize("kind", ["synthetic", "colmap"])
def test_a_set_of_another_source_is_refused_and_left_alone(small, tmp_path, name, kind):
    """`matchkernel train tiny.toml -o .` where the user keeps sets of their own."""
    mine = tmp_path / "sets" / name
    mine.parent.mkdir()
    build_synthetic(mine, SyntheticSettings(points=5, patches=2, size=16))
    manifest = json.loads((mine / "manifest.json").read_text())
    manifest["source"]["kind"] = kind
    (mine / "manifest.json").write_text(json.dumps(manifest))
    before = tree(tmp_path)
    synthetic = {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 4}}}
    refused = rf"sets/{name}: a set of another configuration or source; remove it or choose another --out$"
    with pytest.raises(FileError, match=refused):
        train(config(synthetic), tmp_path, device="cpu")
    assert tree(tmp_path) == before


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


def test_a_set_that_is_not_needed_is_left_alone(small, tmp_path):
    mine = tmp_path / "sets" / "validation"
    mine.mkdir(parents=True)
    (mine / "mine").write_text("kept")
    synthetic = {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 0}}}
    assert train(config(synthetic), tmp_path, device="cpu").is_finished
    assert (mine / "mine").read_text() == "kept"


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


def test_resume_without_a_checkpoint_leaves_final_weights_alone(small, tmp_path):
    train(config(small), tmp_path / "run", device="cpu")
    for name in ("last", "previous"):
        (tmp_path / "run" / f"{name}.safetensors").unlink()
    before = tree(tmp_path)
    with pytest.raises(
        FileError, match=r"run: holds final weights and no checkpoint to go on from; choose another --out$"
    ):
        train(config(small), tmp_path / "run", device="cpu", resume=True)
    assert tree(tmp_path) == before


def test_a_set_that_cannot_be_validated_on_is_refused_at_once(small, tmp_path):
    build_synthetic(tmp_path / "single", SyntheticSettings(points=5, patches=1, size=16))
    with pytest.raises(ArgumentError, match="single: validation needs two points"):
        train(config(small, data={"validation": str(tmp_path / "single")}), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_speed_is_that_of_training_alone(small, tmp_path):
    """Validations and checkpoints at every step take far longer than a step; the speed does not show them."""
    calm, busy = [], []
    quiet = {"log_every": 4, "save_every": 100, "validate_every": 100}
    train(config(small, loop=quiet), tmp_path / "calm", device="cpu", report=calm.append)
    often = {"log_every": 4, "save_every": 1, "validate_every": 1}
    train(config(small, loop=often), tmp_path / "busy", device="cpu", report=busy.append)
    calm, busy = ([line.patches_per_second for line in lines if line.validation is None] for lines in (calm, busy))
    assert all(speed > 0 for speed in (*calm, *busy))
    fastest = max(calm), max(busy)
    assert fastest[1] > fastest[0] / 20  # validations take hundreds of times as long as a step


def test_compile_yes_is_refused_where_it_cannot_be(small, tmp_path):
    with pytest.raises(ArgumentError, match="needs a GPU and a single process"):
        train(config(small, loop={"compile": "yes"}), tmp_path / "run", device="cpu")


def test_a_file_system_without_links_keeps_a_copy(small, tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)  # what FAT does
    train(config(small), tmp_path / "run", device="cpu")
    assert read_checkpoint(tmp_path / "run" / "previous.safetensors").step == 9
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 12
