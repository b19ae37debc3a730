import dataclasses
import json

import pytest
import torch
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError
from matchkernel.model.descriptors import build
from matchkernel.runtime.config import VARIANTS, DescriptorConfig


def test_defaults_are_those_of_the_specification():
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


REFUSED = [
    # settings that would be ignored
    *(
        ({"variant": "fc", name: value}, ArgumentError)
        for name, value in {"s": 1, "kappa_polar": 1.0, "grid": "cells", "center_weight": False}.items()
    ),
    ({"variant": "sum", "dropout": 1.0}, ArgumentError),
    ({"variant": "sum", "D": 64}, ArgumentError),
    ({"variant": "concat", "output_norm": "none"}, ArgumentError),
    ({"variant": "concat", "D": 128}, ArgumentError),
    ({"variant": "cartesian", "kappa_polar": 8.0}, ArgumentError),
    ({"variant": "polar", "kappa_cartesian": 8.0}, ArgumentError),
    # values
    ({"variant": "mystery"}, ArgumentError),
    ({"kapa": 3}, ArgumentError),
    ({"patch_size": 30}, ArgumentError),
    ({"patch_size": 4}, ArgumentError),
    ({"patch_size": 32.0}, ArgumentTypeError),
    ({"s": -1}, ArgumentError),
    ({"D": 10**12}, ArgumentError),
    ({"kappa_polar": float("nan")}, ArgumentError),
    ({"grid": "corners"}, ArgumentError),
    ({"center_weight": 1}, ArgumentTypeError),
    ({"dropout": 1}, ArgumentError),
    # networks
    ({"widths": (16, "a")}, ArgumentTypeError),
    ({"widths": (8,) * 32}, ArgumentError),
    ({"widths": (8,)}, ArgumentError),
    *(({"halvings": halvings}, ArgumentError) for halvings in ((1, 1), (1,), (1, 2, 3), (1, 7), (0, 1))),
]


@pytest.mark.parametrize(("settings", "error"), REFUSED, ids=lambda value: str(value)[:40])
def test_settings_that_are_refused(settings, error):
    with refuses(error):
        DescriptorConfig.from_dict(settings)


def test_a_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DescriptorConfig().s = 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_configuration_survives_the_round_trip(variant):
    config = DescriptorConfig(variant)
    assert DescriptorConfig.from_dict(config.to_dict()) == config
    assert dataclasses.replace(config) == config


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
