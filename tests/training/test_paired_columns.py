"""The weight's gradient from pairs of columns is that of the library."""

import pytest
import torch
from torch.nn import functional as nnf

from matchkernel.training.paired_columns import PairedColumns


@pytest.mark.parametrize(("C", "D", "N"), [(32, 32, 8), (5, 3, 2), (1, 2, 6)])
def test_both_gradients_are_those_of_a_convolution(C, D, N):
    torch.manual_seed(0)
    x = torch.randn(3, C, N, N, dtype=torch.float64).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(D, C, 3, 3, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, D, N, N, dtype=torch.float64)
    wanted = torch.autograd.grad(nnf.conv2d(x, weight, padding=1), (x, weight), gradient)
    y = PairedColumns.apply(x, weight)
    assert torch.equal(y, nnf.conv2d(x, weight, padding=1))
    for found, expected in zip(torch.autograd.grad(y, (x, weight), gradient), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
