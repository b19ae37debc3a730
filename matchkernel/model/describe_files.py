"""Descriptors straight to a file, so that a million of them need no memory for a million.

Rows are appended rather than written through a memory map: on a full disk that is an error, not a crash.
"""

from pathlib import Path

import numpy as np
import torch

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import describe, inference_copy
from matchkernel.model.descriptors import Descriptor
from matchkernel.storage.files import replacing
from matchkernel.storage.progress import Progress, within

SLAB = 8192  # rows described before they are written
CSV_FORMAT = {"<f4": "%.9g", "<f8": "%.17g"}  # read back to the same numbers


def describe_file(
    patches: np.ndarray,
    model: Descriptor,
    out: str | Path,
    *,
    resize: bool = False,
    batch_size: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> np.ndarray:
    """Describe patches into a file, whole or not at all.

    Args:
        patches: as for describe.
        model: the descriptor.
        out: .npy, or .csv in the HPatches layout: no header, a row a patch, commas.
        resize, batch_size, device, progress: as for describe.

    Returns:
        (B,) bool, which patches were valid.
    """
    out = Path(out)
    if out.suffix.lower() not in (".npy", ".csv"):
        raise ArgumentError(f"descriptors are written as .npy or .csv, got {out.name!r}")
    runner = inference_copy(model, device)
    dtype = "<f8" if next(runner.parameters()).dtype == torch.float64 else "<f4"
    valid = np.empty(len(patches), bool)
    with replacing(out) as part, part.open("wb") as file:
        if out.suffix.lower() == ".npy":
            header = {"descr": dtype, "fortran_order": False, "shape": (len(patches), model.config.D)}
            np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, max(len(patches), 1), SLAB):
            rows, valid[start : start + SLAB] = describe(
                patches[start : start + SLAB],
                runner,
                resize=resize,
                batch_size=batch_size,
                progress=within(progress, start, len(patches)),
                return_valid=True,
            )
            if out.suffix.lower() == ".npy":
                file.write(rows.astype(dtype).tobytes())
            else:
                np.savetxt(file, rows, fmt=CSV_FORMAT[dtype], delimiter=",")
    return valid
