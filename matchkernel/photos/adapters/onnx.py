"""ONNX export: patches in, descriptors out; the file is run and compared with torch before it is kept."""

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError, WorkError
from matchkernel.model.card import NORMALIZATION
from matchkernel.model.descriptors import Descriptor, SumOverPositions, check_patch_size
from matchkernel.storage.extras import need
from matchkernel.storage.files import check_output, replacing

LARGEST_DIFFERENCE = 1e-4  # between any value of a row and torch's
BATCHES = (0, 1, 7)
LARGEST_PATCH = 512  # the check with 7 of them takes more than a gigabyte
INPUT, OUTPUT = "patches", "descriptors"


@dataclass(frozen=True)
class Export:
    """A written ONNX file and how much its output differs from torch's."""

    path: Path
    patch_size: int
    D: int
    opset: int
    differences: Mapping[int, float]  # batch size -> largest absolute difference of any value


def export_onnx(
    model: Descriptor, path: str | Path, patch_size: int | None = None, card: Mapping[str, str] | None = None
) -> Export:
    """Write a descriptor to an ONNX file, atomically, after checking that onnxruntime agrees with torch.

    Input `patches` (B, 1, N, N) float32 of any range, output `descriptors` (B, D) unit rows. B can be any number, also
    0; N is fixed in the file. The file's metadata holds `config` (JSON), `normalization`, `patch_size` and the card.

    Args:
        model: the descriptor.
        path: file to write, .onnx.
        patch_size: N (default: the size the model was trained at). Each size needs its own file.
        card: strings to keep in the file, such as `licence` and `trained_on` (default: those of the file the model was
            loaded from, and its digest as `weights_sha256`).
    """
    path = Path(path)
    check_output(path, suffixes=(".onnx",))
    runtime = _packages()
    N = model.config.patch_size if patch_size is None else patch_size
    check_patch_size(model.config, N)
    if N > LARGEST_PATCH:
        raise ArgumentError(f"the maximum patch size for ONNX export is {LARGEST_PATCH} px, got {N} px")
    reference = copy.deepcopy(model.fold(N, torch.device("cpu"))).float()  # a folded model folds to itself
    words = {"config": json.dumps({**model.config.to_dict(), "patch_size": N}, sort_keys=True)}
    words |= {"normalization": NORMALIZATION, "patch_size": str(N)}
    words |= {key: value for key, value in (_card_of(model) if card is None else card).items() if key not in words}
    with replacing(path) as part:
        program = _program(reference, N)
        program.model.metadata_props.update(words)
        program.save(str(part))
        differences = compare(reference, _session(runtime, part), N)
        worst = max(differences.values())
        if not worst <= LARGEST_DIFFERENCE:
            raise WorkError(
                f"{path}: not written, onnxruntime differs from torch by {worst:.2g}, allowed is {LARGEST_DIFFERENCE}"
            )
    D = int(model.config.D or 0)
    return Export(path, N, D, int(program.model.opset_imports[""]), differences)


@torch.no_grad()
def compare(model: Descriptor, session: Any, N: int) -> dict[int, float]:
    """Largest difference between onnxruntime and torch on noise: {batch: difference}, for batches of 0, 1 and 7."""
    differences = {}
    for batch in BATCHES:
        patches = torch.rand(batch, 1, N, N, generator=torch.Generator().manual_seed(batch)) * 255
        expected = model(patches)
        rows = torch.from_numpy(session.run([OUTPUT], {INPUT: patches.numpy()})[0])
        if rows.shape != expected.shape:
            raise WorkError(
                f"onnxruntime gives {tuple(rows.shape)} for a batch of {batch}, not {tuple(expected.shape)}"
            )
        differences[batch] = float((rows - expected).abs().amax()) if batch else 0.0
    return differences


class MeanAsProduct(nn.Module):
    """SumOverPositions as a matrix product, (B, d, n, n) -> (B, d).

    onnxruntime 1.31 returns shape (0, d, n, n) for the mean of an empty batch; it handles a product correctly.
    """

    def forward(self, phi: Tensor) -> Tensor:
        """The mean over positions."""
        cells = phi.shape[-1] * phi.shape[-2]
        return (phi.flatten(2) @ torch.full((cells, 1), 1 / cells)).flatten(1)


def _card_of(model: Descriptor) -> dict[str, str]:
    sha256 = {"weights_sha256": model.card.sha256} if model.card.sha256 else {}
    return {**model.card.to_strings(), **sha256}


def _packages() -> Any:
    """The module onnxruntime; also checks for onnx and onnxscript, because torch's exporter needs them."""
    need("onnx", "onnx", "ONNX export")
    need("onnxscript", "onnx", "ONNX export")
    return need("onnxruntime", "onnx", "ONNX export")


def _program(model: Descriptor, N: int) -> Any:
    """torch's ONNX program of the folded model; the example has two patches, since one would fix the batch size."""
    folded = copy.deepcopy(model).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    means = [isinstance(part, SumOverPositions) for part in folded.aggregations]
    folded.aggregations = nn.ModuleList(
        MeanAsProduct() if mean else part for mean, part in zip(means, folded.aggregations, strict=True)
    )
    batch = torch.export.Dim("batch")
    with _quiet():
        try:
            return torch.onnx.export(
                folded,
                (torch.rand(2, 1, N, N),),
                dynamo=True,
                dynamic_shapes=({0: batch},),
                input_names=[INPUT],
                output_names=[OUTPUT],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = next(iter(str(error).splitlines()), "")[:150]
            raise WorkError(f"torch could not export {model.config.variant}: {reason}") from error


def _session(runtime: Any, path: Path) -> Any:
    try:
        return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which are not exported under stable names
        reason = " ".join(str(error).split())[:150]
        raise WorkError(f"onnxruntime cannot read the exported model: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of torch's exporter about deprecations inside torch and about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
