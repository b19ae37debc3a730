"""The kernels of fused layers, run by Triton's interpreter on the CPU; a GPU's own run is in test_gpu.py."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="triton is not installed here: fused layers cannot run")

pytestmark = pytest.mark.slow
# Channels, strides after the first, B, N, groups, programs: they take turns with blocks, the last one not full.
CASES = [
    ([32, 32, 64, 64], [1, 2, 1, 2], 4, 16, 2, 264),
    ([32, 32, 16], [1, 1, 2], 6, 12, 2, 2),
    ([32, 64, 16, 128], [1, 1, 2, 2], 3, 12, 1, 3),
    ([32, 32, 16, 32], [1, 2, 2, 1], 4, 12, 2, 4),  # a narrow layer of an odd side
    ([32, 16, 48, 32], [1, 1, 2, 1], 4, 8, 2, 264),  # channels from which on plain layers follow
]
HEADS = [(3, 32, 4, 25), (2, 16, 9, 9), (2, 128, 12, 49)]  # B, C, n, P: points not in whole blocks, one column of 16
SCRIPT = """
import copy, json, sys
import torch
from torch import nn
from matchkernel.training import convolution_kernels, first_layer, fused_layers, norm_kernels
from matchkernel.training.head_kernels import Encode, Product
from matchkernel.training.grouped_norm import GroupedBatchNorm2d

torch.set_num_threads(1)
torch.bfloat16 = torch.float32  # what the layers compute in
kind = GroupedBatchNorm2d


def differences(channels, strides, B, N, groups, programs):
    for module in (convolution_kernels, first_layer, norm_kernels):
        module.PROGRAMS = programs
    torch.manual_seed(B)
    x = torch.randn(B, 1, N, N)
    x[B // 2 :] = 1.5 * x[B // 2 :] + 0.5  # groups that differ
    layers = []
    for C, D, stride in zip([1, *channels], channels, [1, *strides], strict=False):
        norm = kind(D, affine=False)
        norm.groups = groups
        layers += [nn.Conv2d(C, D, 3, stride, padding=1, bias=False), norm, nn.ReLU()]
    plain, fused = (model(*copy.deepcopy(layers)).to(memory_format=torch.channels_last).train()
                    for model in (nn.Sequential, fused_layers.FusedLayers))
    if COMPILED:
        fused = torch.compile(fused, backend="aot_eager", fullgraph=True, dynamic=False)
    expected, found = plain(x), fused(x)
    weight = torch.randn_like(expected) / (expected.numel() / channels[-1]) ** 0.5
    for model, y in ((plain, expected), (fused, found)):
        (y * weight).sum().backward()
    pairs = list(zip(fused.parameters(), plain.parameters(), strict=True))
    buffers = zip(fused.buffers(), plain.buffers(), strict=True)
    return {
        "output": (found - expected).abs().max(),
        "gradient": max((a.grad - b.grad).abs().max() / b.grad.abs().max() for a, b in pairs),
        "statistics": max((a - b).abs().max() for a, b in buffers),
        "size of output": found.detach().abs().max(),
        "size of gradients": min(b.grad.abs().max() for _, b in pairs),
        "shape": float(found.shape == expected.shape and found.is_contiguous(memory_format=torch.channels_last)),
    }


def of_head(B, C, n, P):
    torch.manual_seed(B)
    phi = torch.randn(B, C, n, n).contiguous(memory_format=torch.channels_last).requires_grad_()
    F, M = torch.randn(n * n, P), torch.randn(7, C * P, requires_grad=True)
    encoded = (phi.flatten(2) @ F).flatten(1)
    expected = nn.functional.linear(encoded, M)
    weight = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weight).sum(), (phi, M))

    def rows(phi, M):
        return Product.apply(Encode.apply(phi, F), M)

    found = (torch.compile(rows, backend="aot_eager", fullgraph=True, dynamic=False) if COMPILED else rows)(phi, M)
    own = torch.autograd.grad((found * weight).sum(), (phi, M))
    pairs = [(found, expected), *zip(own, wanted, strict=True)]
    return {"head": max((a - b).abs().max() / b.abs().max() for a, b in pairs)}


COMPILED = sys.argv[2] == "compiled"
layers, heads = json.loads(sys.argv[1])
results = [differences(*case) for case in layers] + [of_head(*case) for case in heads]
print(json.dumps([{name: float(value) for name, value in found.items()} for found in results]))
"""


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_they_are_convolutions_batch_norms_relus_and_the_head(way):
    """Outputs and statistics of order 1, gradients relative to the largest, all in float32.

    In one process: the interpreter must be chosen before triton is imported.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", SCRIPT, json.dumps([CASES, HEADS]), way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == len(CASES) + len(HEADS)
    for case, found in zip(HEADS, results[len(CASES) :], strict=True):
        assert found["head"] < 2e-5, case
    for case, found in zip(CASES, results, strict=False):
        for name in ("output", "statistics", "gradient"):
            assert found[name] < 2e-5, (case, name, found)
        assert found["size of output"] > 1
        assert found["size of gradients"] > 0.01
        assert found["shape"] == 1


def test_statistics_of_the_first_layer_are_not_rounded_by_autocast():
    import torch

    from matchkernel.training.first_layer import mean_and_variance

    taps = torch.cat([torch.randn(2, 500, 9) + 1, torch.ones(2, 500, 1), torch.zeros(2, 500, 6)], 2)
    w = torch.randn(32, 9)
    moments = taps.transpose(1, 2) @ taps / 500
    y = taps[:, :, :9].double() @ w.double().t()
    exact = mean_and_variance(moments, w)
    assert (exact[0] - y.mean(1)).abs().max() < 1e-5
    assert (exact[1] / y.var(1, correction=0) - 1).abs().max() < 1e-4
    with torch.autocast("cpu", torch.bfloat16):
        mean, variance = mean_and_variance(moments, w)
    assert torch.equal(mean, exact[0])
    assert torch.equal(variance, exact[1])
