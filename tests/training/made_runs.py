"""What tests of training runs share."""

import torch

from matchkernel.training.checkpoint import read_checkpoint


def saved(folder, prefix=""):
    """Tensors of a run's last checkpoint whose names begin so."""
    tensors = read_checkpoint(folder / "last.safetensors").tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def assert_equal(a, b):
    """Two sets of tensors, bit by bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
