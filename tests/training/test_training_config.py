"""matchkernel/training/config.py (the name test_config.py is taken by the descriptor's)."""

import dataclasses
import tomllib
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_configs import DATA, TABLES, config

from matchkernel.errors import ArgumentError, FileError
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.storage.settings import first_difference, parse_override
from matchkernel.training.augment import Augmentation
from matchkernel.training.config import Data, Sampling, TrainingConfig, presets
from matchkernel.training.loss import LossSettings
from matchkernel.training.optimizer import Optimizer

CONFIGS = Path(__file__).parents[2] / "configs"


def of_a_file(folder, text, *overrides):
    (folder / "run.toml").write_text(text)
    return TrainingConfig.from_toml(folder / "run.toml", overrides)


# protocols.md section 1.9, "Our presets"; what it does not name is HardNet's of section 1 and off in augmentation.
LOSS = LossSettings(
    form="triplet_margin",
    margin=1.0,
    squared=False,
    negatives="hardest",
    swap=True,
    same_side=False,
    hybrid=0.0,
    second_order=0.0,
    norm_penalty=0.0,
    reduction="mean",
)
NO_LIGHT = {"gamma": 0.0, "contrast": 0.0, "light_gradient": 0.0, "blur": 0.0, "noise": 0.0, "jpeg": 0}
SGD = {"kind": "sgd", "rate": 10.0, "momentum": 0.9, "dampening": 0.9, "weight_decay": 1e-4, "warmup": 0}


def test_the_presets_are_those_of_the_protocol_and_the_text_alone():
    assert presets() == ["hardnet", "paper", "paper-text"]
    assert config().preset == "paper"


def test_paper_holds_the_numbers_of_the_protocol():
    paper = config()
    assert paper == config(preset="paper")
    assert paper.sampling == Sampling(pairs=512, steps=10 * 3906, epoch_pairs=0)
    assert paper.augmentation == Augmentation("dihedral8", 8.0, 0.12, 0.0, 0.05, **NO_LIGHT)
    assert paper.loss == LOSS
    assert paper.optimizer == Optimizer(**SGD, schedule="linear")
    assert paper.loop.statistics == "separate"
    assert paper.model == DescriptorConfig("dual", s=2, patch_size=32)
    assert paper.seed == 0


def test_paper_text_leaves_out_what_the_paper_does_not_say():
    paper, text = config(), config(preset="paper-text")
    assert dataclasses.replace(text, preset="paper", loss=paper.loss, augmentation=paper.augmentation) == paper
    assert text.loss == dataclasses.replace(paper.loss, swap=False)
    assert text.augmentation == dataclasses.replace(paper.augmentation, shift=0.0)


def test_hardnet_holds_the_numbers_of_the_protocol():
    hardnet = config(preset="hardnet")
    assert hardnet.sampling == Sampling(pairs=1024, steps=48_830, epoch_pairs=5_000_000)
    assert hardnet.augmentation == Augmentation("hardnet4", 0.0, 0.0, 0.0, 0.0, **NO_LIGHT)
    assert hardnet.loss == LOSS
    assert hardnet.optimizer == Optimizer(**SGD, schedule="hardnet")
    assert hardnet.loop.statistics == "separate"
    assert config(preset="hardnet", model={"variant": "fc"}).model.dropout == 0.3


def test_the_paper_sees_almost_20_million_pairs():
    sampling = config().sampling
    assert all(sampling.pairs_at(step) == 512 for step in (1, 2, 3906, 39_059, 39_060))
    assert 20_000_000 - 512 * 10 < sampling.pairs * sampling.steps <= 20_000_000  # 3906 whole batches an epoch


def test_hardnet_sees_5_million_pairs_an_epoch():
    sampling = config(preset="hardnet").sampling
    sizes = [sampling.pairs_at(step) for step in range(1, sampling.steps + 1)]
    short = [step for step, size in enumerate(sizes, 1) if size != 1024]
    assert short == [4883 * epoch for epoch in range(1, 11)]
    assert {sizes[step - 1] for step in short} == {832}
    assert all(sum(sizes[4883 * epoch : 4883 * (epoch + 1)]) == 5_000_000 for epoch in range(10))


@given(st.integers(2, 40), st.integers(0, 400))
def test_the_batches_of_an_epoch_add_up(pairs, epoch_pairs):
    try:
        sampling = Sampling(pairs, 100, epoch_pairs)
    except ArgumentError:
        assert 0 < epoch_pairs < pairs or epoch_pairs % pairs == 1
        return
    left, step, sizes = epoch_pairs or pairs, 1, []
    while left:
        sizes.append(min(pairs, left))  # a loader that keeps the last batch
        left -= sizes[-1]
    for size in sizes * 2:
        assert sampling.pairs_at(step) == size >= 2
        step += 1


OTHER = {
    "data": {"train": ["a", "b"], "validation": "c"},
    "model": {"variant": "polar", "s": 1, "patch_size": 64},
    "sampling": {"pairs": 100, "steps": 7, "epoch_pairs": 250},
    "augmentation": {"flips": "none", "rotation_degrees": 1, "noise": 2.5, "jpeg": 30},
    "loss": {"form": "softmax", "hybrid": 2.0, "same_side": True, "reduction": "sum", "neighbours": 3},
    "optimizer": {"kind": "adamw", "rate": 0.01, "schedule": "cosine", "warmup": 5},
    "loop": {"precision": "fp32", "statistics": "joint", "log_every": 3, "tensorboard": True},
    "preset": "hardnet",
    "seed": 2**63 - 1,
}


def test_what_is_given_lies_over_the_preset():
    other = TrainingConfig.from_dict(OTHER)
    assert other.data == Data(("a", "b"), ("c",))
    assert other.model == DescriptorConfig("polar", s=1, patch_size=64)
    assert other.sampling == Sampling(100, 7, 250)
    assert other.augmentation == Augmentation("none", 1.0, 0.0, 0.0, 0.0, noise=2.5, jpeg=30)
    assert (other.loss.form, other.loss.swap, other.loss.neighbours) == ("softmax", True, 3)
    assert other.optimizer == Optimizer("adamw", 0.01, schedule="cosine", warmup=5)
    assert other.seed == 2**63 - 1


def test_written_and_read_is_the_same():
    for tables in (DATA, {"data": {"synthetic": {"points": 5}}}, {**DATA, "preset": "hardnet"}, OTHER):
        built = TrainingConfig.from_dict(tables)
        assert TrainingConfig.from_dict(built.to_dict()) == built
        assert first_difference(built.to_dict(), TrainingConfig.from_dict(built.to_dict()).to_dict()) is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_written_and_read_is_the_same_for_every_descriptor(variant):
    built = config(model={"variant": variant})
    assert TrainingConfig.from_dict(built.to_dict()) == built
    assert built.to_dict()["model"] == DescriptorConfig(variant).to_dict()


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().seed = 3


def test_a_file_with_overrides(tmp_path):
    text = 'seed = 4\n[data]\ntrain = "x"\n[loss]\nmargin = 0.7\nswap = false\n'
    built = of_a_file(tmp_path, text)
    assert (built.seed, built.loss.margin, built.loss.swap) == (4, 0.7, False)
    assert built.sampling.pairs == 512
    changed = of_a_file(tmp_path, text, "loss.margin=0.9", "loss.margin=0.5", "preset=hardnet", "data.train=['y', 'z']")
    assert (changed.seed, changed.loss.margin, changed.loss.swap) == (4, 0.5, False)  # the last override wins
    assert changed.sampling.pairs == 1024
    assert changed.data.train == ("y", "z")


@pytest.mark.parametrize(
    ("text", "overrides", "words"),
    [
        ("", [], "data is missing"),
        ("[data", [], "not a TOML file"),
        ("[data]\ntrain = 'x'\n[los]\n", [], "unknown setting 'los'"),
        ("[data]\ntrain = 'x'\n[model]\nkapa = 1\n", [], "unknown setting 'kapa'"),
        ("[data]\ntrain = 'x'\n", ["loss.margin=-1"], r"loss\.margin must be"),
        ("[data]\ntrain = 'x'\n", ["loss.margin=much"], r"loss\.margin must be a number"),
        ("[data]\ntrain = 'x'\n", ["loss=much"], "loss must be a table"),
    ],
)
def test_a_file_that_is_refused_is_named(tmp_path, text, overrides, words):
    with pytest.raises(FileError, match=words) as caught:
        of_a_file(tmp_path, text, *overrides)
    where = f"{tmp_path / 'run.toml'}" + " or --set" * bool(overrides)
    assert str(caught.value).startswith(f"{where}: ")
    assert "\n" not in str(caught.value)


def test_an_override_that_is_none_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="--set takes key=value"):
        of_a_file(tmp_path, "[data]\ntrain = 'x'\n", "loss.margin")


def changed(path, value):
    """binding() of the default configuration with one setting changed, and without."""
    return config(**parse_override(f"{path}={value}")).binding(), config().binding()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("loop.compile", "no"),
        ("loop.resident", "no"),
        ("loop.log_every", "7"),
        ("loop.save_every", "7"),
        ("loop.validate_every", "7"),
        ("loop.tensorboard", "true"),
    ],
)
def test_what_a_resumed_run_may_change(path, value):
    mine, theirs = changed(path, value)
    assert mine == theirs


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", "1"),
        ("sampling.pairs", "256"),
        ("sampling.steps", "100"),
        ("augmentation.shift", "0.1"),
        ("loss.margin", "0.5"),
        ("optimizer.rate", "1.0"),
        ("optimizer.average", "0.999"),
        ("model.d", "64"),
        ("loop.precision", "fp32"),
        ("loop.statistics", "joint"),
        ("loop.sync_batch_norm", "true"),
        ("loop.select_by", "fpr95"),
    ],
)
def test_what_a_resumed_run_must_share(path, value):
    assert first_difference(*changed(path, value))[0] == path


def test_where_the_patches_lie_is_free_but_not_what_is_rendered():
    moved = {"data": {"train": ["elsewhere/liberty"], "validation": ["v"]}}
    assert TrainingConfig.from_dict(moved).binding() == config().binding()
    few, many = ({"data": {"synthetic": {"points": points}}} for points in (10, 20))
    difference = first_difference(TrainingConfig.from_dict(few).binding(), TrainingConfig.from_dict(many).binding())
    assert difference == ("data.synthetic.points", 10, 20)


def test_binding_leaves_the_configuration_as_it_is():
    built = TrainingConfig.from_dict(OTHER)
    before = built.to_dict()
    built.binding()
    assert built.to_dict() == before
    assert built.data.train == ("a", "b")


def test_committed_runs_are_read():
    paths = sorted(CONFIGS.rglob("*.toml"))
    assert CONFIGS / "tiny.toml" in paths
    for path in paths:
        built = TrainingConfig.from_toml(path)
        assert TrainingConfig.from_dict(built.to_dict()) == built, path
        given_tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in given_tables.keys() & TABLES.keys():  # and nothing of the file is lost
            assert given_tables[table].items() <= built.to_dict()[table].items(), path


def test_the_papers_experiments_are_one_file_and_four_settings():
    spatial = ("cartesian", "polar", "combined", "dual")
    models = [{"variant": v} for v in ("fc", "sum", "concat")]
    models += [{"variant": v, "s": s} for v in spatial for s in (1, 2)]
    different = set()
    for patches, model, size in product(("liberty", "notredame", "yosemite"), models, (32, 64)):
        settings = {**model, "patch_size": size}
        overrides = [f"model.{key}={value}" for key, value in settings.items()]
        built = TrainingConfig.from_toml(CONFIGS / "paper.toml", [*overrides, f"data.train=sets/{patches}"])
        wanted = {"preset": "paper", "model": settings, "data": {"train": [f"sets/{patches}"]}}
        assert built == TrainingConfig.from_dict(wanted), wanted
        different.add(repr(built))
    assert len(different) == 66
