"""matchkernel reduce"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import weight_files


def reduce(
    model: Annotated[str, typer.Argument(help="name of trained weights, or a .safetensors file")],
    calibrate: Annotated[
        list[Path], typer.Option(metavar="SET", help="patch set like those trained on; may be given several times")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=".safetensors file to write")],
    dimensions: Annotated[int, typer.Option(min=1, help="numbers per patch to keep")] = 64,
) -> None:
    """Shorten the descriptors of trained weights, as new weights, and measure the loss."""
    from matchkernel.data.patch_set import open_patch_set
    from matchkernel.evaluation.smaller import reduce_rows
    from matchkernel.model.weights import load, save
    from matchkernel.storage.files import check_output

    check_output(out, *weight_files(model), *calibrate, suffixes=(".safetensors",))
    network = load(model)
    with progress_bar("reducing"):
        made = reduce_rows(network, dimensions, [open_patch_set(place) for place in calibrate])
    save(made.model, out, made.model.card)
    lost = f"{100 * made.kept:.1f} % of the squared length kept, retrieval mAP {made.map_after:.2f}"
    lost += f" instead of {made.map_before:.2f}, on {made.held_out} patches of other points"
    say(f"{dimensions} numbers per patch instead of {network.config.D}, chosen on {made.shown} patches; {lost}")
    say(f"-> {out}")
