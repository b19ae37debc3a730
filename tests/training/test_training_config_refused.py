"""Settings of training that are refused, by name."""

import dataclasses
import re

import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_configs import TABLES, config

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError
from matchkernel.training.config import TrainingConfig

REFUSED = {
    "sampling": {
        "pairs": [1, 0, -5, 2**20 + 1],
        "steps": [0, -1, 10**9 + 1],
        "epoch_pairs": [511, 1, -1, -512, 513, 1025],
        "per_photo": [0, -1, 2**20 + 1, 1.5],
        "mixed": [0.0, 1.0, -0.1, float("nan")],
    },
    "augmentation": {
        "flips": ["all", ""],
        "rotation_degrees": [-1.0, 181.0],
        "scale_octaves": [-0.1, 2.1],
        "aspect_octaves": [-0.1, 2.1],
        "shift": [-0.1, 1.1],
        "zoom_octaves": [-0.1, 2.1],
        "gamma": [-0.1, 3.1],
        "contrast": [-0.1, 3.1],
        "light_gradient": [-0.1, 0.51],
        "blur": [-0.1, 3.1],
        "noise": [-0.1, 255.1],
        "jpeg": [-1, 101],
    },
    "loss": {
        "form": ["triplet", ""],
        "margin": [-0.1, 1e39],
        "negatives": ["min"],
        "hybrid": [-0.1, 1e308],
        "second_order": [-0.1, 1e39],
        "neighbours": [0, -1],
        "norm_penalty": [-0.1, 1e39],
        "reduction": ["max"],
    },
    "optimizer": {
        "kind": ["adam"],
        "rate": [0.0, -1.0, 1e39, 1e308],  # finite, but not in float32
        "momentum": [-0.1, 1.0],
        "dampening": [-0.1, 1.0],
        "beta_first": [-0.1, 1.0],
        "beta_second": [-0.1, 1.0],
        "weight_decay": [-1e-9, 1e39],
        "schedule": ["step"],
        "warmup": [-1],
        "average": [-0.1, 1.0],
    },
    "loop": {
        "precision": ["fp16"],
        "compile": ["always"],
        "statistics": ["none"],
        "resident": ["maybe"],
        "log_every": [0, -1],
        "save_every": [0],
        "validate_every": [0],
        "select_by": ["loss"],
    },
}
CHOSEN_OF_TWO = {
    "loss": {"squared", "swap", "same_side"},
    "loop": {"sync_batch_norm", "tensorboard"},
}  # every bool does


def test_the_refused_values_below_are_of_every_field():
    for table, kind in TABLES.items():
        names = REFUSED[table].keys() | CHOSEN_OF_TWO.get(table, set())
        assert names == {field.name for field in dataclasses.fields(kind)}


def refused(name, **tables):
    """The message that refuses these tables; the test fails, naming the case, where they are not refused."""
    try:
        config(**tables)
    except (ArgumentError, ArgumentTypeError) as error:
        return str(error)
    pytest.fail(f"{name} was not refused: {tables}")


def test_values_that_are_refused_by_name():
    for table, names in REFUSED.items():
        for name, values in names.items():
            for value in values:
                message = refused(name, **{table: {name: value}})
                assert re.search(rf"{table}\.{name}\b", message), (value, message)


def test_types_that_are_refused_by_name():
    """NaN and infinity nowhere; no number for a string, no whole number for a yes or no, no yes for a number."""
    wrong = {float: [float("nan"), float("inf"), True, "1", 10**400], int: [1.0, True, "1"], bool: [0, 1, "yes"]}
    for table, kind in TABLES.items():
        for field in dataclasses.fields(kind):
            for value in wrong.get(field.type, [3, True, ["auto"], None]):
                message = refused(field.name, **{table: {field.name: value}})
                assert re.search(rf"{table}\.{field.name}\b", message), (value, message)


def test_what_else_is_refused():
    for tables, words in [
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**63}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"seed": 1.0}, "seed must be"),
        ({"preset": "siftnet"}, "preset must be one of hardnet, paper"),
        ({"preset": "../presets/paper"}, "preset must be one of hardnet, paper"),
        ({"preset": 3}, "preset must be one of hardnet, paper"),
        ({"data": {}}, "data needs either"),
        ({"data": {"train": []}}, "data needs either"),
        ({"data": {"validation": ["x"]}}, "data needs either"),
        ({"data": {"train": ["x"], "synthetic": {}}}, "data needs either"),
        ({"data": {"train": 3}}, "data.train must be"),
        ({"data": {"train": ["x"], "mix": [""]}}, "data.mix and data.validation must be non-empty"),
        ({"data": {"synthetic": {}, "mix": ["x"]}}, "data.mix needs data.train"),
        ({"data": {"train": ["x", 3]}}, "data.train must be"),
        ({"data": {"synthetic": True}}, "data.synthetic must be a table"),
        ({"data": {"synthetic": {"points": 1.5}}}, "data.synthetic.points must be"),
        ({"data": "x"}, "data must be a table"),
        ({"loss": 3}, "loss must be a table"),
        ({"model": "dual"}, "model must be a table"),
        ({"model": {"variant": "mystery"}}, "variant must be one of"),
        ({"loss": {"same_side": True, "negatives": "all"}}, "loss.same_side"),
        ({"losses": {}}, "unknown setting 'losses'"),
        ({"loss": {"marign": 1}}, "unknown setting 'loss.marign'"),
        ({"data": {"synthetic": {"seed": -1}}}, "data.synthetic.seed must be"),
        ({"data": {"synthetic": {"points": 0}}}, "data.synthetic.points must be"),
        ({"data": {"synthetic": {"points": 10**15}}}, "data.synthetic.points must be"),
        ({"preset": "hardnet", "sampling": {"epoch_pairs": 10**400}}, "sampling.epoch_pairs must be"),
        # TOML's hexadecimal numbers have no limit of digits
        ({"sampling": {"pairs": 16**5000}}, "sampling.pairs must be"),
        ({"sampling": {"steps": 16**5000}}, "sampling.steps must be"),
        ({"model": {"variant": "sum", "D": 16**5000}}, "got D = a number of more than 20 digits"),
        ({"model": {"center_weight": 16**5000}}, "center_weight must be"),
    ]:
        assert words in refused(words, **tables)


def test_settings_without_data_or_that_are_no_table_are_refused():
    for values, words in [({}, "data is missing"), (None, "a table"), (3, "a table"), (["data"], "a table")]:
        with pytest.raises(MatchKernelError, match=words):
            TrainingConfig.from_dict(values)


junk = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({}) | st.just([])
fields = {name: [field.name for field in dataclasses.fields(kind)] for name, kind in TABLES.items()}
some_table = st.sampled_from(sorted(fields)).flatmap(
    lambda name: st.tuples(st.just(name), st.dictionaries(st.sampled_from(fields[name]), junk, max_size=3))
)


@given(st.lists(some_table, max_size=3).map(dict), st.dictionaries(st.sampled_from(["seed", "preset", "x"]), junk))
def test_any_tables_give_a_configuration_or_our_error(tables, more):
    try:
        built = config(**tables, **more)
    except MatchKernelError:
        return
    assert TrainingConfig.from_dict(built.to_dict()) == built


def test_a_removed_setting_is_refused_unless_it_has_its_former_default():
    assert config(sampling={"patch_sizes": []}) == config()
    with refuses(ArgumentError):
        config(sampling={"patch_sizes": [24, 32]})
