"""matchkernel pairs"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from math import comb
from pathlib import Path
from typing import Annotated

import typer

from matchkernel import __version__
from matchkernel.cli import options
from matchkernel.cli.console import progress_bar, say
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.detect import Detector

FOR_PHOTOS = {"features", *options.option_names(options.ModelOptions), *options.option_names(Detector)} - {"device"}


@options.with_settings
def pairs(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="features (a folder of .npz files or an .h5), or a folder of photos")],
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write, two image names per line, as in hloc")],
    model: options.ModelOptions,
    detector: Detector,
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
    search: Annotated[
        str, typer.Option(help="exact, faiss, or auto: faiss for more than 20,000 images where it is installed")
    ] = "auto",
    add: Annotated[list[Path] | None, typer.Option(help="files of pairs to add; may be given several times")] = None,
    features: Annotated[
        Path | None, typer.Option(help="keep the features of photos in this folder or .h5 (default: not kept)")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Choose pairs of images to match: the most similar by their descriptors, neighbours by name, or all."""
    from matchkernel.collection.choice import TOP, PairChoice
    from matchkernel.collection.pairs import Sources, has_features, make_pairs, names_at
    from matchkernel.photos import feature_files, pair_lists

    files, sources = tuple(add or ()), Sources(from_colmap, retrieval)
    _check(out, search, source, *files, *(place for place in (from_colmap, retrieval) if place is not None))
    names = names_at(source, say)
    usual = TOP if sources != Sources() or not (exhaustive or sequential or files) else 0
    choice = PairChoice(exhaustive, top or usual, sequential or 0, files)
    extracted = feature_files.open_features(source) if has_features(source) else None
    extracts = extracted is None and choice.top > 0 and not exhaustive and sources == Sources()
    _check_given(context, extracts, f"{source}: holds features already" if extracted else "pairs without features")
    for path in files:
        pair_lists.read_pairs(path, names)  # refuses other images before anything is extracted
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        if extracts:
            say(f"extracting features ({len(names)} images{'' if features else '; --features FOLDER would keep them'})")
            kept, images = features or stack.enter_context(_room(out, model, detector)), {n: source / n for n in names}
            skipped = _extract(images, kept, model, detector, options.given_options(context))
            names, extracted = [name for name in names if name not in skipped], feature_files.open_features(kept)
        with progress_bar("choosing pairs", len(names), unit="images") as progress:
            chosen = make_pairs(
                names, choice, extracted, sources, unusable=skipped, search=search, say=progress.show, progress=progress
            )
    written, possible = pair_lists.write_pairs(out, chosen), comb(len(names), 2)
    if as_json:
        print(json.dumps({"images": len(names), "pairs": written, "possible": possible, "choice": choice.text}))
    say(f"{written:,} pairs of {len(names):,} images ({written / max(1, possible):.1%} of all) -> {out}")


def _check(out: Path, search: str, *inputs: Path) -> None:
    """Refuse an output and a search before anything is extracted."""
    from matchkernel.collection.pairs import chosen_search
    from matchkernel.photos.hdf5 import is_h5
    from matchkernel.storage.files import check_output

    check_output(out, *inputs)
    chosen_search(search, 0)
    if is_h5(out):
        raise ArgumentError(f"{out}: pairs are text; choose another name, such as {out.stem}.txt")


def _check_given(context: typer.Context, extracts: bool, why: str) -> None:
    """Refuse options that would be ignored."""
    if not extracts and (given := FOR_PHOTOS.intersection(options.given_options(context))):
        raise ArgumentError(f"{why}; only for photos that are compared: --{', --'.join(sorted(given))}")


@contextmanager
def _room(out: Path, model: options.ModelOptions, detector: Detector) -> Iterator[Path]:
    """A folder for features that are not kept, beside the output; what a killed command leaves is resumed."""
    from matchkernel.storage.files import file_hash
    from matchkernel.storage.folders import resumable_build

    weights = [file_hash(path) for path in options.weight_files(model.model) if path.is_file()]
    how = {"version": __version__, "model": asdict(model), "weights": weights, "detector": repr(detector)}
    with resumable_build(out.with_name(f"{out.name}.features"), how) as build:
        yield build.folder / "features"
        build.is_discarded = True


def _extract(
    images: dict[str, Path], out: Path, model: options.ModelOptions, detector: Detector, given: list[str]
) -> dict[str, str]:
    """Extract the features of photos; why some of them were skipped."""
    from matchkernel.collection.extract import extract_images, model_there

    describer = model.continuing(model_there(out), given).open(later=True)
    with progress_bar("extracting features", len(images), unit="images") as progress:
        skipped = extract_images(images, out, describer, detector, say=say, progress=progress).skipped
    if len(skipped) == len(images):
        raise FileError(f"no photo could be read: {next(iter(skipped.values()))}")
    return skipped
