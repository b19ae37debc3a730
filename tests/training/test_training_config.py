"""Configurations of training: presets, tables, overrides, and what is refused."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, MatchKernelError
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.storage.settings import first_difference, merged
from matchkernel.training.augment import Augmentation
from matchkernel.training.config import REMOVED, Data, Loop, Sampling, TrainingConfig, presets
from matchkernel.training.loss import LossSettings
from matchkernel.training.optimizer import Optimizer

CONFIGS = Path(__file__).parents[2] / "configs"
DATA = {"data": {"train": ["sets/liberty"]}}
TABLES = {
    "sampling": Sampling,
    "augmentation": Augmentation,
    "loss": LossSettings,
    "optimizer": Optimizer,
    "loop": Loop,
}
OTHER = {
    "data": {"train": ["a", "b"], "validation": "c"},
    "model": {"variant": "polar", "s": 1, "patch_size": 64},
    "sampling": {"pairs": 100, "steps": 7, "epoch_pairs": 250},
    "augmentation": {"flips": "none", "rotation_degrees": 1, "noise": 2.5},
    "loss": {"hybrid": 2.0, "same_side": True},
    "optimizer": {"rate": 0.01, "schedule": "cosine", "warmup": 5},
    "loop": {"precision": "fp32", "statistics": "joint", "log_every": 3, "tensorboard": True},
    "preset": "hardnet",
    "seed": 2**63 - 1,
}


def config(**tables):
    """A configuration with these tables, trained on a set that need not exist."""
    return TrainingConfig.from_dict({**DATA, **tables})


def test_the_presets_hold_the_numbers_of_the_protocol():
    """protocols.md section 1.9, "Our presets"; what it does not name is HardNet's of section 1, without photometry."""
    assert presets() == ["author", "hardnet", "hardnet-augmentation", "paper", "paper-text"]
    dark = {"gamma": 0.0, "contrast": 0.0, "light_gradient": 0.0, "blur": 0.0, "noise": 0.0}
    sgd = {"rate": 10.0, "momentum": 0.9, "dampening": 0.9, "weight_decay": 1e-4, "warmup": 0}
    loss = LossSettings(margin=1.0, swap=True, same_side=False, hybrid=0.0)
    paper, text, hardnet = (config(preset=name) for name in ("paper", "paper-text", "hardnet"))
    assert paper == config()
    assert paper.sampling == Sampling(pairs=512, steps=10 * 3906, epoch_pairs=0)
    assert paper.augmentation == Augmentation("dihedral8", 8.0, 0.12, 0.0, 0.05, **dark) == Augmentation()
    assert paper.optimizer == Optimizer(**sgd, schedule="linear")
    assert paper.model == DescriptorConfig("dual", s=2, patch_size=32)
    assert (paper.loss, paper.loop.statistics, paper.seed) == (loss, "separate", 0)
    assert dataclasses.replace(text, preset="paper", loss=loss, augmentation=paper.augmentation) == paper
    assert text.loss == dataclasses.replace(loss, swap=False)
    assert text.augmentation == dataclasses.replace(paper.augmentation, shift=0.0)
    assert hardnet.sampling == Sampling(pairs=1024, steps=48_830, epoch_pairs=5_000_000)
    assert hardnet.augmentation == Augmentation("hardnet4", 0.0, 0.0, 0.0, 0.0, **dark)
    assert hardnet.optimizer == Optimizer(**sgd, schedule="hardnet")
    assert (hardnet.loss, hardnet.loop.statistics) == (loss, "separate")
    assert config(preset="hardnet", model={"variant": "fc"}).model.dropout == 0.3


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


def test_tables_override_the_preset_and_what_is_written_reads_back():
    other = TrainingConfig.from_dict(OTHER)
    assert other.data == Data(("a", "b"), ("c",))
    assert other.model == DescriptorConfig("polar", s=1, patch_size=64)
    assert other.augmentation == Augmentation("none", 1.0, 0.0, 0.0, 0.0, noise=2.5)
    assert other.optimizer == Optimizer(0.01, schedule="cosine", warmup=5)
    models = [{**DATA, "model": {"variant": variant}} for variant in VARIANTS]
    for tables in ({"data": {"synthetic": {"points": 5}}}, OTHER, *models):
        built = TrainingConfig.from_dict(tables)
        assert TrainingConfig.from_dict(built.to_dict()) == built


def test_overrides_change_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('seed = 4\n[data]\ntrain = "x"\n[loss]\nmargin = 0.7\nswap = false\n')
    built = TrainingConfig.from_toml(path)
    assert (built.seed, built.loss.margin, built.loss.swap, built.sampling.pairs) == (4, 0.7, False, 512)
    overrides = ["loss.margin=0.9", "loss.margin=0.5", "preset=hardnet", "data.train=['y', 'z']"]
    changed = TrainingConfig.from_toml(path, overrides)
    assert (changed.seed, changed.loss.margin, changed.loss.swap) == (4, 0.5, False)  # the last override wins
    assert (changed.sampling.pairs, changed.data.train) == (1024, ("y", "z"))


FREE = {
    "loop": {
        "compile": "no",
        "resident": "no",
        "log_every": 7,
        "save_every": 7,
        "validate_every": 7,
        "tensorboard": True,
    },
    "data": {"train": "elsewhere", "validation": "v"},
}
BINDING = {
    "sampling": {"pairs": 256, "steps": 100},
    "augmentation": {"shift": 0.1},
    "loss": {"margin": 0.5},
    "optimizer": {"rate": 1.0},
    "model": {"d": 64},
    "loop": {"precision": "fp32", "statistics": "joint", "select_by": "fpr95"},
}


def test_settings_that_a_resumed_run_may_change_and_those_it_must_share():
    assert config(**FREE).binding() == config().binding()
    for table, values in BINDING.items():
        for name, value in values.items():
            changed = config(**{table: {name: value}}).binding()
            assert first_difference(changed, config().binding())[0] == f"{table}.{name}"
    assert first_difference(config(seed=1).binding(), config().binding())[0] == "seed"
    few, many = (TrainingConfig.from_dict({"data": {"synthetic": {"points": points}}}) for points in (10, 20))
    assert first_difference(few.binding(), many.binding()) == ("data.synthetic.points", 10, 20)


def test_removed_settings_are_ignored_at_their_default_and_refused_otherwise():
    teacher = {"teacher": {"weights": ["dual"]}}
    assert config(**merged(teacher, REMOVED)) == config(**teacher)
    for table, defaults in REMOVED.items():
        for name in defaults:
            with pytest.raises(ArgumentError, match=rf"{table}\.{name} .* 0\.2"):
                config(**merged(teacher, {table: {name: 3}}))


def test_every_committed_configuration_is_read():
    paths = sorted(set(CONFIGS.rglob("*.toml")) - {CONFIGS / "context.toml"})  # that one is for train-matcher
    assert CONFIGS / "tiny.toml" in paths
    for path in paths:
        built = TrainingConfig.from_toml(path)
        assert TrainingConfig.from_dict(built.to_dict()) == built, path
        given_tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in given_tables.keys() & TABLES.keys():  # and nothing of the file is lost
            assert given_tables[table].items() <= built.to_dict()[table].items(), path


@pytest.mark.parametrize(("tables", "error"), [
    *(({"seed": value}, ArgumentError) for value in (-1, 2**63)),
    *(({"seed": value}, ArgumentTypeError) for value in (True, 1.0)),
    *(({"preset": value}, ArgumentError) for value in ("siftnet", "../presets/paper", 3)),
    *(({"data": data}, ArgumentError) for data in (
        {}, {"train": []}, {"validation": ["x"]}, {"train": ["x"], "synthetic": {}}, {"train": ["x"], "mix": [""]},
        {"synthetic": {}, "mix": ["x"]}, {"synthetic": {"seed": -1}}, {"synthetic": {"points": 0}},
        {"synthetic": {"points": 10**15}},
    )),
    *(({"data": data}, ArgumentTypeError) for data in (
        "x", {"train": 3}, {"train": ["x", 3]}, {"synthetic": True}, {"synthetic": {"points": 1.5}},
    )),
    *(({"teacher": teacher}, ArgumentError) for teacher in (
        {"weights": []}, {"weights": [""]}, {"weights": ["x"], "rows": 0.0}, {"weights": ["x"], "pairs": -1.0},
        {"weights": ["x"], "rows": float("nan")},
    )),
    *(({"start": start}, ArgumentError) for start in ({}, {"weights": ""}, {"weights": "dual", "layers": "some"})),
    *(({table: 3}, ArgumentTypeError) for table in ("loss", "model")),
    # The first: TOML's hexadecimal numbers have no limit of digits.
    *(({"sampling": sampling}, ArgumentError) for sampling in (
        {"pairs": 16**5000}, {"steps": 0}, {"mixed": 1.0}, *({"epoch_pairs": count} for count in (511, -1, 513, 1025)),
    )),
    *(({"augmentation": changes}, ArgumentError) for changes in ({"flips": "all"}, {"shift": 1.1}, {"blur": -0.1})),
    *(({"loss": {"margin": margin}}, ArgumentError) for margin in (-0.1, float("nan"), 1e39)),  # not in float32
    *(({"optimizer": {"rate": rate}}, ArgumentError) for rate in (0.0, 1e39)),
    ({"optimizer": {"schedule": "step"}}, ArgumentError),
    ({"loop": {"precision": "always"}}, ArgumentError),
    ({"loop": {"log_every": True}}, ArgumentTypeError),
    ({"model": {"variant": "mystery"}}, ArgumentError),
    ({"model": {"variant": "sum", "D": 16**5000}}, ArgumentError),
    ({"losses": {}}, ArgumentError),
    ({"loss": {"marign": 1}}, ArgumentError),
])  # fmt: skip
def test_tables_that_are_refused(tables, error):
    with refuses(error):
        config(**tables)


@pytest.mark.parametrize("tables", [{}, None, ["data"]], ids=repr)
def test_what_is_no_table_or_has_no_data_is_refused(tables):
    with refuses(MatchKernelError):
        TrainingConfig.from_dict(tables)


@pytest.mark.parametrize(("text", "overrides", "error"), [
    ("", [], FileError),
    ("[data", [], FileError),
    ("[data]\ntrain = 'x'\n[los]\n", [], FileError),
    ("[data]\ntrain = 'x'\n[model]\nkapa = 1\n", [], FileError),
    ("[data]\ntrain = 'x'\n", ["loss.margin=-1"], FileError),
    ("[data]\ntrain = 'x'\n", ["loss=much"], FileError),
    ("[data]\ntrain = 'x'\n", ["loss.form=softmax"], FileError),
    ("[data]\ntrain = 'x'\n", ["loss.margin"], ArgumentError),
])  # fmt: skip
def test_files_and_overrides_that_are_refused(tmp_path, text, overrides, error):
    (tmp_path / "run.toml").write_text(text)
    with refuses(error):
        TrainingConfig.from_toml(tmp_path / "run.toml", overrides)
