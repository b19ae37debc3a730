"""Runs that start from trained weights: what is copied, what continues to learn, what is refused, and resuming."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import refuses
from made_runs import assert_equal, config, saved, weights

from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save
from matchkernel.runtime.weights import Card, read_card
from matchkernel.training.config import StartSettings, TeacherSettings, TrainingConfig
from matchkernel.training.loop import train
from matchkernel.training.sets import TrainingSet, open_sets
from matchkernel.training.start import start_from
from matchkernel.training.teacher import open_teacher

MODEL = {"variant": "cartesian", "s": 1, "patch_size": 8, "d": 16, "D": 16}


def trained(path, seed=3, **changes):
    """A weight file whose BatchNorm statistics are not the initial ones."""
    model = build(**{**MODEL, **changes}, generator=torch.Generator().manual_seed(seed)).train()
    with torch.no_grad():
        model(torch.rand(32, 1, model.config.patch_size, model.config.patch_size) * 255)
    save(model, path, Card(trained_on="elsewhere", training_sets=(("elsewhere", "0" * 64),), licence="CC0"))
    return path


@pytest.fixture
def started(small, tmp_path):
    """Nested tables of a run from a trained file, without a table `model`."""
    file = trained(tmp_path / "base.safetensors")
    return {**{name: table for name, table in small.items() if name != "model"}, "start": {"weights": str(file)}}


def test_the_model_is_that_of_the_weights_unless_the_run_changes_it(started, tmp_path):
    assert config(started).model == load(started["start"]["weights"]).config
    assert config(started, model={"D": 8}).model.D == 8
    assert TrainingConfig.from_dict(config(started).to_dict()) == config(started)
    save(build("fc", d=16, D=16, patch_size=8), tmp_path / "fc.safetensors")
    assert config(started, start={"weights": str(tmp_path / "fc.safetensors")}).model.variant == "fc"


def test_weights_and_statistics_are_those_of_the_file_and_another_D_is_a_new_head(tmp_path):
    file = trained(tmp_path / "base.safetensors")
    for D in (16, 6):
        model = build(**{**MODEL, "D": D})
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        start_from(str(file), model)
        old = load(file).state_dict()
        for name, tensor in model.state_dict().items():
            is_new = D == 6 and name.startswith(("projection", "output_norm"))
            assert torch.equal(tensor, before[name] if is_new else old[name]), name


def test_best_is_never_worse_than_the_start(started, tmp_path, monkeypatch):
    scores = iter((0.9, 0.8, 0.7))
    monkeypatch.setattr("matchkernel.training.state.validate", lambda *_: {"map": next(scores), "fpr95": 0.0})
    outcome = train(config(started), tmp_path / "run", device="cpu")
    assert outcome.best["step"] == 0
    assert_equal(weights(tmp_path / "run", "best.safetensors"), load(started["start"]["weights"]).state_dict())
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries if entry["event"] == "validation"] == [0, 6, 12]


@pytest.mark.parametrize(("layers", "fixed"), [
    ("all", ()),
    ("last", tuple(f"backbones.0.layers.{k}." for k in range(15))),
    ("head", ("backbones.",)),
])  # fmt: skip
def test_only_the_chosen_layers_learn(started, tmp_path, layers, fixed):
    started["start"]["layers"] = layers
    train(config(started), tmp_path / "run", device="cpu")
    old, new = load(started["start"]["weights"]).state_dict(), weights(tmp_path / "run")
    for name, tensor in new.items():
        assert torch.equal(tensor, old[name]) == name.startswith(fixed), name


def test_the_card_names_the_start_and_everything_trained_on(started, tmp_path):
    train(config(started), tmp_path / "run", device="cpu")
    card = read_card(tmp_path / "run" / "final.safetensors")
    assert card.other["started_from"].startswith("base ")
    assert card.trained_on == "elsewhere, train"
    assert [name for name, _ in card.training_sets] == ["elsewhere", "train"]
    assert card.licence == "CC0"
    assert card.training["start"]["layers"] == "all"


def test_a_stopped_run_resumes_to_the_same_weights(started, tmp_path):
    train(config(started), tmp_path / "whole", device="cpu")
    asked = []
    outcome = train(
        config(started), tmp_path / "run", device="cpu", stop_when=lambda: asked.append(0) or len(asked) == 5
    )
    assert (outcome.step, outcome.is_finished) == (5, False)
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes((tmp_path / "base.safetensors").read_bytes())
    there = {**started, "start": {"weights": str(moved)}}
    assert train(config(there), tmp_path / "run", device="cpu", resume=True).is_finished
    assert_equal(saved(tmp_path / "run"), saved(tmp_path / "whole"))
    trained(moved, seed=9)
    with refuses(ArgumentError):
        train(config(there), tmp_path / "run", device="cpu", resume=True)
    with refuses(ArgumentError):
        train(config(started, start={"layers": "head"}), tmp_path / "run", device="cpu", resume=True)


def test_a_run_killed_before_its_first_update_can_be_resumed(started, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("matchkernel.training.state.validate", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(config(started), tmp_path / "run", device="cpu")
    assert train(config(started), tmp_path / "run", device="cpu", resume=True).is_finished


def test_a_model_taught_by_its_own_start_has_nothing_to_learn_from_it(small_sets, tmp_path):
    """The teacher's rows are not rotated to their principal dimensions, as they are for a model with random weights."""
    file = trained(tmp_path / "base.safetensors")
    settings, model, data = TeacherSettings((str(file),)), load(file), TrainingSet(open_sets([small_sets / "train"]))
    seen = torch.rand(20, 1, 8, 8) * 255
    with torch.no_grad():
        rows = model(seen).chunk(2)
    losses = []
    for turns in (False, True):
        teacher = open_teacher(settings, model.config, data, torch.device("cpu"), in_half=False, turns=turns)
        losses.append(float(teacher.loss(rows, teacher(seen).chunk(2), 1.0)))
    assert losses[0] < 1e-6 < 0.1 < losses[1]


@pytest.mark.parametrize(("start", "model", "error"), [
    *(({}, model, ArgumentError) for model in (
        {"variant": "polar"}, {"s": 2}, {"d": 32}, {"widths": [4, 8, 8]}, {"center_weight": False},
        {"output_norm": "none"},
    )),
    ({"weights": "fc"}, {"patch_size": 16}, ArgumentError),
    ({"weights": "sum", "layers": "head"}, {}, ArgumentError),
    ({"weights": "nowhere"}, {}, WeightsError),
], ids=repr)  # fmt: skip
def test_what_does_not_fit_the_weights_is_refused_before_anything_is_written(started, tmp_path, start, model, error):
    save(build("fc", d=16, D=16, patch_size=8), tmp_path / "fc.safetensors")
    save(build("sum", d=16, patch_size=8), tmp_path / "sum.safetensors")
    if "weights" in start:
        start = {**start, "weights": str(tmp_path / f"{start['weights']}.safetensors")}
    with refuses(error):
        train(config(started, start=start, model=model), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_model_without_the_widths_of_the_weights_is_refused(started, tmp_path):
    """As it can be built in Python; from tables the widths would be those of the weights."""
    file = trained(tmp_path / "narrow.safetensors", widths=[4, 8], halvings=[1, 2])
    with refuses(ArgumentError):
        train(replace(config(started), start=StartSettings(str(file))), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
