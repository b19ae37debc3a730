"""Memory of the aggregation: vec(Phi^T F) against the expanded Kronecker products, as the operating system sees it.

python experiments/paper/aggregation_memory.py

Each form runs in a process of its own, which reports by how much its peak grew while it made Phi and aggregated it.
"""

import json
import multiprocessing
import resource
import sys
from collections.abc import Callable

import torch
from data import RESULTS

from matchkernel.model.encoding import SpatialEncoding, position_matrix
from matchkernel.model.kernel_view import raw_encodings
from matchkernel.runtime.positions import fourier_coefficients

d, n, s = 128, 8, 2
P = (2 * s + 1) ** 2


def aggregated(phi: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    """vec(Phi^T F) by the module that the descriptors use."""
    gamma = fourier_coefficients(8, s)
    return SpatialEncoding("cartesian", n, gamma, grid="cells", center_weight=True, unit_norm=False)(phi)


def expanded(phi: torch.Tensor, F: torch.Tensor) -> torch.Tensor:
    """The definition: all Kronecker products, then their sum."""
    return raw_encodings(phi, F).sum(1)


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(form: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], B: int, training: bool) -> int:
    """Growth of the peak in bytes. Runs in a fresh process."""
    F = position_matrix("cartesian", n, fourier_coefficients(8, s)).float()
    warm = torch.rand(1, d, n, n, requires_grad=training)
    form(warm, F).sum().backward() if training else form(warm, F)
    before = peak_bytes()
    result = form(torch.rand(B, d, n, n, requires_grad=training), F)
    if training:
        result.sum().backward()
    return peak_bytes() - before


def in_own_process(form: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], B: int, training: bool) -> int:
    """Measure without what earlier measurements left in memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (form, B, training))


def main() -> None:
    """Measure, print, write."""
    numbers = {"expanded": n * n * d * P, "aggregated": n * n * (d + P)}
    print(f"numbers a patch (paper's count), d={d}, s={s}, n={n}: {numbers['expanded']:,} expanded,", end=" ")
    print(f"{numbers['aggregated']:,} aggregated: {numbers['expanded'] / numbers['aggregated']:.1f} x fewer")
    rows = []
    for training in (False, True):
        for B in (256, 1024):
            most, least = (in_own_process(form, B, training) for form in (expanded, aggregated))
            kind = "forward and backward" if training else "forward"
            row = {"batch": B, "pass": kind, "expanded_bytes": most, "aggregated_bytes": least}
            rows.append({**row, "ratio": round(most / least, 1)})
            print(
                f"measured, {kind}, {B} patches: {most / 1e6:,.0f} against {least / 1e6:,.1f} MB: {most / least:.1f} x"
            )
    result = {"d": d, "s": s, "n": n, "numbers_a_patch": numbers, "measured": rows}
    (RESULTS / "aggregation_memory.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
