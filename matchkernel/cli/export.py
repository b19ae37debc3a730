"""matchkernel export"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import weight_files
from matchkernel.errors import ArgumentError


def export(
    model: Annotated[str, typer.Argument(help="name of trained weights, or a .safetensors file")],
    out: Annotated[Path, typer.Option("--out", "-o", help=".onnx file to write")],
    patch_size: Annotated[
        int | None, typer.Option(min=8, help="side of the patches (default: the size the model was trained at)")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="take MODEL as the name of a descriptor, with random weights")
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="convolutions in 8 bits; needs --calibrate")] = False,
    calibrate: Annotated[
        list[Path] | None,
        typer.Option(metavar="SET", help="patch set like those trained on, for --int8; may be given several times"),
    ] = None,
) -> None:
    """Export a descriptor to ONNX, (B, 1, N, N) patches to (B, D) unit rows, and check it against torch."""
    import torch

    from matchkernel.data.patch_set import open_patch_set
    from matchkernel.evaluation.smaller import export_int8
    from matchkernel.model.descriptors import build
    from matchkernel.model.weights import load
    from matchkernel.photos.adapters.onnx import export_onnx
    from matchkernel.storage.files import check_output

    if int8 != bool(calibrate):
        raise ArgumentError("--int8 and --calibrate SET belong together: ranges of 8 bits are chosen on patches")
    check_output(out, *weight_files(model), *(calibrate or []), suffixes=(".onnx",))
    network = build(model, generator=torch.Generator().manual_seed(0)) if untrained else load(model)
    card = {"weights": "random, for trying out only"} if untrained else None
    if calibrate:
        with progress_bar("calibrating"):
            made = export_int8(network, out, [open_patch_set(place) for place in calibrate], patch_size, card)
        size, facts = made.ranges.patch_size, f"int8 calibrated on {made.calibrated} patches"
        checked = f"cosine with torch {made.cosine:.5f} (lowest {made.lowest_cosine:.4f}), retrieval mAP "
        checked += f"{made.int8_map:.2f} instead of {made.torch_map:.2f}, on {made.held_out} patches of other points"
    else:
        written = export_onnx(network, out, patch_size, card)
        size, facts = written.patch_size, f"opset {written.opset}"
        differences = (f"{worst:.1g} at batch {batch}" for batch, worst in written.differences.items())
        checked = f"largest difference from torch {', '.join(differences)}"
    say(f"{size} px patches, {network.config.D} numbers each, {facts}; {checked} -> {out}")
