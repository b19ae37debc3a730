"""What tests of training share: small runs, their settings, and comparisons of what they write."""

import json
from contextlib import contextmanager

import torch

from matchkernel import load
from matchkernel.storage.settings import merged
from matchkernel.training.checkpoint import read_checkpoint
from matchkernel.training.config import TrainingConfig

SMALL = {
    "model": {"variant": "cartesian", "s": 1, "patch_size": 8, "d": 16, "D": 16},
    "sampling": {"pairs": 8, "steps": 12},
    "loop": {"log_every": 4, "save_every": 3, "validate_every": 6},
}


def small_tables(sets):
    """Settings of a run of well under a second on the sets in a folder."""
    data = {"train": str(sets / "train"), "validation": str(sets / "validation")}
    return json.loads(json.dumps({**SMALL, "data": data}))


@contextmanager
def arithmetic_of_a_new_process():
    """Settings of torch that change bits, as they are at the start of a process, whatever other tests left."""
    before = torch.backends.mkldnn.enabled, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch._C._set_mkldnn_enabled(True)
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before[0])
        torch.set_num_threads(before[1])
        torch.use_deterministic_algorithms(before[2])


def config(tables, **changes):
    """A configuration of nested tables, with changes merged into them."""
    return TrainingConfig.from_dict(merged(tables, changes))


def weights(folder, name="final.safetensors"):
    """Tensors of the weights that a run wrote."""
    return load(folder / name).state_dict()


def saved(folder):
    """Tensors of a run's last checkpoint."""
    return read_checkpoint(folder / "last.safetensors").tensors


def stopper(step):
    """A report that ends a run at a line of the log."""

    def report(line):
        if line.step >= step:
            raise StopIteration

    return report


def assert_equal(a, b):
    """Two sets of tensors are equal bit by bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
