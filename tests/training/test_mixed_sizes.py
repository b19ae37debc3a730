"""Patches of several sizes in one run: which size when, what is refused, what is learned."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from made_runs import assert_equal, saved

from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.storage.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed, draw_size
from matchkernel.training.loop import train
from matchkernel.training.sets import TrainingSet
from matchkernel.training.state import TrainingState
from matchkernel.training.step import Update

SIZES = [8, 12, 16]


def config(tables, **changes):
    return TrainingConfig.from_dict(merged(tables, {"sampling": {"patch_sizes": SIZES}}, changes))


def fresh_run(settings, folder):
    data = TrainingSet([open_patch_set(path) for path in settings.data.train])
    run = TrainingState(settings, folder, data, [], Team(), torch.device("cpu"))
    return run, Feed(settings, data, Team(), streams=run.source is None, pins=False)


def test_sizes_are_drawn_uniformly_from_seed_and_step():
    drawn = [draw_size((32, 48, 64), 3, step) for step in range(1, 3001)]
    assert drawn[1233] == draw_size((32, 48, 64), 3, 1234)
    assert drawn != [draw_size((32, 48, 64), 4, step) for step in range(1, 3001)]
    counts = [drawn.count(size) for size in (32, 48, 64)]
    assert sum(counts) == 3000
    assert all(abs(count - 1000) < 130 for count in counts)  # five standard deviations
    same = np.mean([a == b for a, b in pairwise(drawn)])
    assert 0.28 < same < 0.39


def test_every_update_sees_the_size_of_its_step(small, tmp_path):
    settings = config(small)
    run, feed = fresh_run(settings, tmp_path)
    seen = []
    run.model.backbones[0].register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    for step in range(1, 13):
        run.update(feed.batch(step))
    drawn = [draw_size(SIZES, 0, step) for step in range(1, 13)]
    assert seen == [(16, 1, size, size) for size in drawn]
    assert set(drawn) == set(SIZES)
    assert sorted(run.updates) == [(8, size) for size in SIZES]


def test_without_sizes_it_is_the_models(small, tmp_path):
    _, feed = fresh_run(TrainingConfig.from_dict(small), tmp_path)
    assert {feed.batch(step).size for step in range(1, 9)} == {8}


@pytest.mark.parametrize("variant", [pytest.param("dual", marks=pytest.mark.slow), "sum"])
def test_a_size_teaches_what_a_model_of_that_size_learns(small, tmp_path, variant):
    """The weights know no size: a model of 8 px that sees 16 px patches is one of 16 px, bit for bit."""
    for name, patch_size, sizes in (("other", 8, [16]), ("own", 16, []), ("small", 8, [])):
        model = {"variant": variant, "patch_size": patch_size, "d": 16}
        tables = {**small, "model": model, "sampling": {**small["sampling"], "steps": 4, "patch_sizes": sizes}}
        train(TrainingConfig.from_dict(tables), tmp_path / name, device="cpu")
    assert_equal(saved(tmp_path / "other"), saved(tmp_path / "own"))
    weight = "model.backbones.0.layers.0.weight"
    assert not torch.equal(saved(tmp_path / "other")[weight], saved(tmp_path / "small")[weight])


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(small, tmp_path):
    settings = config(small, optimizer={"average": 0.9})
    train(settings, tmp_path / "whole", device="cpu")

    def stop_at_8(line):
        if line.step == 8:
            raise StopIteration

    with pytest.raises(StopIteration):
        train(settings, tmp_path / "run", device="cpu", report=stop_at_8)
    assert read_checkpoint(tmp_path / "run" / "last.safetensors").step == 6
    train(settings, tmp_path / "run", device="cpu", resume=True)
    assert_equal(saved(tmp_path / "run"), saved(tmp_path / "whole"))


@pytest.mark.parametrize(("variant", "why"), [("fc", "learns a separate matrix W_p"), ("concat", "lists the features")])
def test_descriptors_of_one_size_are_refused(small, variant, why):
    tables = {**small, "model": {"variant": variant}}
    with pytest.raises(ArgumentError, match=rf"^sampling.patch_sizes must be empty: {variant} {why}") as caught:
        config(tables)
    assert "\n" not in str(caught.value)
    assert TrainingConfig.from_dict(tables).sampling.patch_sizes == ()


def test_sizes_no_descriptor_takes_are_refused(small):
    for size in (0, 4, 30, 516, -8):
        with pytest.raises(ArgumentError, match=r"^sampling.patch_sizes: patch_size must be"):
            config(small, sampling={"patch_sizes": [32, size]})


def test_one_size_may_be_given_bare_and_written_is_read(small):
    bare = config(small, sampling={"patch_sizes": 16})
    assert bare.sampling.patch_sizes == (16,)
    for settings in (bare, config(small)):
        assert TrainingConfig.from_dict(settings.to_dict()) == settings


@pytest.mark.slow
def test_the_loss_of_another_size_compiles_as_one_graph(small, tmp_path):
    settings = config({**small, "model": {"variant": "dual", "patch_size": 8, "d": 16}}, sampling={"patch_sizes": 16})
    run, feed = fresh_run(settings, tmp_path)
    run.update(feed.batch(1))
    update = run.updates[8, 16]
    compiled = torch.compile(update._loss, fullgraph=True, dynamic=False, backend="eager")
    drawn = torch.compile(update._drawn, fullgraph=True, dynamic=False, backend="eager")
    torch.testing.assert_close(drawn(), update._drawn())
    found, expected = (loss(update._drawn(), None) for loss in (compiled, update._loss))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_speed_leaves_out_what_prepares_a_new_size(small, tmp_path, slow_clock):
    lines = []
    slow_clock.add(Update, "capture", 1000, once=True)
    train(config(small), tmp_path / "run", device="cpu", report=lines.append)
    assert len({draw_size(SIZES, 0, step) for step in range(1, 5)}) > 1  # one is prepared while the clock runs
    assert [line.patches_per_second for line in lines if line.validation is None] == [16, 16, 16]
