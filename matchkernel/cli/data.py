"""matchkernel data: make, check and look at patch sets."""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import counting_bar, stderr, user_errors
from matchkernel.data import from_colmap, from_homographies, from_photos, phototourism, summary, synthetic
from matchkernel.geometry.conventions import SET_MAGNIFICATION
from matchkernel.plots import set_sheets as contact

app = typer.Typer(no_args_is_help=True, help="Make, check and look at patch sets.")

Out = Annotated[Path, typer.Option("--out", "-o", help="folder to make; a stopped build goes on when run again")]
Magnification = Annotated[float, typer.Option(min=0.1, help="half side of a region / sigma")]
Seed = Annotated[int, typer.Option(min=0, help="of everything random")]
Geometric = Annotated[bool, typer.Option(help="look for positives beyond the tracks")]
Pairs = Annotated[int, typer.Option(min=0, help="positives, and as many negatives, of each test list")]
Mosaics = Annotated[bool, typer.Option(help="also write PhotoTourism's mosaics")]


@app.command()
def pack(
    source: Annotated[Path, typer.Argument(help="PhotoTourism folder, or torchvision's cached .pt of one")], out: Out
) -> None:
    """Pack a PhotoTourism set into one memory-mapped patch set."""
    with user_errors():
        with counting_bar("packing patches") as progress:
            phototourism.pack_phototourism(source, out, progress)
        stderr.print(summary.one_line(out), markup=False)


@app.command()
def verify(folder: Annotated[Path, typer.Argument(help="a patch set")]) -> None:
    """Check every file of a patch set against its manifest."""
    with user_errors():
        summary.verify(folder)
        stderr.print(f"whole: {summary.one_line(folder)}", markup=False)


@app.command("from-colmap")
def from_colmap_(
    images: Annotated[Path, typer.Argument(help="folder of the photos")],
    sparse: Annotated[Path, typer.Argument(help="folder with cameras, images, points3D")],
    database: Annotated[Path, typer.Argument(help="COLMAP's database.db")],
    out: Out,
    all_keypoints: Annotated[Path | None, typer.Option(help="database with more keypoints of the same photos")] = None,
    size: Annotated[int, typer.Option(min=8, help="side of a patch")] = 64,
    magnification: Magnification = SET_MAGNIFICATION,
    geometric: Geometric = True,
    pairs: Pairs = 10_000,
    mosaics: Mosaics = True,
    seed: Seed = 0,
) -> None:
    """Cut a patch set from photos with a COLMAP reconstruction."""
    with user_errors():
        settings = from_colmap.CutSettings(size, magnification, geometric, pairs, seed, mosaics)
        with counting_bar("cutting photos") as progress:
            from_colmap.build_from_colmap(
                images, sparse, database, out, settings, all_keypoints=all_keypoints, progress=progress
            )
        stderr.print(summary.one_line(out), markup=False)


@app.command("from-photos")
def from_photos_(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Out,
    sequential: Annotated[bool | None, typer.Option(help="match neighbours by name instead of all pairs")] = None,
    magnification: Magnification = SET_MAGNIFICATION,
    geometric: Geometric = True,
    pairs: Pairs = 10_000,
    mosaics: Mosaics = True,
    seed: Seed = 0,
) -> None:
    """Reconstruct photos with COLMAP, then cut a patch set."""
    with user_errors():
        settings = from_colmap.CutSettings(64, magnification, geometric, pairs, seed, mosaics)
        with counting_bar("cutting photos") as progress:
            from_photos.build_from_photos(
                photos,
                out,
                settings,
                sequential=sequential,
                say=lambda stage: stderr.print(stage, markup=False),
                progress=progress,
            )
        stderr.print(summary.one_line(out), markup=False)


@app.command("from-homographies")
def from_homographies_(
    source: Annotated[Path, typer.Argument(help="folder of sequences: images 1..6 and H_1_2 .. H_1_6")],
    out: Out,
    sequence: Annotated[list[str] | None, typer.Option(help="use this one only; may be repeated")] = None,
    most: Annotated[int, typer.Option(min=2, help="patches of a sequence")] = 1000,
    magnification: Magnification = SET_MAGNIFICATION,
    verification: Annotated[int, typer.Option(min=1, help="rows of each verification list")] = 50_000,
    seed: Seed = 0,
) -> None:
    """Cut an HPatches-layout set from sequences with known homographies."""
    with user_errors():
        settings = from_homographies.HomographySettings(most, magnification, seed, verification)
        with counting_bar("cutting sequences") as progress:
            from_homographies.build_from_homographies(
                source, out, settings, sequences=sequence or None, progress=progress
            )
        stderr.print(summary.one_line(out), markup=False)


@app.command("synthetic")
def synthetic_(
    out: Out,
    points: Annotated[int, typer.Option(min=1)] = 1000,
    patches: Annotated[int, typer.Option(min=1, help="of each point")] = 4,
    size: Annotated[int, typer.Option(min=8, help="side of a patch")] = 64,
    seed: Seed = 0,
) -> None:
    """Render a patch set with exact truth."""
    with user_errors():
        with counting_bar("rendering points") as progress:
            synthetic.build_synthetic(out, synthetic.SyntheticSettings(points, patches, size, seed), progress)
        stderr.print(summary.one_line(out), markup=False)


@app.command()
def info(
    folder: Annotated[Path, typer.Argument(help="a patch set or an HPatches-layout set")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what a set holds and where it comes from."""
    with user_errors():
        facts = summary.facts(folder)
        print(json.dumps(facts, indent=2) if as_json else "\n".join(summary.lines(facts)))


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="a patch set or an HPatches-layout set")],
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write")],
    points: Annotated[int, typer.Option(min=1, help="rows")] = 12,
    columns: Annotated[int, typer.Option(min=1, help="patches of a point")] = 16,
    geometric: Annotated[bool, typer.Option(help="only points with geometric positives, which get a border")] = False,
    seed: Seed = 0,
) -> None:
    """Draw a contact sheet: rows are points, columns their patches."""
    with user_errors():
        contact.write_contact_sheet(folder, out, points=points, columns=columns, only_geometric=geometric, seed=seed)
        stderr.print(f"-> {out}", markup=False)
