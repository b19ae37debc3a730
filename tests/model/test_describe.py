import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import refuses, trained_like
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model import describe as describe_module
from matchkernel.model.describe import describe_file, resize_patches
from matchkernel.runtime.config import VARIANTS


def model_of(variant="dual", **settings):
    narrow = {"d": 8, "widths": (8, 8, 16, 16, 8)}
    return trained_like(matchkernel.build(variant, generator=torch.Generator().manual_seed(0), **narrow, **settings))


def test_another_default_device_changes_nothing(stack):
    model = matchkernel.load("tiny")
    expected = matchkernel.describe(stack, model)
    with torch.device("meta"):
        assert {tensor.device.type for tensor in matchkernel.load("tiny").state_dict().values()} == {"cpu"}
        np.testing.assert_array_equal(matchkernel.describe(stack, model), expected)


@pytest.fixture
def stack(textures):
    """(40, 32, 32) uint8."""
    return textures(40)[:, 0].round().to(torch.uint8).numpy()


@pytest.mark.parametrize("variant", VARIANTS)
def test_describing_applies_the_model(variant, stack):
    model = model_of(variant)
    rows = matchkernel.describe(stack, model)
    assert isinstance(rows, np.ndarray)
    assert rows.dtype == np.float32
    with torch.no_grad():
        expected = model(torch.from_numpy(stack).float()[:, None]).numpy()
    assert np.abs(rows - expected).max() < 1e-6


@pytest.mark.parametrize("convert", [
    lambda stack: stack[:, None],
    lambda stack: stack.astype(np.int64),
    lambda stack: stack.astype(np.float16),
    lambda stack: stack.astype(np.float64),
    lambda stack: stack.astype(">f4"),
    lambda stack: stack.astype(np.float32) / 255,
    lambda stack: stack.astype(np.float32) * 20 - 3000,
    lambda stack: np.asfortranarray(stack),
    lambda stack: np.ascontiguousarray(stack[:, :, ::-1])[:, :, ::-1],
    lambda stack: torch.from_numpy(stack),
    lambda stack: torch.from_numpy(stack).double()[:, None],
    lambda stack: torch.from_numpy(stack).float().requires_grad_(),
    lambda stack: torch.from_numpy(stack).permute(1, 2, 0).contiguous().permute(2, 0, 1),
])  # fmt: skip
def test_any_kind_of_array_gives_the_same_rows(convert, stack):
    expected = matchkernel.describe(stack, model_of())
    rows = matchkernel.describe(convert(stack), model_of())
    assert isinstance(rows, torch.Tensor) == isinstance(convert(stack), torch.Tensor)
    assert np.abs(np.asarray(rows) - expected).max() < 1e-4  # gray / 255 meets the 1e-7 beside std
    if isinstance(rows, torch.Tensor):
        assert not rows.requires_grad


def test_a_read_only_memory_map_is_described(stack, tmp_path):
    np.save(tmp_path / "patches.npy", stack)
    mapped = np.load(tmp_path / "patches.npy", mmap_mode="r")
    assert np.array_equal(matchkernel.describe(mapped, model_of()), matchkernel.describe(stack, model_of()))


@pytest.mark.parametrize("shape", [(0, 32, 32), (0, 1, 32, 32)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_in_gives_nothing_of_the_right_width(shape, variant):
    model = model_of(variant)
    rows, valid = matchkernel.describe(np.empty(shape, np.uint8), model, return_valid=True)
    assert rows.shape == (0, model.config.D)
    assert valid.shape == (0,)
    assert matchkernel.describe(torch.empty(shape), model, resize=True).shape == (0, model.config.D)


BAD = {
    "constant": lambda patch: np.full_like(patch, 7),
    "zero": np.zeros_like,
    "nan": lambda patch: np.where(np.arange(32) == 3, np.nan, patch),
    "all nan": lambda patch: np.full_like(patch, np.nan),
    "inf": lambda patch: np.where(np.arange(32) == 3, np.inf, patch),
    "-inf": lambda patch: np.where(np.arange(32) == 3, -np.inf, patch),
    "too large for float32": lambda patch: patch.astype(np.float64) * 1e300,
    "squares too large for float32": lambda patch: patch * np.float32(1e30),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("variant", ["dual", "fc", "sum"])
def test_a_patch_without_content_is_flagged_and_leaves_the_others_alone(kind, variant, stack):
    model = model_of(variant)
    good = stack.astype(np.float64)
    bad = good.copy()
    bad[7] = BAD[kind](bad[7])
    expected = matchkernel.describe(good, model)
    rows, valid = matchkernel.describe(bad, model, return_valid=True)
    assert np.flatnonzero(~valid).tolist() == [7]
    assert not rows[7].any()
    others = np.arange(len(stack)) != 7
    assert np.array_equal(rows[others], expected[others])  # bit for bit


def test_contrast_lost_in_resizing_is_flagged():
    board = (np.indices((64, 64)).sum(0) % 2).astype(np.float32) * 0.1 + 0.3
    _, valid = matchkernel.describe(board[None], model_of(), resize=True, return_valid=True)
    assert not valid.any()


@settings(max_examples=10)
@given(st.integers(1, 50), st.integers(0, 12))
def test_batch_size_does_not_matter(batch_size, count):
    patches = np.random.default_rng(count).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    model = model_of(patch_size=8)
    difference = matchkernel.describe(patches, model, batch_size=batch_size) - matchkernel.describe(patches, model)
    assert np.abs(difference).max(initial=0) < 1e-6


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training, stack):
    model = model_of("fc").train(training)
    model.backbones[0].layers[1].train(not training)  # a mixed mode, as for frozen statistics
    modes = [module.training for module in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = matchkernel.describe(stack, model)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert np.array_equal(rows, matchkernel.describe(stack, model_of("fc")))  # never with dropout or batch statistics
    with pytest.raises(ArgumentError):
        matchkernel.describe(stack[:, :30, :30], model)
    assert [module.training for module in model.modules()] == modes


def test_another_size_is_used_as_it_is_or_resized_when_asked(textures):
    model, patches = model_of(), textures(5, 65)
    resized = matchkernel.describe(patches, model, resize=True)
    assert torch.allclose(resized, matchkernel.describe(resize_patches(patches, 32), model), atol=1e-5)
    at_64 = matchkernel.describe(patches[..., :64, :64], model)
    assert at_64.shape == resized.shape
    with refuses(ArgumentError):
        matchkernel.describe(patches[..., :64, :64], model_of("fc"))
    assert matchkernel.describe(patches, model_of("fc"), resize=True).shape == (5, 128)


def test_rows_are_written_to_the_given_array(stack, tmp_path):
    model = model_of()
    mapped = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (40, 128))
    assert matchkernel.describe(stack, model, out=mapped) is mapped
    assert np.array_equal(mapped, matchkernel.describe(stack, model))
    filled = torch.nn.Parameter(torch.empty(40, 128), requires_grad=False)
    assert matchkernel.describe(torch.from_numpy(stack), model, out=filled) is filled


def test_large_patches_are_read_in_small_pieces(monkeypatch):
    """64 patches would fill the network, but their source is bounded too."""
    monkeypatch.setattr(describe_module, "SOURCE_PIXELS", 3 * 200 * 200)
    seen = []
    patches = np.random.default_rng(0).random((7, 200, 200), dtype=np.float32)
    matchkernel.describe(patches, model_of(), resize=True, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(3, 7), (6, 7), (7, 7)]


def test_double_models_give_double_rows(stack):
    rows = matchkernel.describe(stack, model_of())
    exact = matchkernel.describe(stack, model_of().double())
    assert exact.dtype == np.float64
    assert np.abs(exact - rows).max() < 1e-5


ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # maximum relative change of a weight


class NoHalfPrecisionArithmetic(TorchDispatchMode):
    """A CPU without bfloat16 and float16 arithmetic: torch would warn and switch mkldnn off for the whole process."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        if any(t.dtype in ROUNDING and t.device.type == "cpu" for t in tensors):
            name = func.overloadpacket.__name__
            assert name in ("_to_copy", "clone", "detach", "empty_like", "copy_", "new_empty", "set_", "view"), (
                f"{name} in half precision"
            )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_cpu_computes_half_precision_models_in_float32(dtype, stack):
    """Any torch, any processor: nothing but conversion to float32 is ever done with half-precision numbers.

    If the changes of weights by rounding added up over the seven layers, a row would turn by seven times as much.
    """
    enabled = torch.backends.mkldnn.enabled
    for variant in VARIANTS:
        model = model_of(variant)
        exact = matchkernel.describe(stack, model)
        model = model.to(dtype)
        with NoHalfPrecisionArithmetic():
            rows = matchkernel.describe(stack, model)
            assert (rows * exact).sum(1).min() > 1 - (7 * ROUNDING[dtype]) ** 2 / 2
            assert np.array_equal(matchkernel.describe(stack, model.fold()), rows)
            again = matchkernel.describe(stack, model.fold().to(dtype))  # folded first, then rounded
            assert (rows * again).sum(1).min() > 1 - (14 * ROUNDING[dtype]) ** 2 / 2
        assert next(model.parameters()).dtype == dtype
    assert torch.backends.mkldnn.enabled == enabled


BYTES, FLOATS = np.ones((1, 32, 32), np.uint8), torch.ones(1, 32, 32)
REFUSED = {
    "one patch": ({"patches": BYTES[0]}, ArgumentError),
    "three channels": ({"patches": np.zeros((1, 3, 32, 32))}, ArgumentError),
    "not square": ({"patches": BYTES[:, :, :28], "resize": True}, ArgumentError),
    "30 px": ({"patches": BYTES[:, :30, :30]}, ArgumentError),
    "no pixels": ({"patches": np.zeros((3, 0, 0)), "resize": True}, ArgumentError),
    **{
        f"numpy {kind}": ({"patches": BYTES.astype(kind)}, ArgumentTypeError)
        for kind in (bool, complex, object, np.longdouble, "S3")
    },
    **{
        f"torch {kind}": ({"patches": FLOATS.to(kind)}, ArgumentTypeError)
        for kind in (torch.bool, torch.complex64, "meta")
    },
    "sparse": ({"patches": FLOATS.to_sparse()}, ArgumentTypeError),
    "a list": ({"patches": [[1, 2]]}, ArgumentTypeError),
    "nothing": ({"patches": None}, ArgumentTypeError),
    "batches of 0": ({"batch_size": 0}, ArgumentError),
    "batches of 2.5": ({"batch_size": 2.5}, ArgumentTypeError),
    "batches of True": ({"batch_size": True}, ArgumentTypeError),
    "an unknown device": ({"device": "abacus"}, ArgumentError),
    "device meta": ({"device": "meta"}, ArgumentError),
    "a name": ({"model": "dual"}, ArgumentTypeError),
    "another module": ({"model": torch.nn.Linear(1, 1)}, ArgumentTypeError),
    "out of another shape": ({"out": np.empty((3, 128), np.float32)}, ArgumentError),
    "out of torch": ({"out": torch.empty(1, 128)}, ArgumentTypeError),
    "out is a list": ({"out": []}, ArgumentTypeError),
    "out of bytes": ({"out": np.empty((1, 128), np.uint8)}, ArgumentTypeError),
    "out is read-only": ({"out": np.broadcast_to(np.float32(0), (1, 128))}, ArgumentTypeError),
    "an unknown engine": ({"engine": "tensorrt"}, ArgumentError),
    "a GPU's engine": ({"engine": "cuda-half"}, ArgumentError),
    "int8 without ranges": ({"engine": "onnx-int8"}, ArgumentError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_describe_refuses(name):
    arguments, error = REFUSED[name]
    with refuses(error):
        matchkernel.describe(**{"patches": BYTES, "model": model_of(), **arguments})


MANY = """
import resource, sys, numpy as np, torch, matchkernel
count = int(sys.argv[1])
model = matchkernel.build("sum", d=1, patch_size=8).eval()
# Many patches that take no memory: one patch seen through a stride of 0.
patches = np.lib.stride_tricks.as_strided(np.arange(64, dtype=np.uint8), (count, 8, 8), (0, 8, 1))
matchkernel.describe(patches[:2000], model)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = matchkernel.describe(patches, model)
assert rows.shape == (count, 1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_number_of_patches(count):
    """All activations of 10,000 such patches at once would be 300 MB."""
    grown = subprocess.run([sys.executable, "-c", MANY, str(count)], capture_output=True, text=True, check=True)
    assert int(grown.stdout) < 100  # MiB more than 2,000 patches need; the rows themselves are 4 bytes each


@pytest.fixture
def small_model():
    return matchkernel.build("dual", d=4, patch_size=8, generator=torch.Generator().manual_seed(0)).eval()


@pytest.fixture
def small_stack():
    patches = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)
    patches[3] = 9
    return patches


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("slab", [7, 8192])
def test_the_file_holds_what_describe_gives(suffix, slab, small_stack, small_model, tmp_path, monkeypatch):
    monkeypatch.setattr(describe_module, "SLAB", slab)
    out = tmp_path / f"rows{suffix}"
    valid = describe_file(small_stack, small_model, out)
    rows = np.load(out) if suffix == ".npy" else np.loadtxt(out, delimiter=",", dtype=np.float32)
    assert np.abs(rows - matchkernel.describe(small_stack, small_model)).max() < 1e-6
    assert rows.dtype == np.float32
    assert np.flatnonzero(~valid).tolist() == [3]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_a_file_of_no_patches_is_empty(suffix, small_model, tmp_path):
    out = tmp_path / f"rows{suffix}"
    assert describe_file(np.empty((0, 8, 8), np.uint8), small_model, out).shape == (0,)
    if suffix == ".npy":
        assert np.load(out).shape == (0, 128)
    else:
        assert out.read_text() == ""


def test_a_failure_leaves_nothing(small_model, tmp_path):
    with refuses(ArgumentError):
        describe_file(np.zeros((1, 8, 8)), small_model, tmp_path / "rows.txt")
    with refuses(ArgumentError):
        describe_file(np.zeros((1, 9, 9)), small_model, tmp_path / "rows.npy")
    assert not list(tmp_path.iterdir())
