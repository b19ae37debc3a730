import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError
from matchkernel.model.descriptors import build
from matchkernel.runtime.config import VARIANTS, DescriptorConfig


def test_defaults_are_the_specifications():
    assert DescriptorConfig().to_dict() == {
        "variant": "dual",
        "s": 2,
        "kappa_cartesian": 8.0,
        "kappa_polar": 8.0,
        "d": 128,
        "D": 128,
        "patch_size": 32,
        "grid": "cells",
        "center_weight": True,
        "encoding_norm": False,
        "output_norm": "batch",
        "dropout": 0.0,
    }
    fc = {"variant": "fc", "d": 128, "D": 128, "patch_size": 32, "output_norm": "batch", "dropout": 0.3}
    assert DescriptorConfig("fc").to_dict() == fc
    assert DescriptorConfig("sum").to_dict() == {"variant": "sum", "d": 128, "D": 128, "patch_size": 32}
    assert DescriptorConfig("concat", patch_size=64).D == 16 * 16 * 128


@pytest.mark.parametrize(("s", "kappa"), [(0, 1.0), (1, 1.0), (2, 8.0), (3, 8.0)])
def test_kappa_follows_s(s, kappa):
    config = DescriptorConfig(s=s)
    assert (config.kappa_cartesian, config.kappa_polar) == (kappa, kappa)
    assert DescriptorConfig(s=s, kappa_polar=3).kappas == (kappa, 3.0)


IGNORED = [
    ("fc", {"s": 1}), ("fc", {"kappa_polar": 1.0}), ("fc", {"grid": "cells"}), ("fc", {"center_weight": False}),
    ("fc", {"encoding_norm": False}), ("sum", {"s": 2}), ("sum", {"dropout": 0.0}),
    ("sum", {"center_weight": True}), ("concat", {"output_norm": "none"}), ("concat", {"dropout": 0.1}),
    ("cartesian", {"kappa_polar": 8.0}), ("polar", {"kappa_cartesian": 8.0}), ("sum", {"D": 64}),
    ("concat", {"D": 128}),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "settings"), IGNORED)
def test_a_setting_that_would_be_ignored_is_refused(variant, settings):
    with pytest.raises(ArgumentError, match=f"{variant} "):
        DescriptorConfig(variant, **settings)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"variant": "mystery"}, ArgumentError),
        ({"patch_size": 30}, ArgumentError),
        ({"patch_size": 4}, ArgumentError),
        ({"patch_size": 10**9}, ArgumentError),
        ({"patch_size": 32.0}, ArgumentTypeError),
        ({"s": -1}, ArgumentError),
        ({"s": True}, ArgumentTypeError),
        ({"d": 0}, ArgumentError),
        ({"D": 10**12}, ArgumentError),
        ({"kappa_polar": 0}, ArgumentError),
        ({"kappa_polar": float("nan")}, ArgumentError),
        ({"kappa_polar": "8"}, ArgumentTypeError),
        ({"grid": "corners"}, ArgumentError),
        ({"center_weight": 1}, ArgumentTypeError),
        ({"output_norm": "layer"}, ArgumentError),
        ({"dropout": 1.5}, ArgumentError),
        ({"dropout": -0.1}, ArgumentError),
        ({"dropout": 1}, ArgumentError),
        ({"dropout": False}, ArgumentTypeError),
    ],
)
def test_values_that_are_refused(settings, error):
    with pytest.raises(error):
        DescriptorConfig(**settings)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DescriptorConfig().s = 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip_and_committed_files(variant):
    config = DescriptorConfig(variant)
    assert DescriptorConfig.from_dict(config.to_dict()) == config
    assert dataclasses.replace(config) == config


def test_unknown_names_are_refused():
    with pytest.raises(ArgumentError, match="kapa"):
        DescriptorConfig.from_dict({"kapa": 3})


junk = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
names = [field.name for field in dataclasses.fields(DescriptorConfig)]


@given(st.dictionaries(st.sampled_from(names), junk | st.sampled_from([*VARIANTS, "cells", "batch", 32]), max_size=6))
def test_any_settings_give_a_configuration_or_our_error(settings):
    try:
        config = DescriptorConfig.from_dict(settings)
    except MatchKernelError:
        return
    assert DescriptorConfig.from_dict(config.to_dict()) == config


def test_narrow_networks():
    config = DescriptorConfig("cartesian", s=1, d=64, widths=(16, 32, 64), halvings=(1, 2))
    assert config.convolutions == [(1, 16, 2), (16, 32, 2), (32, 64, 1), (64, 64, 1)]
    model = build(**config.to_dict())
    assert sum(tensor.numel() for tensor in model.parameters()) == config.parameters
    assert DescriptorConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert model(torch.rand(3, 1, 32, 32)).shape == (3, 128)


def test_the_papers_network_is_unchanged_and_not_named():
    config = DescriptorConfig("fc")
    widths = [outputs for _, outputs, _ in config.convolutions]
    assert widths == [32, 32, 64, 64, 128, 128]
    assert [stride for *_, stride in config.convolutions] == [1, 1, 2, 1, 2, 1]
    assert not {"widths", "halvings"} & config.to_dict().keys()  # digests of weights depend on it


@pytest.mark.parametrize(("settings", "words"), [
    ({"widths": (0,)}, "widths must be from 1"),
    ({"widths": (16, "a")}, "widths must be a"),
    ({"widths": (8,) * 32}, "fewer than 32 entries"),
    ({"widths": (8,)}, "halvings must be two different numbers of the 2 convolutions"),
    ({"halvings": (1, 1)}, "two different numbers"),
    ({"halvings": (1,)}, "two different numbers"),
    ({"halvings": (1, 2, 3)}, "two different numbers"),
    ({"halvings": (1, 7)}, "of the 6 convolutions"),
    ({"halvings": (0, 1)}, "halvings must be from 1"),
])  # fmt: skip
def test_refused_networks(settings, words):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        DescriptorConfig(**settings)
