"""matchkernel describe"""

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from matchkernel.cli.console import counting_bar, stderr, user_errors
from matchkernel.data.patch_files import read_patches
from matchkernel.model.describe_files import describe_file
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load
from matchkernel.storage.files import check_output


def describe(
    patches: Annotated[Path, typer.Argument(help=".npy of (B, N, N) or (B, 1, N, N), or a .png strip of patches")],
    out: Annotated[Path, typer.Option("--out", "-o", help="descriptors to write, .npy or .csv")],
    model: Annotated[str, typer.Option(help="name of trained weights, or a .safetensors file")] = "dual",
    untrained: Annotated[bool, typer.Option(help="take --model as a descriptor's name, with random weights")] = False,
    resize: Annotated[bool, typer.Option(help="bring patches to the model's size first")] = False,
    batch_size: Annotated[int | None, typer.Option(min=1, help="patches at a time")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="print a summary as JSON")] = False,
) -> None:
    """Describe patches: one unit row each; rows of zeros for constant or non-finite patches."""
    with user_errors():
        check_output(out, patches)
        network = build(model, generator=torch.Generator().manual_seed(0)) if untrained else load(model)
        weights = "random weights, for trying out only" if untrained else f"weights {model}"
        stack = read_patches(patches)
        with counting_bar("describing", len(stack)) as progress:
            valid = describe_file(
                stack,
                network.fold(),
                out,
                resize=resize,
                batch_size=batch_size,
                device=device,
                progress=progress,
            )
        invalid = (~valid).nonzero()[0].tolist()
        summary = {
            "patches": len(stack),
            "D": network.config.D,
            "invalid": invalid,
            "out": str(out),
            "weights": weights,
        }
        if as_json:
            print(json.dumps(summary))
        bad = f"; {len(invalid)} without content, rows of zeros: {invalid[:10]}" if invalid else ""
        stderr.print(f"{len(stack)} patches, {network.config.D} numbers each ({weights}) -> {out}{bad}", markup=False)
