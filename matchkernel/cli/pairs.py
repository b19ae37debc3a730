"""matchkernel pairs"""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import (
    Device,
    Engine,
    Json,
    PhotoModel,
    Untrained,
    check_model_options,
    detector_options,
)
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector

if TYPE_CHECKING:
    from matchkernel.photos.extract import Describer

EXTRACTING = ("features", "model", "untrained", "engine")  # options for photos; also those of the detector


@detector_options()
def pairs(
    *,
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="features (a folder of .npz files or an .h5), or a folder of photos")],
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write, two image names per line, as in hloc")],
    top: Annotated[
        int | None, typer.Option(min=1, help="each image with this many most similar ones (default: 20)")
    ] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="all pairs")] = False,
    sequential: Annotated[
        int | None, typer.Option(min=1, help="each image with this many following ones in name order")
    ] = None,
    from_colmap: Annotated[
        Path | None, typer.Option(help="take as most similar the images that share most points of this COLMAP model")
    ] = None,
    retrieval: Annotated[
        Path | None, typer.Option(help="find the most similar by these global descriptors, an .h5 of hloc")
    ] = None,
    add: Annotated[list[Path] | None, typer.Option(help="files of pairs to add; may be given several times")] = None,
    features: Annotated[
        Path | None, typer.Option(help="keep the features of photos in this folder or .h5 (default: not kept)")
    ] = None,
    model: PhotoModel = "light-wide",
    untrained: Untrained = False,
    detector: Detector,
    device: Device = "auto",
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Choose pairs of images to match: the most similar by their descriptors, neighbours by name, or all."""
    from matchkernel.collection.choice import TOP, PairChoice
    from matchkernel.collection.pairs import Sources, has_features, make_pairs, names_at
    from matchkernel.photos.extract import open_describer
    from matchkernel.photos.files import open_features, read_pairs, write_pairs

    files, sources = tuple(add or ()), Sources(from_colmap, retrieval)
    check_model_options(model, untrained, engine)
    _check_output(out, source, files)
    names = names_at(source, say)
    wants_top = sources != Sources() or not (exhaustive or sequential or files)
    choice = PairChoice(exhaustive, top or (TOP if wants_top else 0), sequential or 0, files)
    extracted = open_features(source) if has_features(source) else None
    if extracted is not None and (given := _given_for_photos(context)):
        raise ArgumentError(f"{source}: holds features already: {', '.join(given)} can only be given with photos")
    for path in files:
        read_pairs(path, names)  # refuses other images before anything is extracted
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        if extracted is None and choice.top and not exhaustive and sources == Sources():
            describer = open_describer(model, untrained=untrained, device=device, engine=engine, later=True)
            kept = features or Path(temporary) / "features"
            names, skipped = _extract(source, names, kept, describer, detector, is_kept=features is not None)
            extracted = open_features(kept)
        with progress_bar("choosing pairs", len(names), unit="images") as progress:
            chosen = make_pairs(names, choice, extracted, sources, unusable=skipped, say=say, progress=progress)
    written, possible = write_pairs(out, chosen), len(names) * (len(names) - 1) // 2
    if as_json:
        print(json.dumps({"images": len(names), "pairs": written, "possible": possible, "choice": choice.text}))
    say(f"{written:,} pairs of {len(names):,} images ({written / max(1, possible):.1%} of all) -> {out}")


def _check_output(out: Path, source: Path, files: tuple[Path, ...]) -> None:
    from matchkernel.photos.files import is_h5
    from matchkernel.storage.files import check_output

    check_output(out, source, *files)
    if is_h5(out):
        raise ArgumentError(f"{out}: pairs are text; choose another name, such as {out.stem}.txt")


def _extract(
    source: Path, names: list[str], out: Path, describer: "Describer", detector: Detector, *, is_kept: bool
) -> tuple[list[str], dict[str, str]]:
    """Extract the features of photos; the names of the photos that have features, and why others were skipped."""
    from matchkernel.collection.extract import extract_images

    hint = "" if is_kept else "; --features FOLDER would keep them"
    say(f"extracting features ({len(names)} images{hint})")
    with progress_bar("extracting features", len(names), unit="images") as progress:
        images = {name: source / name for name in names}
        skipped = extract_images(images, out, describer, detector, say=say, progress=progress).skipped
    return [name for name in names if name not in skipped], skipped


def _given_for_photos(context: typer.Context) -> list[str]:
    """The options on the command line about extracting features, even those that repeat the default."""
    names = (*EXTRACTING, *(field.name for field in dataclasses.fields(Detector)))
    sources = {name: context.get_parameter_source(name) for name in names}
    return [f"--{name}" for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
