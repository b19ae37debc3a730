"""matchkernel export"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import say, user_errors
from matchkernel.cli.options import weight_files


def export(
    model: Annotated[str, typer.Argument(help="name of trained weights, or a .safetensors file")],
    out: Annotated[Path, typer.Option("--out", "-o", help=".onnx file to write")],
    patch_size: Annotated[
        int | None, typer.Option(min=8, help="side of the patches (default: the size the model was trained at)")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="take MODEL as the name of a descriptor, with random weights")
    ] = False,
) -> None:
    """Export a descriptor to ONNX, (B, 1, N, N) patches to (B, D) unit rows, and check it against torch."""
    import torch

    from matchkernel.model.descriptors import build
    from matchkernel.model.weights import load
    from matchkernel.photos.adapters.onnx import export_onnx
    from matchkernel.storage.files import check_output

    with user_errors():
        check_output(out, *weight_files(model), suffixes=(".onnx",))
        network = build(model, generator=torch.Generator().manual_seed(0)) if untrained else load(model)
        card = {"weights": "random, for trying out only"} if untrained else None
        written = export_onnx(network, out, patch_size, card)
        checked = ", ".join(f"{worst:.1g} at batch {batch}" for batch, worst in written.differences.items())
        size = f"{written.patch_size} px patches, {written.D} numbers each, opset {written.opset}"
        say(f"{size}; largest difference from torch {checked} -> {out}")
