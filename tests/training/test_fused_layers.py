"""The kernels of fused layers, run by Triton's interpreter on the CPU; a GPU's own run is in test_gpu.py."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is not installed here: fused layers cannot run")

pytestmark = pytest.mark.slow
# C, D, stride, B, N, groups, programs: programs take turns with blocks, and the last block is not full.
CASES = [
    (1, 32, 1, 4, 16, 2, 264),
    (1, 32, 1, 6, 12, 2, 264),
    (1, 32, 1, 3, 16, 1, 2),
    (32, 32, 1, 6, 8, 2, 2),
    (32, 32, 1, 5, 12, 1, 132),
    (16, 16, 1, 4, 6, 1, 3),
    (32, 64, 2, 6, 12, 2, 264),
    (64, 16, 1, 6, 8, 3, 1),
    (16, 128, 2, 4, 8, 2, 264),
]
SCRIPT = """
import copy, json, sys
import torch
from torch import nn
from matchkernel.training import convolution_kernels, first_layer, norm_kernels
from matchkernel.training.network import GroupedBatchNorm2d
from matchkernel.training.first_layer import FirstLayer
from matchkernel.training.later_layers import LaterLayer

torch.set_num_threads(1)


def differences(C, D, stride, B, N, groups, programs):
    for module in (convolution_kernels, first_layer, norm_kernels):
        module.PROGRAMS = programs
    torch.manual_seed(B)
    x = torch.randn(B, C, N, N)
    x[B // 2 :] = 1.5 * x[B // 2 :] + 0.5  # groups that differ
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_(C > 1)
    convolution = nn.Conv2d(C, D, 3, stride, padding=1, bias=False)
    norm = GroupedBatchNorm2d(D, affine=False)
    norm.groups = groups
    fused = copy.deepcopy(norm)
    expected = nn.functional.relu(norm(convolution(x)))
    weight = torch.randn_like(expected) / (expected.numel() / D) ** 0.5  # gradients of order 1
    wanted = [convolution.weight, x][: 1 + (C > 1)]
    gradients = torch.autograd.grad((expected * weight).sum(), wanted)
    arguments = (stride, groups, norm.eps)[C == 1 :]
    layer = FirstLayer if C == 1 else LaterLayer
    found, mean, variance = layer.apply(x.contiguous() if C == 1 else x, convolution.weight, *arguments)
    own = torch.autograd.grad((found * weight).sum(), wanted)
    fused.track(mean, variance, expected.numel() // (groups * D))
    return {
        "output": (found - expected).abs().max(),
        "gradient": max((a - b).abs().max() / b.abs().max() for a, b in zip(own, gradients)),
        "running_mean": (fused.running_mean - norm.running_mean).abs().max(),
        "running_var": (fused.running_var - norm.running_var).abs().max(),
        "size of output": found.detach().abs().max(),
        "size of gradient": gradients[0].abs().max(),
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
    """Outputs and statistics of order 1, gradients relative to the largest, all in float32."""
    found = results[case]
    for name in ("output", "running_mean", "running_var", "gradient"):
        assert found[name] < 1e-5, name
    assert found["size of output"] > 1
    assert found["size of gradient"] > 0.1
    assert found["shape"] == 1
