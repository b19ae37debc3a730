"""The precision of a run."""

import pytest
import torch

from matchkernel.training import network


def test_a_cpu_without_bfloat16_trains_in_float32_and_warns(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for is_there, precision, device, is_half in (
        (True, "bf16", cpu, True), (True, "auto", cpu, False), (True, "fp32", gpu, False), (True, "auto", gpu, True),
        (False, "auto", cpu, False), (False, "fp32", cpu, False),
    ):  # fmt: skip
        monkeypatch.setattr(network, "has_bfloat16", lambda _, is_there=is_there: is_there)
        assert network.is_half_precision(precision, device) is is_half, (is_there, precision, device)
    with pytest.warns(RuntimeWarning):
        assert not network.is_half_precision("bf16", cpu)
