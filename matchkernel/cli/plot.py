"""matchkernel plot"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import say
from matchkernel.cli.options import Picture, Settings, weight_files

FIGURE_2 = ("light", "dual-paper:polar", "dual-paper", "fc")  # what the package has of the paper's columns
app = typer.Typer(no_args_is_help=True, add_completion=False, help="Draw pictures that explain the method.")


@app.command()
def kernels(
    out: Annotated[Path, typer.Option("--out", "-o", help="folder to write to")] = Path("out"),
    kappa: Annotated[float, typer.Option(help="concentration of the position kernels")] = 8.0,
    s: Annotated[int, typer.Option(help="frequencies of the position kernels")] = 2,
) -> None:
    """Draw the kernel and its truncations, and the position kernels of both grids."""
    from matchkernel.plots.kernels import kernel_pictures

    for path in kernel_pictures(out, kappa, s):
        say(f"-> {path}")


@app.command()
def conventions(out: Picture) -> None:
    """Draw axes, angles, receptive field, Kronecker order and normalisation on one sheet."""
    from matchkernel.plots.conventions_sheet import conventions_picture

    conventions_picture(out)
    say(f"-> {out}")


@app.command()
def maps(
    out: Picture,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help=".npy stack or .png strip of patches; or two patches, or two photos (default: sample pair)"
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="columns: name of trained weights or .safetensors file, with :cartesian or :polar for one half of a "
            f"combined model; may be given several times (default: {', '.join(FIGURE_2)})"
        ),
    ] = None,
    a: Annotated[int | None, typer.Option(help="index of patch a in a stack or strip (default: 0)")] = None,
    b: Annotated[int | None, typer.Option(help="index of patch b in a stack or strip (default: 1)")] = None,
    match: Annotated[
        int | None,
        typer.Option(help="which match of two photos, of their strongest 1,000 keypoints, closest first (default: 1)"),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="rows: place in patch a as X,Y, shares of its sides from 0 to 1; may be given several times"),
    ] = None,
) -> None:
    """Draw similarity maps: positions of patch a against patch b, by model (the paper's Figure 2)."""
    from matchkernel.plots.example_patches import two_patches
    from matchkernel.plots.similarity import POSITIONS, MapColumn, similarity_picture
    from matchkernel.storage.files import check_output

    names = model or list(FIGURE_2)
    check_output(out, *(files or []), *weight_files(*names), suffixes=(".png",))
    positions = [_position(text) for text in at] if at else POSITIONS
    columns = [MapColumn.open(name) for name in names]
    similarity_picture(out, columns, *two_patches(files or [], a, b, match, say), positions)
    say(f"-> {out}")


def _position(text: str) -> tuple[float, float]:
    from matchkernel.errors import ArgumentError

    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(f"--at takes X,Y from 0 to 1, such as 0.5,0.5, got {text!r}") from None
    return x, y


@app.command()
def overview(
    out: Picture,
    patches: Annotated[
        Path | None, typer.Argument(help=".npy stack or .png strip of patches (default: one of the sample photos)")
    ] = None,
    model: Annotated[
        str, typer.Option(help="as for maps; NAME:cartesian and NAME:polar are one half of a combined model")
    ] = "dual-paper:cartesian",
    patch: Annotated[int, typer.Option(help="index of the patch")] = 0,
) -> None:
    """Draw a patch on its way through a model: map, position codes, product, descriptor (the paper's Figure 1)."""
    from matchkernel.plots.example_patches import one_patch
    from matchkernel.plots.overview import overview_picture
    from matchkernel.plots.similarity import MapColumn, shown_name
    from matchkernel.storage.files import check_output

    files = [] if patches is None else [patches]
    check_output(out, *files, *weight_files(model), suffixes=(".png",))
    opened = MapColumn.open(model)
    name = shown_name(model.removesuffix(f":{opened.system}"), opened.model)
    overview_picture(out, opened.model, one_patch(patches, patch), name, opened.system)
    say(f"-> {out}")


@app.command()
def scores(
    results: Annotated[
        list[Path], typer.Argument(help="results of `matchkernel evaluate hpatches` on one set, or folders of them")
    ],
    out: Picture,
    title: Annotated[str, typer.Option(help="title of the picture")] = "",
    zoom: Annotated[bool, typer.Option("--zoom", help="points close up instead of bars from 0")] = False,
) -> None:
    """Draw scores as bars sorted by parameters, other methods apart (the paper's Figures 3 and 4)."""
    from matchkernel.plots.canvas import save_png
    from matchkernel.plots.scores import draw_scores
    from matchkernel.report.hpatches import score_bars
    from matchkernel.storage.files import check_output

    check_output(out, *results, suffixes=(".png",))
    bars, tasks = score_bars(results)
    save_png(draw_scores(bars, tasks, title, zoom), out)
    say(f"-> {out}")


@app.command()
def training(
    run: Annotated[Path, typer.Argument(help="folder of a run, or its log.jsonl")],
    out: Picture,
) -> None:
    """Draw loss and validation scores of a training run."""
    from matchkernel.plots.training import training_picture
    from matchkernel.storage.files import check_output

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

    check_output(out, config, suffixes=(".png",))
    augmentation_picture(TrainingConfig.from_toml(config, settings or []), out)
    say(f"-> {out}")
