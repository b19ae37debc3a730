"""ONNX export: patches in, descriptors out; the file is run and compared with torch before it is kept."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from matchkernel.errors import ArgumentError, WorkError
from matchkernel.model.descriptors import Descriptor, check_model, check_patch_size
from matchkernel.model.engines.choose import folded_network
from matchkernel.model.weights import state_digest
from matchkernel.runtime.config import ONNX
from matchkernel.runtime.graph import INPUT, OPSET, OUTPUT, descriptor_file
from matchkernel.runtime.onnx import ENGINE, PATCH_SIZE, STATE, open_session
from matchkernel.runtime.weights import NORMALIZATION
from matchkernel.storage.files import check_output, replacing

LARGEST_DIFFERENCE = 1e-4  # between any value of a row and torch's
BATCHES = (0, 1, 7)
LARGEST_PATCH = 512  # the check with 7 of them takes more than a gigabyte


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

    Example:
        >>> import matchkernel, tempfile
        >>> from matchkernel.photos.adapters.onnx import export_onnx
        >>> folder = tempfile.TemporaryDirectory()
        >>> written = export_onnx(matchkernel.load("tiny"), f"{folder.name}/tiny.onnx")
        >>> written.patch_size, written.D
        (32, 128)
        >>> folder.cleanup()
    """
    path = Path(path)
    check_output(path, suffixes=(".onnx",))
    N, reference = prepare(model, patch_size)
    content = descriptor_file(folded_network(model, N), metadata_of(model, N, ONNX, card))
    differences = compare(reference, open_session(content, "the exported model"), N)
    worst = float(torch.tensor(list(differences.values())).max())  # NaN if one is, unlike Python's max
    if not worst <= LARGEST_DIFFERENCE:
        raise WorkError(
            f"{path}: not written, onnxruntime differs from torch by {worst:.2g}, allowed is {LARGEST_DIFFERENCE}"
        )
    with replacing(path) as part:
        part.write_bytes(content)
    return Export(path, N, int(model.config.D or 0), OPSET, differences)


def prepare(model: Descriptor, patch_size: int | None) -> tuple[int, Descriptor]:
    """The patch size of an export and a folded copy to compare with; refuses what cannot be exported."""
    check_model(model)
    N = model.config.patch_size if patch_size is None else patch_size
    check_patch_size(model.config, N)
    if N > LARGEST_PATCH:
        raise ArgumentError(f"the maximum patch size for ONNX export is {LARGEST_PATCH} px, got {N} px")
    return N, copy.deepcopy(model.fold(device=torch.device("cpu"))).float()  # a folded model folds to itself


def metadata_of(model: Descriptor, N: int, engine: str, card: Mapping[str, str] | None) -> dict[str, str]:
    """What a file records: the card, the configuration, and from which weights and for which engine it was made."""
    sha256 = {"weights_sha256": model.card.sha256} if model.card.sha256 else {}
    config = json.dumps({**model.config.to_dict(), "patch_size": N}, sort_keys=True)
    own = {"config": config, "normalization": NORMALIZATION, PATCH_SIZE: str(N)}
    own |= {ENGINE: engine, STATE: state_digest(model)}
    return {**({**model.card.to_strings(), **sha256} if card is None else card), **own}


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
