"""matchkernel pairs"""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli import options
from matchkernel.cli.console import progress_bar, say
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector

if TYPE_CHECKING:
    from matchkernel.photos.extract import Describer

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
    add: Annotated[list[Path] | None, typer.Option(help="files of pairs to add; may be given several times")] = None,
    features: Annotated[
        Path | None, typer.Option(help="keep the features of photos in this folder or .h5 (default: not kept)")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Choose pairs of images to match: the most similar by their descriptors, neighbours by name, or all."""
    from matchkernel.collection.choice import TOP, PairChoice
    from matchkernel.collection.pairs import Sources, has_features, make_pairs, names_at
    from matchkernel.photos.files import is_h5, open_features, read_pairs, write_pairs
    from matchkernel.storage.files import check_output

    files, sources = tuple(add or ()), Sources(from_colmap, retrieval)
    check_output(out, source, *files)
    if is_h5(out):
        raise ArgumentError(f"{out}: pairs are text; choose another name, such as {out.stem}.txt")
    names = names_at(source, say)
    wants_top = sources != Sources() or not (exhaustive or sequential or files)
    choice = PairChoice(exhaustive, top or (TOP if wants_top else 0), sequential or 0, files)
    extracted = open_features(source) if has_features(source) else None
    given = [name for name in context.params if name in FOR_PHOTOS and _is_given(context, name)]
    if extracted is not None and given:
        raise ArgumentError(f"{source}: holds features already: --{', --'.join(given)} can only be given with photos")
    for path in files:
        read_pairs(path, names)  # refuses other images before anything is extracted
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        if extracted is None and choice.top and not exhaustive and sources == Sources():
            kept = features or Path(temporary) / "features"
            hint = "" if features else "; --features FOLDER would keep them"
            say(f"extracting features ({len(names)} images{hint})")
            skipped = _extract({name: source / name for name in names}, kept, model.open(later=True), detector)
            names = [name for name in names if name not in skipped]
            extracted = open_features(kept)
        with progress_bar("choosing pairs", len(names), unit="images") as progress:
            chosen = make_pairs(names, choice, extracted, sources, unusable=skipped, say=say, progress=progress)
    written, possible = write_pairs(out, chosen), len(names) * (len(names) - 1) // 2
    if as_json:
        print(json.dumps({"images": len(names), "pairs": written, "possible": possible, "choice": choice.text}))
    say(f"{written:,} pairs of {len(names):,} images ({written / max(1, possible):.1%} of all) -> {out}")


def _is_given(context: typer.Context, name: str) -> bool:
    """True if an option is on the command line, even with its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _extract(images: dict[str, Path], out: Path, describer: "Describer", detector: Detector) -> dict[str, str]:
    """Extract the features of photos; why some of them were skipped."""
    from matchkernel.collection.extract import extract_images

    with progress_bar("extracting features", len(images), unit="images") as progress:
        return extract_images(images, out, describer, detector, say=say, progress=progress).skipped
