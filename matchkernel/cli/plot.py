"""matchkernel plot"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import say, user_errors
from matchkernel.cli.options import Model, Picture, Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Draw pictures that explain the method.")


@app.command()
def kernels(
    out: Annotated[Path, typer.Option("--out", "-o", help="folder to write to")] = Path("out"),
    kappa: Annotated[float, typer.Option(help="concentration of the position kernels")] = 8.0,
    s: Annotated[int, typer.Option(help="frequencies of the position kernels")] = 2,
) -> None:
    """Draw the kernel and its truncations, and the position kernels of both grids."""
    from matchkernel.plots.kernels import kernel_pictures

    with user_errors():
        for path in kernel_pictures(out, kappa, s):
            say(f"-> {path}")


@app.command()
def conventions(out: Picture) -> None:
    """Draw axes, angles, receptive field, Kronecker order and normalisation on one sheet."""
    from matchkernel.plots.conventions_sheet import conventions_picture

    with user_errors():
        conventions_picture(out)
        say(f"-> {out}")


@app.command()
def maps(
    patches: Annotated[Path, typer.Argument(help=".npy stack or .png strip of patches")],
    out: Picture,
    model: Model = "dual",
    a: Annotated[int, typer.Option(help="index of patch a")] = 0,
    b: Annotated[int, typer.Option(help="index of patch b")] = 1,
) -> None:
    """Draw similarity maps: positions of patch a against patch b (the paper's Figure 2)."""
    import torch

    from matchkernel.data.patch_files import read_patches
    from matchkernel.errors import ArgumentError
    from matchkernel.model.weights import load
    from matchkernel.plots.similarity import similarity_picture
    from matchkernel.storage.files import check_output

    with user_errors():
        check_output(out, patches, suffixes=(".png",))
        network, stack = load(model), read_patches(patches)
        if not (0 <= a < len(stack) and 0 <= b < len(stack)):
            raise ArgumentError(f"{patches}: has only {len(stack)} patches, cannot draw {a} and {b}")
        similarity_picture(out, network, *(torch.from_numpy(stack[k].squeeze().astype("f4")) for k in (a, b)))
        say(f"-> {out}")


@app.command()
def training(
    run: Annotated[Path, typer.Argument(help="folder of a run, or its log.jsonl")],
    out: Picture,
) -> None:
    """Draw loss and validation scores of a training run."""
    from matchkernel.plots.training import training_picture
    from matchkernel.storage.files import check_output

    with user_errors():
        check_output(out, run, suffixes=(".png",))
        training_picture(run, out)
        say(f"-> {out}")


@app.command()
def augmentation(
    config: Annotated[Path, typer.Argument(help="TOML file of a training run")],
    out: Picture,
    settings: Settings = None,
) -> None:
    """Draw pairs of patches (orange) and augmented versions of them."""
    from matchkernel.plots.training import augmentation_picture
    from matchkernel.storage.files import check_output
    from matchkernel.training.config import TrainingConfig

    with user_errors():
        check_output(out, config, suffixes=(".png",))
        augmentation_picture(TrainingConfig.from_toml(config, settings or []), out)
        say(f"-> {out}")
