"""matchkernel describe"""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import Device, Engine, Json, Model, Untrained, weight_files


def describe(
    patches: Annotated[Path, typer.Argument(help=".npy of (B, N, N) or (B, 1, N, N), or a .png strip of patches")],
    out: Annotated[Path, typer.Option("--out", "-o", help="descriptors to write, .npy or .csv")],
    model: Model = "dual",
    untrained: Untrained = False,
    resize: Annotated[bool, typer.Option("--resize", help="resize patches to the model's size")] = False,
    batch_size: Annotated[int | None, typer.Option(min=1, help="patches per batch")] = None,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Describe patches: one unit-length row per patch; zeros for constant or non-finite patches."""
    import torch

    from matchkernel.data.patch_files import read_patches
    from matchkernel.model.describe import describe_file
    from matchkernel.model.descriptors import build, check_patch_size
    from matchkernel.model.engines.choose import open_engine
    from matchkernel.model.weights import load
    from matchkernel.storage.files import check_output

    check_output(out, patches, *weight_files(model))
    network = build(model, generator=torch.Generator().manual_seed(0)) if untrained else load(model)
    weights = "random weights, only for trying things out" if untrained else f"weights {model}"
    stack, D, trained_size = read_patches(patches), network.config.D, network.config.patch_size
    size = trained_size if resize else int(stack.shape[-1])
    check_patch_size(network.config, size)
    if size != trained_size and not untrained:
        say(f"the patches have {size} px, {model} was trained on {trained_size} px: --resize resizes them first")
    runner = open_engine(network, engine, size=size, device=device)
    with progress_bar("describing", len(stack), unit="patches") as progress:
        valid = describe_file(
            stack, network, out, resize=resize, batch_size=batch_size, engine=runner, progress=progress
        )
    invalid = (~valid).nonzero()[0].tolist()
    if as_json:
        facts = {"invalid": invalid, "out": str(out), "weights": weights, "engine": runner.name}
        print(json.dumps({"patches": len(stack), "D": D, **facts}))
    bad = f"; {len(invalid)} without content, written as zeros: {invalid[:10]}" if invalid else ""
    say(f"{len(stack)} patches, {D} numbers each ({weights}, {runner.name}) -> {out}{bad}")
