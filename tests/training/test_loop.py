"""A run as a whole: it learns, writes what it should, and refuses what cannot work before the first step."""

import json
import re
import shutil
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import good
from helpers import copied_from_scene, refuses, tree
from made_runs import assert_equal, config, weights

from matchkernel import describe, load
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.evaluation.method import SAME_NAME
from matchkernel.evaluation.methods import model_methods
from matchkernel.model.descriptors import Descriptor
from matchkernel.runtime.weights import read_card
from matchkernel.training import log, state
from matchkernel.training.augment import sample_patches
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.log import read_log
from matchkernel.training.loop import train
from matchkernel.training.loss import pair_loss
from matchkernel.training.sets import TrainingSet
from matchkernel.training.state import TrainingState
from matchkernel.training.step import Update
from matchkernel.training.validation import validate

TINY = Path(__file__).parents[2] / "configs" / "tiny.toml"


@pytest.mark.slow
def test_the_tiny_run_learns(tmp_path):
    """Chance is FPR@95 = 0.95; 120 of tiny.toml's 300 steps bring it below 0.3."""
    overrides = ["sampling.steps=120", "loop.log_every=20", "loop.validate_every=120"]
    outcome = train(TrainingConfig.from_toml(TINY, overrides), tmp_path / "run", device="cpu")
    losses = [entry["loss"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert outcome.best["fpr95"] < 0.3
    assert outcome.best["map"] > 0.4
    assert losses[0] - losses[-1] > 0.15


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
    assert TrainingConfig.from_dict(card.training) == config(small)
    assert card.trained_on == "train"
    manifest = open_patch_set(small["data"]["train"]).manifest
    assert card.training_sets == (("train", manifest["sha256"]["patches.npy"]),)


def test_the_weights_describe_patches_as_the_run_validated_them(small, whole_run):
    model, best = load(whole_run / "best.safetensors"), read_checkpoint(whole_run / "last.safetensors").best
    validation = open_patch_set(small["data"]["validation"])
    assert validate(model, [validation]) == {name: best[name] for name in ("fpr95", "map")}
    assert describe(np.array(validation.patches), model, resize=True).shape == (60, 16)


def test_the_caller_keeps_its_random_numbers_and_signals(small, tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    train(config(small, model={"variant": "fc", "s": None} | {"dropout": 0.3}), tmp_path / "run", device="cpu")
    assert torch.equal(torch.rand(3), wanted)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(small, tmp_path, whole):
    """Also in another thread, where no signals can be caught, and with patches on the device."""
    kwargs = {"device": "cpu"}
    thread = threading.Thread(
        target=train, args=(config(small, loop={"resident": "yes"}), tmp_path / "again"), kwargs=kwargs
    )
    thread.start()
    thread.join()
    train(config(small, seed=1), tmp_path / "other", device="cpu")
    assert_equal(weights(tmp_path / "again"), whole)
    assert not torch.equal(weights(tmp_path / "other")["projection.weight"], whole["projection.weight"])


def test_separate_statistics_are_those_of_two_passes(small, small_sets, tmp_path):
    """One pass with grouped statistics, against anchors and positives sent through a plain model in turn.

    Sums in another order move numbers by 1e-6, and a ReLU or a hardest negative that turns with them the update by up
    to 1e-3 of itself; statistics that were not separate would change it by 0.9.
    """
    settings = config(small)
    data = TrainingSet([open_patch_set(small_sets / "train")])
    run = TrainingState(settings, tmp_path, data, [], Team(), torch.device("cpu"))
    batch = Feed(settings, data, Team(), streams=True).batch(1)
    start = flat(run.model)
    run.update(batch)
    plain = Descriptor(settings.model, torch.Generator().manual_seed(0)).train()
    optimizer = torch.optim.SGD(plain.parameters(), 10.0, 0.9, 0.9, 1e-4)
    patches = sample_patches(batch.patches, batch.index.flatten(), batch.warps.flatten(0, 1), 8)
    rows = [plain.embed(plain.feature_maps(part)) for part in patches.chunk(2)]
    pair_loss(*rows, settings.loss).backward()
    optimizer.step()
    assert (flat(run.model) - flat(plain)).norm() < 1e-2 * (flat(plain) - start).norm()
    for (name, mine), theirs in zip(run.model.named_buffers(), plain.buffers(), strict=True):
        if "running" in name:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=name)


def flat(model):
    """All parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_tensorboard_shows_the_losses_of_the_log(small, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(config(small, loop={"tensorboard": True}), tmp_path / "run", device="cpu")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    logged = [entry["loss"] for entry in read_log(tmp_path / "run" / "log.jsonl") if entry["event"] == "training"]
    assert [point.value for point in events.Scalars("training/loss")] == pytest.approx(logged, rel=1e-6)


def test_speed_is_that_of_training_alone(small, tmp_path, monkeypatch):
    """On a clock on which an update takes a second and validations and checkpoints a thousand; 16 patches per step."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(log, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    for kind, name, seconds in ((Update, "__call__", 1), (state, "validate", 1000), (state, "write_checkpoint", 1000)):
        method = getattr(kind, name)

        def slow(*arguments, method=method, seconds=seconds):
            clock.now += seconds
            return method(*arguments)

        monkeypatch.setattr(kind, name, slow)
    lines, often = [], {"log_every": 4, "save_every": 1, "validate_every": 3}
    train(config(small, loop=often), tmp_path / "run", device="cpu", report=lines.append)
    assert [line.patches_per_second for line in lines if line.validation is None] == [16, 16, 16]


REFUSED = {
    "more pairs than points": {"sampling": {"pairs": 64}},
    "no training set": {"data": {"train": "nowhere"}},
    "no validation set": {"data": {"validation": "nowhere"}},
    "training points of one patch": {"data": {"train": "SINGLE"}},
    "validation points of one patch": {"data": {"validation": "SINGLE"}},
    "validation lists without pairs": {"data": {"validation": "NONE"}},
    "validation lists of matches alone": {"data": {"validation": "MATCHES"}},
    "validation lists of others alone": {"data": {"validation": "OTHERS"}},
    "no compiler on the CPU": {"loop": {"compile": "yes"}},
    "no such device": "tpu",
    "a file in its place": "file",
    "a file above it": "file/run",
    "the training set in its place": "SETS/train",
    "the training set above it": "SETS/train/run",
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_before_the_first_step_and_leaves_nothing(change, small, small_sets, tmp_path):
    build_synthetic(tmp_path / "single", SyntheticSettings(points=12, patches=1, size=16))
    for name, rows in {"none": [], "matches": [[0, 1, 1]], "others": [[0, 4, 0]]}.items():
        (shutil.copytree(small_sets / "validation", tmp_path / name) / "pairs").mkdir()
        np.save(tmp_path / name / "pairs" / "x.npy", np.array(rows, np.int64).reshape(-1, 3))
    (tmp_path / "file").write_text("")
    before = tree(tmp_path), tree(small_sets)
    changes, out, device = {}, tmp_path / "run", "cpu"
    if isinstance(change, dict):
        text = re.sub(
            '"(SINGLE|NONE|MATCHES|OTHERS)"', lambda found: f'"{tmp_path / found[1].lower()}"', json.dumps(change)
        )
        changes = json.loads(text)
    elif change == "tpu":
        device = change
    else:
        out = tmp_path / change.replace("SETS", str(small_sets))
    with refuses(MatchKernelError):
        train(config(small, **changes), out, device=device)
    assert (tree(tmp_path), tree(small_sets)) == before


def test_synthetic_sets_follow_the_configuration(synthetic, tmp_path):
    for _ in range(2):
        with refuses(ArgumentError):  # fewer points than pairs
            train(config(synthetic, data={"synthetic": {"points": 6}}), tmp_path / "run", device="cpu")
        assert not (tmp_path / "run" / "log.jsonl").exists()
        (tmp_path / "run").mkdir(exist_ok=True)  # now with the folder there
    assert train(config(synthetic), tmp_path / "run", device="cpu").is_finished
    assert len(open_patch_set(tmp_path / "run" / "sets" / "train")) == 24
    own = tmp_path / "own"  # a folder where the user keeps a set of their own
    build_synthetic(own / "sets" / "validation", SyntheticSettings(points=5, patches=2, size=16))
    before = tree(own)
    with refuses(FileError):
        train(config(synthetic), own, device="cpu")
    assert tree(own) == before


def test_a_scene_that_was_trained_on_is_recognised_in_patches_cut_anew(small, small_sets, tmp_path):
    six = copied_from_scene(small_sets / "train", tmp_path / "six", "church")
    twelve = copied_from_scene(small_sets / "other", tmp_path / "twelve", "church")
    train(config(small, data={"train": [str(six)]}, sampling={"steps": 1}), tmp_path / "run", device="cpu")
    (method,) = model_methods([(None, tmp_path / "run" / "final.safetensors")])
    assert method.doubts("twelve", open_patch_set(twelve)) == [SAME_NAME.format("church")]
    assert not method.doubts("other", open_patch_set(small_sets / "other"))
    assert method.facts["train_set"] == "six"


def test_a_set_that_is_trained_on_and_validated_on_is_named(small_toml, small_sets, tmp_path):
    """By its patches: also a copy, a path in other words, and a set that is mixed in."""
    copy = shutil.copytree(small_sets / "train", tmp_path / "copy")
    mixed = ("--set", f"data.mix={small_sets / 'other'}")
    for place, more, is_seen in (
        (small_sets / "train", (), True),
        (f"{small_sets}/../{small_sets.name}/train", (), True),
        (copy, (), True),
        (small_sets / "other", mixed, True),
        (small_sets / "other", (), False),
    ):
        options = ["-o", tmp_path / "run", "--device", "cpu", "--set", "sampling.steps=1", *more]
        printed = good("train", small_toml, *options, "--set", f"data.validation={place}").stderr
        shutil.rmtree(tmp_path / "run")
        assert (f"warning: {place}" in printed) == is_seen
