"""BatchNorm statistics of a run at several patch sizes: measured for each, kept in the file, taken into use by size."""

import pytest
import torch
from made_runs import arithmetic_of_a_new_process, assert_equal, config, saved, small_tables

from matchkernel import describe, load, save
from matchkernel.data.patch_set import open_patch_set
from matchkernel.model.backbone import normalize_patches
from matchkernel.training import size_statistics, state
from matchkernel.training.augment import change_photometric, sample_patches
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.loop import train
from matchkernel.training.sets import TrainingSet

SIZES = [8, 12, 16]
FIRST = "backbones.0.layers.1"


@pytest.fixture(scope="module")
def run(small_sets, tmp_path_factory):
    """The settings of a run at several sizes, and its final weights; only to be read."""
    folder = tmp_path_factory.mktemp("sizes") / "run"
    photometric = {"noise": 3.0, "gamma": 0.3}
    settings = config(small_tables(small_sets), sampling={"patch_sizes": SIZES}, augmentation=photometric)
    with arithmetic_of_a_new_process():
        train(settings, folder, device="cpu")
    return settings, folder / "final.safetensors"


def batches(settings, size):
    """The patches of the first updates, at a size."""
    data = TrainingSet([open_patch_set(path) for path in settings.data.train])
    feed = Feed(settings, data, Team(), streams=True, pins=False)
    for step in range(1, size_statistics.PATCHES // (2 * settings.sampling.pairs) + 1):
        batch = feed.batch(step)
        patches = sample_patches(batch.patches, batch.index.flatten(), batch.warps.flatten(0, 1), size)
        yield change_photometric(patches, batch.photometric.flatten(0, 1), settings.augmentation)


@pytest.mark.parametrize("size", SIZES)
def test_they_are_means_over_batches_of_the_size(run, size):
    settings, path = run
    model = load(path, patch_size=size)
    maps = [model.backbones[0].layers[0](normalize_patches(patches)) for patches in batches(settings, size)]
    mean = torch.stack([phi.mean((0, 2, 3)) for phi in maps]).mean(0)
    variance = torch.stack([phi.transpose(0, 1).flatten(1).var(1) for phi in maps]).mean(0)
    norm = model.get_submodule(FIRST)
    torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(norm.running_var, variance, rtol=1e-4, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("size", SIZES)
def test_at_its_size_the_output_is_standardised(run, size):
    settings, path = run
    patches = torch.cat(list(batches(settings, size)))
    own, others = load(path, patch_size=size), load(path)
    others.use_statistics(next(other for other in SIZES if other != size))
    off = [float(m.embed(m.feature_maps(patches)).square().mean() - 1) for m in (own, others)]
    assert abs(off[0]) < 0.1 < abs(off[1])


def test_a_size_that_was_not_trained_has_those_of_the_models_own(run):
    _, path = run
    assert_equal(load(path, patch_size=20).statistics(), load(path).statistics())
    assert_equal(load(path).statistics(), load(path, patch_size=8).statistics())
    assert sorted(load(path).size_statistics) == SIZES


def test_saved_again_nothing_is_lost(run, tmp_path):
    _, path = run
    save(load(path, patch_size=16), tmp_path / "again.safetensors")
    again = load(tmp_path / "again.safetensors")
    assert again.config.patch_size == 16
    for size in SIZES:
        both = [load(file, patch_size=size).statistics() for file in (path, tmp_path / "again.safetensors")]
        assert_equal(*both)


def test_large_batches_go_through_in_pieces(run, monkeypatch):
    settings, path = run
    data = TrainingSet([open_patch_set(path) for path in settings.data.train])
    monkeypatch.setattr(size_statistics, "AT_A_TIME", 6)
    seen = []
    model = load(path)
    model.backbones[0].register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
    found = size_statistics.with_size_statistics(model, settings, data)
    assert seen == [(6, 1, size, size) for size in SIZES for _ in range(64 // 6)]
    assert sorted(found.size_statistics) == SIZES


def test_weights_trained_on_have_no_old_statistics(run, tmp_path):
    settings, path = run
    model, patches = load(path), torch.cat(list(batches(settings, 8)))
    model.train()
    model(patches)
    save(model.eval(), tmp_path / "tuned.safetensors")
    again = load(tmp_path / "tuned.safetensors")
    assert torch.equal(again(patches), model(patches))
    assert again.size_statistics == {}
    other = load(path)
    other.load_state_dict(model.state_dict())
    assert other.size_statistics == {}


def test_half_precision_keeps_them(run, tmp_path):
    _, path = run
    save(load(path).bfloat16(), tmp_path / "half.safetensors")
    assert sorted(load(tmp_path / "half.safetensors").size_statistics) == SIZES


def test_patches_of_another_size_are_described_with_its_statistics(run):
    settings, path = run
    patches = torch.cat(list(batches(settings, 16)))
    wanted = describe(patches, load(path, patch_size=16))
    model = load(path)
    assert torch.equal(describe(patches, model), wanted)
    assert torch.equal(describe(patches, load(path, patch_size=12)), wanted)
    assert not torch.allclose(model(patches), wanted, atol=1e-2)
    assert_equal(model.statistics(), load(path).statistics())


def test_they_are_measured_once_for_the_same_weights(small, tmp_path, monkeypatch):
    """The last validation and the final weights are of the same step; those of another step are measured again."""
    seen, measure = [], state.with_size_statistics
    monkeypatch.setattr(state, "with_size_statistics", lambda *given: seen.append(None) or measure(*given))
    settings = config(small, sampling={"patch_sizes": SIZES})
    validations = []
    train(settings, tmp_path / "run", device="cpu", report=lambda line: validations.append(line.validation))
    count = sum(validation is not None for validation in validations)
    assert count > 1
    assert len(seen) == count


def test_the_run_itself_is_not_touched(small, run, tmp_path):
    """What is validated, and saved at the end, is a copy: training goes on with the statistics it had."""
    settings, path = run
    unseen = config({**small, "data": {"train": small["data"]["train"]}}, sampling={"patch_sizes": SIZES})
    unseen = type(settings).from_dict({**settings.to_dict(), "data": unseen.to_dict()["data"]})
    train(unseen, tmp_path / "unseen", device="cpu")
    assert_equal(saved(tmp_path / "unseen"), saved(path.parent))
    mixture = saved(path.parent, "model.")[f"model.{FIRST}.running_mean"]
    assert not torch.equal(mixture, load(path).get_buffer(f"{FIRST}.running_mean"))


def test_a_run_at_one_size_has_none(whole_run):
    model = load(whole_run / "final.safetensors")
    assert model.size_statistics == {}
    kept = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    assert_equal(kept, saved(whole_run, "model."))


def test_averaged_weights_have_their_own(small, tmp_path):
    settings = config(small, sampling={"patch_sizes": SIZES}, optimizer={"average": 0.9})
    train(settings, tmp_path / "run", device="cpu")
    model = load(tmp_path / "run" / "final.safetensors", patch_size=16)
    state = saved(tmp_path / "run")
    assert not torch.equal(model.backbones[0].layers[0].weight, state["model.backbones.0.layers.0.weight"])
    assert sorted(model.size_statistics) == SIZES
