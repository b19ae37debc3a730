"""What tests of training runs share."""

import torch

from matchkernel import load
from matchkernel.storage.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig


def config(tables, **changes):
    """A configuration of nested tables, with changes laid over them."""
    return TrainingConfig.from_dict(merged(tables, changes))


def weights(folder, name="final.safetensors"):
    """Tensors of the weights that a run wrote."""
    return load(folder / name).state_dict()


def saved(folder, prefix=""):
    """Tensors of a run's last checkpoint whose names begin so."""
    tensors = read_checkpoint(folder / "last.safetensors").tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def assert_equal(a, b):
    """Two sets of tensors, bit by bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def tree(folder):
    """Every file's bytes, by its place."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
