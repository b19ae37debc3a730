"""A run as a whole: it learns, its files say what it did, and nothing goes wrong silently."""

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from made_runs import assert_equal, config, tree, weights
from typer.testing import CliRunner

from matchkernel import describe, load
from matchkernel.cli.app import app
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError
from matchkernel.model.descriptors import Descriptor
from matchkernel.runtime.card import read_card
from matchkernel.storage.settings import merged
from matchkernel.training.augment import sample_patches
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team, chosen_device
from matchkernel.training.feed import Feed
from matchkernel.training.log import read_log
from matchkernel.training.loop import train
from matchkernel.training.loss import pair_loss
from matchkernel.training.sets import TrainingSet
from matchkernel.training.state import TrainingState

TINY = Path(__file__).parents[2] / "configs" / "tiny.toml"


def learns(folder, *overrides):
    """The best validation of a run of tiny.toml with these changes, and by how much its loss fell."""
    settings = TrainingConfig.from_toml(TINY, overrides)
    outcome = train(settings, folder, device="cpu")
    assert outcome.is_finished
    losses = [entry["loss"] for entry in read_log(folder / "log.jsonl") if entry["event"] == "training"]
    return outcome.best, losses[0] - losses[-1]


SMALLER = ["model.patch_size=8", "model.d=32", "model.D=32", "sampling.pairs=32", "sampling.steps=60"]
SMALLER += ["data.synthetic.points=120", "data.synthetic.validation_points=60", "augmentation.flips=none"]
SMALLER += ["loop.log_every=10", "loop.validate_every=60"]


@pytest.mark.slow
def test_a_smaller_tiny_run_learns(tmp_path):
    """Untrained it has FPR@95 0.7 and mAP 0.43; of two seeds SGD came to 0.26 and 0.46."""
    best, fell = learns(tmp_path / "run", *SMALLER, "optimizer.rate=1.0")
    assert best["fpr95"] < 0.6
    assert fell > 0.15


@pytest.mark.slow
def test_a_smaller_tiny_run_learns_by_adamw(tmp_path):
    """Of two seeds it came to FPR@95 0.12 and 0.17."""
    best, fell = learns(tmp_path / "run", *SMALLER, "optimizer.kind=adamw", "optimizer.rate=0.01")
    assert best["fpr95"] < 0.3
    assert best["map"] > 0.6
    assert fell > 0.25


@pytest.mark.slow
def test_the_tiny_run_learns(tmp_path):
    """Chance is FPR@95 = 0.95; 120 of tiny.toml's 300 steps bring it below 0.3."""
    steps = ["sampling.steps=120", "loop.log_every=20", "loop.validate_every=120"]
    best, fell = learns(tmp_path / "run", *steps)
    assert best["fpr95"] < 0.3
    assert best["map"] > 0.4
    assert fell > 0.15


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
    from matchkernel.training.validation import validate

    model, best = load(whole_run / "best.safetensors"), read_checkpoint(whole_run / "last.safetensors").best
    validation = open_patch_set(small["data"]["validation"])
    again = validate(model, [validation])
    assert again == {name: best[name] for name in ("fpr95", "map")}
    assert describe(np.array(validation.patches), model, resize=True).shape == (60, 16)


def test_the_caller_keeps_its_random_numbers_and_signals(small, tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    train(config(small, model={"variant": "fc", "s": None} | {"dropout": 0.3}), tmp_path / "run", device="cpu")
    assert torch.equal(torch.rand(3), wanted)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_same_seed_gives_the_same_weights_and_another_others(small, tmp_path, whole):
    """Also in another thread, where no signals can be caught."""
    thread = threading.Thread(target=train, args=(config(small), tmp_path / "again"), kwargs={"device": "cpu"})
    thread.start()
    thread.join()
    train(config(small, seed=1), tmp_path / "other", device="cpu")
    assert_equal(weights(tmp_path / "again"), whole)
    assert not torch.equal(weights(tmp_path / "other")["projection.weight"], whole["projection.weight"])


def test_what_cannot_work_is_refused_before_the_first_step_and_leaves_nothing(small, tmp_path):
    build_synthetic(tmp_path / "single", SyntheticSettings(points=12, patches=1, size=16))
    for changes, words in [
        ({"sampling": {"pairs": 64}}, "a batch of 64 pairs needs 64 points"),
        ({"data": {"train": "nowhere"}}, "nowhere"),
        ({"data": {"validation": "nowhere"}}, "nowhere"),
        ({"data": {"train": str(tmp_path / "single")}}, "no point has two patches"),
        ({"data": {"validation": str(tmp_path / "single")}}, "single: validation needs two points"),
        ({"loop": {"compile": "yes"}}, "needs a GPU and a single process"),
    ]:
        with pytest.raises((ArgumentError, FileError), match=words):
            train(config(small, **changes), tmp_path / "run", device="cpu")
        assert not (tmp_path / "run").exists(), words


def test_a_folder_that_cannot_be_written_is_refused_before_the_data_is_opened(small, tmp_path):
    (tmp_path / "file").write_text("")
    unopened = config(small, data={"train": str(tmp_path / "nowhere")})
    for out, words in [("file", "is not a folder"), ("file/run", "is not a folder")]:
        with pytest.raises(FileError, match=words):
            train(unopened, tmp_path / out, device="cpu")


def test_a_folder_inside_a_training_set_is_refused(small, small_sets):
    before = tree(small_sets)
    for place in (small_sets / "train", small_sets / "train" / "run"):
        with pytest.raises(
            ArgumentError, match=r"is (one of the inputs|inside the input .*train); choose another place"
        ):
            train(config(small), place, device="cpu")
    assert tree(small_sets) == before


def test_streamed_patches_are_the_resident_ones(small, tmp_path, whole):
    resident = config(small, loop={"resident": "yes"})
    train(resident, tmp_path / "run", device="cpu")
    assert_equal(weights(tmp_path / "run"), whole)


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


@pytest.mark.parametrize(("name", "kind"), [("train", "synthetic"), ("validation", "colmap")])
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


def test_a_set_that_is_not_needed_is_left_alone(small, tmp_path):
    mine = tmp_path / "sets" / "validation"
    mine.mkdir(parents=True)
    (mine / "mine").write_text("kept")
    synthetic = {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 0}}}
    assert train(config(synthetic), tmp_path, device="cpu").is_finished
    assert (mine / "mine").read_text() == "kept"


def test_speed_is_that_of_training_alone(small, tmp_path, slow_clock):
    """Validations and checkpoints take far longer than a step; the speed does not show them."""
    lines = []
    for name in ("_validate", "_write_checkpoint"):
        slow_clock.add(TrainingState, name, 1000)
    often = {"log_every": 4, "save_every": 1, "validate_every": 3}
    train(config(small, loop=often), tmp_path / "run", device="cpu", report=lines.append)
    assert [line.patches_per_second for line in lines if line.validation is None] == [16, 16, 16]


def test_a_set_that_is_trained_on_and_validated_on_is_named(small_toml, small_sets, tmp_path):
    words = ["train", small_toml, "-o", tmp_path / "run", "--device", "cpu", "--set", "sampling.steps=1"]
    told = [
        CliRunner().invoke(app, [*map(str, words), "--set", f"data.validation={small_sets / name}"]).stderr
        for name in ("train", "validation")
    ]
    assert f"warning: {small_sets / 'train'} is trained on and validated on" in told[0]
    assert "warning" not in told[1]
