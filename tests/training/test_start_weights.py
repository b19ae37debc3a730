"""Runs that start from trained weights: what is copied, what goes on learning, what is refused, and resuming."""

import json

import pytest
import torch
from made_runs import assert_equal, config, saved, weights

from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save
from matchkernel.runtime.card import Card, read_card
from matchkernel.training.config import TeacherSettings, TrainingConfig
from matchkernel.training.loop import train
from matchkernel.training.sets import TrainingSet, open_sets
from matchkernel.training.start import base_config, start_from
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
    """Nested tables of a run from a trained file, which says nothing about its model."""
    file = trained(tmp_path / "base.safetensors")
    return {**{name: table for name, table in small.items() if name != "model"}, "start": {"weights": str(file)}}


def test_the_model_is_that_of_the_weights_unless_the_run_changes_it(started):
    assert config(started).model == load(started["start"]["weights"]).config
    assert config(started, model={"D": 8}).model.D == 8
    again = TrainingConfig.from_dict(config(started).to_dict())
    assert again == config(started)


def test_weights_and_statistics_are_those_of_the_file(tmp_path):
    file = trained(tmp_path / "base.safetensors")
    model = build(**MODEL)
    start = start_from(str(file), "all", model)
    assert_equal(model.state_dict(), load(file).state_dict())
    assert not start.has_new_head


def test_a_new_dimension_is_a_new_head_on_the_old_network(tmp_path):
    file = trained(tmp_path / "base.safetensors")
    model = build(**{**MODEL, "D": 6})
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert start_from(str(file), "all", model).has_new_head
    old, now = load(file).state_dict(), model.state_dict()
    for name, tensor in now.items():
        is_head = name.startswith(("projection", "output_norm"))
        assert torch.equal(tensor, before[name] if is_head else old[name]), name


def test_best_is_never_worse_than_the_start(started, tmp_path, monkeypatch):
    scores = iter((0.9, 0.8, 0.7))
    monkeypatch.setattr("matchkernel.training.state.validate", lambda *_: {"map": next(scores), "fpr95": 0.0})
    outcome = train(config(started), tmp_path / "run", device="cpu")
    assert outcome.best["step"] == 0
    assert_equal(weights(tmp_path / "run", "best.safetensors"), load(started["start"]["weights"]).state_dict())
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries if entry["event"] == "validation"] == [0, 6, 12]


@pytest.mark.parametrize("average", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
@pytest.mark.parametrize(("layers", "fixed"), [
    ("all", ()),
    ("last", tuple(f"backbones.0.layers.{k}." for k in range(15))),
    ("head", ("backbones.",)),
])  # fmt: skip
def test_only_the_chosen_layers_learn(started, tmp_path, layers, fixed, average):
    started["start"]["layers"] = layers
    train(config(started, optimizer={"average": average}), tmp_path / "run", device="cpu")
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
    with pytest.raises(ArgumentError, match="from other weights"):
        train(config(there), tmp_path / "run", device="cpu", resume=True)
    with pytest.raises(ArgumentError, match=r"trained with start.layers = 'all', not 'head'"):
        train(config(started, start={"layers": "head"}), tmp_path / "run", device="cpu", resume=True)


def test_a_run_killed_before_its_first_update_can_be_resumed(started, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("matchkernel.training.state.validate", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(config(started), tmp_path / "run", device="cpu")
    assert train(config(started), tmp_path / "run", device="cpu", resume=True).is_finished


def test_a_model_taught_by_its_own_start_has_nothing_to_learn_from_it(small_sets, tmp_path):
    """The teacher's rows are not turned to their principal dimensions, as for a model with random weights."""
    file = trained(tmp_path / "base.safetensors")
    settings, model, data = TeacherSettings((str(file),)), load(file), TrainingSet(open_sets([small_sets / "train"]))
    seen = torch.rand(20, 1, 8, 8) * 255
    with torch.no_grad():
        rows = model(seen).chunk(2)
    losses = []
    for turns in (False, True):
        teacher = open_teacher(settings, model.config, data, torch.device("cpu"), in_half=False, turns=turns)
        losses.append(float(teacher.loss(rows, teacher(seen).chunk(2), settings)))
    assert losses[0] < 1e-6 < 0.1 < losses[1]


@pytest.mark.parametrize(("model", "words"), [
    ({"variant": "polar"}, r"have variant = 'cartesian', the model 'polar'"),
    ({"s": 2}, r"have s = 1, the model 2: only D, the patch size and dropout may differ; leave model.s out"),
    ({"d": 32}, r"have d = 16, the model 32"),
    ({"widths": [4, 8, 8]}, r"have widths = None, the model \[4, 8, 8\]"),
    ({"center_weight": False}, r"have center_weight = True, the model False"),
    ({"output_norm": "none"}, r"have output_norm = 'batch', the model 'none'"),
])  # fmt: skip
def test_weights_that_do_not_fit_are_refused_before_anything_is_written(started, tmp_path, model, words):
    with pytest.raises(ArgumentError, match=words):
        train(config(started, model=model), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_fc_is_refused_at_another_patch_size(started, tmp_path):
    file = tmp_path / "fc.safetensors"
    save(build("fc", d=16, D=16, patch_size=8), file)
    with pytest.raises(ArgumentError, match="takes 8 px patches only"):
        train(config(started, start={"weights": str(file)}, model={"patch_size": 16}), tmp_path / "run", device="cpu")
    assert config(started, start={"weights": str(file)}).model.variant == "fc"


@pytest.mark.parametrize(("start", "words"), [
    ({"weights": ""}, "start.weights must name a weight file"),
    ({"layers": "some"}, "start.layers must be"),
    ({}, "start.weights must name"),
])  # fmt: skip
def test_refused_settings(small, start, words):
    with pytest.raises(ArgumentError, match=words):
        config({**small, "start": start})


def test_missing_weights_and_a_head_that_is_not_there(started, tmp_path):
    with pytest.raises(WeightsError, match="no such file"):
        config(started, start={"weights": "nowhere.safetensors"})
    file = tmp_path / "sum.safetensors"
    save(build("sum", d=16, patch_size=8), file)
    assert base_config(str(file), {})["d"] == 16
    with pytest.raises(ArgumentError, match="sum has no head"):
        config(started, start={"weights": str(file), "layers": "head"})
