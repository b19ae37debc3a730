"""The kernels of the first layer, run by Triton's interpreter on the CPU; a GPU's own run is in test_gpu.py."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is not installed here: the fused first layer cannot run")

pytestmark = pytest.mark.slow
# B, N, groups, programs. 6 x 12 x 12 does not fill its last block of pixels; 2 programs take turns with 3 blocks.
CASES = [(4, 16, 2, 264), (6, 12, 2, 264), (3, 16, 1, 2)]
SCRIPT = """
import copy, json, sys
import torch
from torch import nn
from matchkernel.training import first_layer
from matchkernel.training.network import GroupedBatchNorm2d
from matchkernel.training.first_layer import FirstLayer

torch.set_num_threads(1)


def differences(B, N, groups, programs):
    first_layer.PROGRAMS = programs
    torch.manual_seed(B)
    x = torch.randn(B, 1, N, N)
    x[B // 2 :] = 1.5 * x[B // 2 :] + 0.5  # groups that differ
    convolution = nn.Conv2d(1, 32, 3, padding=1, bias=False)
    norm = GroupedBatchNorm2d(32, affine=False)
    norm.groups = groups
    fused = copy.deepcopy(norm)
    weight = torch.randn(B, 32, N, N) / (B * N * N) ** 0.5  # gradients of order 1

    expected = nn.functional.relu(norm(convolution(x)))
    (gradient,) = torch.autograd.grad((expected * weight).sum(), convolution.weight)
    found, mean, variance = FirstLayer.apply(x, convolution.weight, groups, norm.eps)
    (own,) = torch.autograd.grad((found * weight).sum(), convolution.weight)
    fused.track(mean, variance, x.numel() // groups)
    return {
        "output": (found - expected).abs().max(),
        "gradient": (own - gradient).abs().max(),
        "running_mean": (fused.running_mean - norm.running_mean).abs().max(),
        "running_var": (fused.running_var - norm.running_var).abs().max(),
        "size of output": found.detach().abs().max(),
        "size of gradient": gradient.abs().max(),
        "shape": float(found.shape == expected.shape and found.is_contiguous(memory_format=torch.channels_last)),
    }


results = [{name: float(value) for name, value in differences(*case).items()} for case in json.loads(sys.argv[1])]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results():
    """Everything in one process: the interpreter must be chosen before triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CASES)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_convolution_batch_norm_and_relu(results, case):
    """Outputs, statistics and gradients of order 1, all in float32."""
    found = results[case]
    for name in ("output", "running_mean", "running_var", "gradient"):
        assert found[name] < 1e-5, name
    assert found["size of output"] > 1
    assert found["size of gradient"] > 0.1
    assert found["shape"] == 1
