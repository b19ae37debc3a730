"""matchkernel plot"""

from pathlib import Path
from typing import Annotated

import torch
import typer

from matchkernel.cli.console import stderr, user_errors
from matchkernel.data.patch_files import read_patches
from matchkernel.errors import ArgumentError
from matchkernel.model.weights import load
from matchkernel.plots import explanations as pictures
from matchkernel.plots.training_pictures import augmentation_picture, training_picture
from matchkernel.storage.files import check_picture
from matchkernel.training.config import TrainingConfig

app = typer.Typer(no_args_is_help=True, help="Draw pictures that explain the method.")


@app.command()
def kernels(
    out: Annotated[Path, typer.Option("--out", "-o", help="folder to write to")] = Path("out"),
    kappa: Annotated[float, typer.Option(help="concentration of the position kernels")] = 8.0,
    s: Annotated[int, typer.Option(help="frequencies of the position kernels")] = 2,
) -> None:
    """Draw k against its truncations and the position kernels of both grids."""
    with user_errors():
        for path in pictures.kernel_pictures(out, kappa, s):
            stderr.print(f"-> {path}", markup=False)


@app.command()
def conventions(out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write")]) -> None:
    """Draw axes, angles, receptive field, Kronecker order and normalisation on one sheet."""
    with user_errors():
        pictures.conventions_picture(out)
        stderr.print(f"-> {out}", markup=False)


@app.command()
def maps(
    patches: Annotated[Path, typer.Argument(help=".npy or .png strip of patches")],
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write")],
    model: Annotated[str, typer.Option(help="name of trained weights, or a .safetensors file")] = "dual",
    a: Annotated[int, typer.Option(help="index of patch a")] = 0,
    b: Annotated[int, typer.Option(help="index of patch b")] = 1,
) -> None:
    """Draw similarity maps: positions of patch a against patch b (the paper's Figure 2)."""
    with user_errors():
        check_picture(out, patches)
        network, stack = load(model), read_patches(patches)
        if not (0 <= a < len(stack) and 0 <= b < len(stack)):
            raise ArgumentError(f"{patches}: has {len(stack)} patches, asked for {a} and {b}")
        pictures.similarity_picture(out, network, *(torch.from_numpy(stack[k].squeeze().astype("f4")) for k in (a, b)))
        stderr.print(f"-> {out}", markup=False)


@app.command()
def training(
    run: Annotated[Path, typer.Argument(help="folder of a run, or its log.jsonl")],
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write")],
) -> None:
    """Draw loss and validation of a training run."""
    with user_errors():
        check_picture(out, run)
        training_picture(run, out)
        stderr.print(f"-> {out}", markup=False)


@app.command()
def augmentation(
    config: Annotated[Path, typer.Argument(help="TOML file of a training run")],
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value over the file; may be repeated")
    ] = None,
) -> None:
    """Draw pairs of patches (orange) and what training makes of them."""
    with user_errors():
        check_picture(out, config)
        augmentation_picture(TrainingConfig.from_toml(config, settings or []), out)
        stderr.print(f"-> {out}", markup=False)
