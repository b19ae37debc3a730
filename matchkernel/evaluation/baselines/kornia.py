"""MKD, TFeat and other descriptors of kornia, with weights from files and whitening from files or learned here."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.evaluation.method import (
    BATCH,
    RESIZED,
    Method,
    UnitRows,
    check_patches,
    forward,
    network_method,
    padded_batch,
    patch_method,
)
from matchkernel.storage.extras import need
from matchkernel.storage.files import file_hash
from matchkernel.storage.tensors import check_finite, fill, read_content, read_state

MKD_SIDE, MKD_RAW, MKD_OUT = 64, 238, 128
MKD_SETS = ("liberty", "notredame", "yosemite")  # in the published whitening file
# HardTFeat's layers and their names in kornia's TFeat, whose layer 0 is the input normalisation.
HARD_TFEAT = {"features.0": "features.1", "features.3": "features.4", "classifier.1": "descr.0"}


def mkd(training_patches: np.ndarray) -> Method:
    """MKD (Mukundan, Tolias, Chum 2019), its attenuated PCA whitening learned on (K, N, N) patches."""
    check_patches(training_patches, "mkd")
    raw = _raw_mkd()
    mean, covariance, count = _moments(training_patches, raw)
    eigvals, eigvecs = torch.linalg.eigh(covariance)
    eigvals, eigvecs = eigvals.flip(0), eigvecs.flip(1)
    if count < 2 or not bool(eigvals[MKD_OUT - 1] > 1e-10 * eigvals[0]):
        raise ArgumentError(f"mkd: {count} training patches do not span {MKD_OUT} dimensions; give some thousands")
    learned = {"mean": mean.float(), "eigvecs": eigvecs.float(), "eigvals": eigvals.float()}
    return _whitened_mkd("mkd", raw, learned, {"whitening learned on": f"{count} training patches"})


def mkd_published(training_set: str, path: Path) -> Method:
    """MKD with the whitening that its authors published for one of MKD_SETS in mkd-concat-64.pth."""
    whitening = read_content(path)
    try:
        learned = {key: whitening[training_set]["pca"][key].float() for key in ("mean", "eigvecs", "eigvals")}
        shapes = {key: list(tensor.shape) for key, tensor in learned.items()}
    except (KeyError, TypeError, IndexError, AttributeError):
        raise WeightsError(f"{path}: not MKD's whitening file (no {training_set} with pca in it)") from None
    wanted = {"mean": [MKD_RAW], "eigvecs": [MKD_RAW, MKD_RAW], "eigvals": [MKD_RAW]}
    if shapes != wanted:
        raise WeightsError(f"{path}: a whitening with shapes {shapes}, expected {wanted}")
    check_finite(learned, path)
    if not bool((learned["eigvals"][:MKD_OUT] > 0).all()):
        raise WeightsError(f"{path}: a whitening with eigenvalues that are not positive")
    source = {"whitening": path.name, "sha256": file_hash(path), "whitening learned on": training_set}
    return _whitened_mkd(f"mkd-{training_set}", _raw_mkd(), learned, source)


def network(name: str, class_name: str, path: Path) -> Method:
    """A class of kornia.feature with weights from a file: its state_dict, or a dictionary with one as `state_dict`."""
    kind = _network_class(class_name)
    module = fill(kind(pretrained=False), read_state(path), path, class_name)
    return network_method(name, module, kind.patch_size, path, _call(f"kornia.feature.{class_name}"))


def hard_tfeat(path: Path) -> Method:
    """TFeat's network trained with HardNet's loss, from its own file, with unit rows as its authors use it."""
    kind, state = _network_class("TFeat"), read_state(path)
    renamed = {
        f"{ours}.{part}": state[f"{theirs}.{part}"]
        for theirs, ours in HARD_TFEAT.items()
        for part in ("weight", "bias")
        if isinstance(state.get(f"{theirs}.{part}"), Tensor)
    }
    if "descr.0.weight" in renamed:
        renamed["descr.0.weight"] = renamed["descr.0.weight"].flatten(1)  # a convolution of the whole map there
    module = nn.Sequential(fill(kind(pretrained=False), renamed, path, "HardTFeat"), UnitRows())
    return network_method("hardtfeat", module, kind.patch_size, path, _call("kornia.feature.TFeat, then unit rows"))


def _whitened_mkd(name: str, raw: nn.Module, learned: dict[str, Tensor], source: dict[str, str]) -> Method:
    from kornia.feature.mkd import Whitening

    whitening = Whitening("pcawt", {"pca": learned}, in_dims=MKD_RAW, output_dims=MKD_OUT, t=0.7)
    settings = {
        "library": f"kornia {_kornia().__version__}",
        "patch": f"{MKD_SIDE} px, {RESIZED}",
        "call": f"MKDDescriptor(patch_size={MKD_SIDE}, kernel_type='concat', whitening=None), {MKD_RAW} numbers",
        "after": f"PCA whitening attenuated by t = 0.7 (pcawt) to {MKD_OUT} numbers, unit rows",
        **source,
    }
    # The learned parameters are the mean and the projection, which includes the eigenvalues.
    parameters = MKD_RAW + MKD_RAW * MKD_OUT
    compute = forward(nn.Sequential(raw, whitening).eval())
    return patch_method(name, MKD_SIDE, compute, settings, parameters=parameters)


def _raw_mkd() -> nn.Module:
    return _kornia().feature.MKDDescriptor(patch_size=MKD_SIDE, kernel_type="concat", whitening=None).eval()


def _moments(patches: np.ndarray, raw: nn.Module) -> tuple[Tensor, Tensor, int]:
    """Mean (238,) and covariance (238, 238) of the raw rows of patches, in float64; constant patches are left out."""
    total, products = torch.zeros(MKD_RAW).double(), torch.zeros(MKD_RAW, MKD_RAW).double()
    count, compute = 0, forward(raw)
    for start in range(0, len(patches), BATCH):
        batch, is_varied = padded_batch(patches[start : start + BATCH], MKD_SIDE)
        rows = torch.from_numpy(compute(batch)[: len(is_varied)][is_varied]).double()
        total += rows.sum(0)
        products += rows.T @ rows
        count += len(rows)
    mean = total / max(count, 1)
    return mean, products / max(count, 1) - mean[:, None] * mean, count


def _network_class(name: str) -> Any:
    """The class of kornia.feature with that name, if it is a network for patches."""
    kind: Any = getattr(_kornia().feature, name, None)
    is_network = isinstance(kind, type) and issubclass(kind, nn.Module) and hasattr(kind, "patch_size")
    if not is_network or "pretrained" not in inspect.signature(kind).parameters:
        raise ArgumentError(f"kornia has no patch descriptor {name!r}; it has HardNet, HardNet8, HyNet, SOSNet, TFeat")
    return kind


def _call(text: str) -> dict[str, str]:
    return {"library": f"kornia {_kornia().__version__}", "call": text}


def _kornia() -> Any:
    what = "describing with mkd, tfeat, hardtfeat or kornia:<class>"
    need("kornia.feature", "baselines", what)
    return need("kornia", "baselines", what)
