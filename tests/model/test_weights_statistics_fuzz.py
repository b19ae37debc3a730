"""BatchNorm statistics of patch sizes in weight files, odd in any way under a right digest: refused, or fit for use."""

import re

import pytest
import torch
from helpers import textures
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from matchkernel.errors import ArgumentError, MatchKernelError, WeightsError
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save
from matchkernel.storage.tensors import write_tensors

MODEL = build("sum", d=2, generator=torch.Generator().manual_seed(0)).eval()
OWN = {name: tuple(tensor.shape) for name, tensor in MODEL.statistics().items()}
MEAN, VARIANCE = "backbones.0.layers.1.running_mean", "backbones.0.layers.1.running_var"
KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NEVER_WRITTEN = [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
ODD_KINDS = [*NEVER_WRITTEN, torch.int64, torch.uint8, torch.bool]
ODD_NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e-300, -1e-3, -1.0]
ODD_SIZES = ["33", "4", "9996", "10000", str(10**9), "0", "-4", "012", "+16", "1e1", " 12", "1\u0662", "x", ""]
ODD_NAMES = ["", ".", "y", "projection.weight", "backbones.0.layers.1.num_batches_tracked", "a\nb" * 100]


def of_size(size):
    """Plain statistics of a patch size, as they are named in a file."""
    return {f"statistics.{size}.{name}": torch.full(shape, 0.5) for name, shape in OWN.items()}


def drawn(draw, size):
    """What to put into a file: name -> tensor of statistics, some of them odd in one way, or None for one too few."""
    put = of_size(size)
    names = st.lists(st.sampled_from(sorted(put)), min_size=1, max_size=3, unique=True)
    way = draw(st.sampled_from(["numbers", "kinds", "shapes", "missing", "sizes", "names"]))
    if way == "numbers":
        kind = draw(st.sampled_from(KINDS))
        for name in draw(names):
            number = draw(st.floats(0, 1e3) | st.floats(-1e3, 1e3) | st.sampled_from(ODD_NUMBERS))
            put[name] = torch.cat([put[name][1:].double(), torch.tensor([number], dtype=torch.float64)]).to(kind)
    elif way == "kinds":
        put |= {name: put[name].to(draw(st.sampled_from(KINDS + ODD_KINDS))) for name in draw(names)}
    elif way == "shapes":
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        put |= {name: torch.full(shape, 0.5) for name in draw(names)}
    elif way == "missing":
        put |= dict.fromkeys(draw(names))
    elif way == "sizes":
        odd = of_size(draw(st.sampled_from(ODD_SIZES) | st.text(max_size=5)))
        put |= dict(list(odd.items())[: draw(st.sampled_from([1, None]))])
    else:
        prefix = draw(st.sampled_from(["", "statistics", "statistics.", f"statistics.{size}", f"statistics.{size}."]))
        put[prefix + draw(st.sampled_from(ODD_NAMES))] = torch.ones(2)
    return put


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Tensors and words of a weight file without such statistics."""
    path = tmp_path_factory.mktemp("weights") / "whole.safetensors"
    save(MODEL, path)
    with safe_open(path, framework="np") as file:
        return load_file(path), {name: text for name, text in file.metadata().items() if name != "sha256"}


def written(path, contents, put):
    """A file with these tensors too, and a right digest, if they are of kinds that we write."""
    tensors = {name: tensor for name, tensor in (contents[0] | put).items() if tensor is not None}
    if any(tensor.dtype in NEVER_WRITTEN for tensor in tensors.values()):
        save_file(tensors, path, {**contents[1], "sha256": ""})
    else:
        write_tensors(path, tensors, contents[1])
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), size=st.sampled_from([12, 16, 32]))
def test_odd_statistics_are_refused_in_one_line_or_fit_for_use(data, size, contents, tmp_path):
    path = written(tmp_path / "odd.safetensors", contents, drawn(data.draw, size))
    reason, model = None, None
    try:
        model = load(path, patch_size=size)
    except MatchKernelError as error:
        reason = str(error)
    if model is None:
        event("refused")
        assert reason.startswith(f"{path}: ")
        assert len(reason) < len(f"{path}") + 250
        assert "\n" not in reason
    else:
        event("loaded")
        assert size in model.size_statistics
        assert model(textures(2, size)).isfinite().all()


@pytest.mark.parametrize(
    ("name", "number", "kind", "reason"),
    [
        (VARIANCE, -1, torch.float32, "negative variances in {}"),
        (VARIANCE, float("nan"), torch.float32, "NaN or infinite values in {}"),
        (MEAN, -1e300, torch.float64, "NaN or infinite values in {}, as torch.float32"),
        (MEAN, 1, torch.float8_e4m3fn, "tensor {} is of kind F8_E4M3"),
        (MEAN, 1, torch.complex64, "tensor {} is of kind C64"),
        (MEAN, 1, torch.int64, "tensor {} is of kind I64"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "statistics.12."])
def test_numbers_that_no_model_can_use(prefix, name, number, kind, reason, contents, tmp_path):
    put = of_size(12) | {prefix + name: torch.full((32,), number, dtype=torch.float64).to(kind)}
    path = written(tmp_path / "bad.safetensors", contents, put)
    with pytest.raises(WeightsError, match=rf"^{re.escape(str(path))}: .*{re.escape(reason.format(prefix + name))}"):
        load(path)


def test_numbers_too_large_to_compute_with_give_no_description(contents, tmp_path):
    """Finite as they stand, but not what becomes of them."""
    put = of_size(12) | {f"statistics.12.{MEAN}": torch.full((32,), -3e38)}
    model = load(written(tmp_path / "large.safetensors", contents, put))
    rows, valid = describe(textures(2, 12), model, return_valid=True)
    assert not valid.any()
    assert not rows.any()


def test_models_with_negative_variances_are_not_saved(tmp_path):
    model = build("sum", d=2)
    model.get_buffer(VARIANCE)[0] = -1
    with pytest.raises(ArgumentError, match=f"negative variances in {re.escape(VARIANCE)}: not saved"):
        save(model, tmp_path / "w.safetensors")
    assert not list(tmp_path.iterdir())
