"""The moving average of the weights: what it is, what is made of it, and that training does not notice it."""

import pytest
import torch
from made_runs import assert_equal, saved, weights

from matchkernel import load
from matchkernel.data.patch_set import open_patch_set
from matchkernel.storage.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.loop import train
from matchkernel.training.optimizer import Optimizer, Updater, averaged, running_statistics
from matchkernel.training.sets import TrainingSet
from matchkernel.training.state import TrainingState
from matchkernel.training.validation import validate

AVERAGE = 0.4  # what the warm-up, (1 + t) / (10 + t), comes to at step 5


def config(tables, **changes):
    return TrainingConfig.from_dict(merged(tables, {"optimizer": {"average": AVERAGE}}, changes))


def without(tables, **changes):
    return config(tables, **merged(changes, {"optimizer": {"average": 0.0}}))


def fresh_run(settings, tables, folder):
    run = TrainingState(
        settings, folder, TrainingSet([open_patch_set(tables["data"]["train"])]), [], Team(), torch.device("cpu")
    )
    return run, Feed(settings, run.data, Team(), streams=run.source is None, pins=False)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_average_is_a_plain_loop(kind):
    random = torch.Generator().manual_seed(0)
    p, statistic = (torch.randn(5, 3, generator=random, dtype=torch.float64) for _ in range(2))
    updater = Updater([p], Optimizer(kind, rate=0.1, average=AVERAGE), [statistic])
    wanted = [p.clone(), statistic.clone()]
    for step in range(1, 21):
        statistic += torch.randn(5, 3, generator=random, dtype=torch.float64)
        gradient = torch.randn(5, 3, generator=random, dtype=torch.float64)
        updater.update([gradient], torch.tensor(0.1).double(), torch.tensor(float(step)).double())
        decay = min(AVERAGE, (1 + step) / (10 + step))
        wanted = [decay * old + (1 - decay) * new for old, new in zip(wanted, (p, statistic), strict=True)]
        for found, reference, now in zip(updater.state["average"], wanted, (p, statistic), strict=True):
            assert (found - reference).abs().max() < 1e-13
            assert (found - now).abs().max() > 1e-3


def test_the_final_weights_are_the_average_of_those_of_every_step(small, tmp_path):
    train(config(small), tmp_path / "run", device="cpu")
    run, feed = fresh_run(without(small), small, tmp_path)
    wanted = {name: tensor.double() for name, tensor in run.model.state_dict().items()}
    for step in range(1, 13):
        run.update(feed.batch(step))
        decay = min(AVERAGE, (1 + step) / (10 + step))
        wanted = {
            name: decay * wanted[name] + (1 - decay) * new.double() for name, new in run.model.state_dict().items()
        }
    final, raw = weights(tmp_path / "run"), run.model.state_dict()
    assert any("running_var" in name for name in final)
    for name in final:
        if "num_batches" in name:
            assert torch.equal(final[name], raw[name])
        else:
            torch.testing.assert_close(final[name].double(), wanted[name], rtol=1e-5, atol=1e-6, msg=name)
    assert (final["projection.weight"] - raw["projection.weight"]).norm() > 1e-2


def test_validation_and_the_best_weights_are_of_the_average(small, tmp_path):
    outcome = train(config(small, loop={"validate_every": 12}), tmp_path / "run", device="cpu")
    assert_equal(weights(tmp_path / "run", "best.safetensors"), weights(tmp_path / "run"))
    again = validate(load(outcome.weights), [open_patch_set(small["data"]["validation"])])
    assert again == {name: outcome.best[name] for name in again}


def test_training_does_not_notice(small, whole_run, tmp_path):
    often = {"validate_every": 2, "save_every": 2}
    train(config(small, loop=often), tmp_path / "run", device="cpu")
    train(config(small, loop={"validate_every": 12}), tmp_path / "calm", device="cpu")
    assert_equal(saved(tmp_path / "run", "model."), saved(whole_run, "model."))
    assert_equal(saved(tmp_path / "run", "optimizer.momentum."), saved(whole_run, "optimizer."))
    assert_equal(saved(tmp_path / "run"), saved(tmp_path / "calm"))


def test_off_leaves_no_trace_in_what_is_saved(small, whole_run, tmp_path):
    settings = without(small)
    checkpoint = read_checkpoint(whole_run / "last.safetensors")
    assert {name.split(".")[1] for name in checkpoint.tensors if name.startswith("optimizer")} == {"momentum"}
    assert "average" not in checkpoint.config["optimizer"]  # so that runs saved before there was one go on
    assert config(small).binding()["optimizer"]["average"] == AVERAGE
    run, _ = fresh_run(settings, small, tmp_path)
    assert averaged(run.model, run.updater) is run.model


@pytest.mark.slow
def test_the_compiled_update_averages_too(small, tmp_path):
    """In one graph: nothing waits for the device to tell the step."""
    results = []
    for compiles in (False, True):
        run, feed = fresh_run(config(small), small, tmp_path)
        update = run.updater.update
        if compiles:
            run.updater.update = torch.compile(update, fullgraph=True, dynamic=False, backend="aot_eager")
        for step in (1, 2, 3):
            run.update(feed.batch(step))
        results.append(run.updater.state["average"])
    plain, compiled = results
    assert len(plain) == len(list(run.model.parameters())) + len(running_statistics(run.model)) == 8 + 14
    for a, b in zip(plain, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
