"""matchkernel data: make, check and look at patch sets."""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import answer, progress_bar, say
from matchkernel.cli.options import Json, Picture, Seed
from matchkernel.geometry.conventions import MAGNIFICATION

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make, check and look at patch sets.")

Set = Annotated[Path, typer.Argument(metavar="SET", help="a patch set, or a set in the HPatches layout")]
Out = Annotated[Path, typer.Option("--out", "-o", help="folder to create; run the command again to resume")]
Size = Annotated[int, typer.Option(min=8, help="side of a patch in pixels")]
Magnification = Annotated[float, typer.Option(min=0.1, help="half the side of a region / sigma of its keypoint")]
Geometric = Annotated[bool, typer.Option(help="also find positives by geometry, in addition to the tracks")]
Pairs = Annotated[int, typer.Option(min=0, help="number of positive pairs in each test list, and of negative pairs")]
Mosaics = Annotated[bool, typer.Option(help="also write PhotoTourism's mosaics, if patches have 64 px")]


@app.command()
def pack(
    source: Annotated[Path, typer.Argument(help="PhotoTourism folder, or the .pt file that torchvision caches for it")],
    out: Out,
) -> None:
    """Pack a PhotoTourism set into one memory-mapped patch set."""
    from matchkernel.data import phototourism, summary

    with progress_bar("packing patches", unit="patches", resumes=out) as progress:
        phototourism.pack_phototourism(source, out, progress)
    say(summary.one_line(out))


@app.command()
def verify(folder: Set) -> None:
    """Check every file of a set against its manifest."""
    from matchkernel.data import summary

    with progress_bar("checking files"):
        summary.verify(folder)
    answer(f"intact: {summary.one_line(folder)}")


@app.command("from-colmap")
def from_colmap_(
    images: Annotated[Path, typer.Argument(help="folder of the photos")],
    sparse: Annotated[Path, typer.Argument(help="folder with cameras, images and points3D")],
    database: Annotated[Path, typer.Argument(help="COLMAP's database.db")],
    out: Out,
    all_keypoints: Annotated[Path | None, typer.Option(help="database with more keypoints of the same photos")] = None,
    size: Size = 64,
    magnification: Magnification = MAGNIFICATION,
    geometric: Geometric = True,
    pairs: Pairs = 10_000,
    mosaics: Mosaics = True,
    seed: Seed = 0,
) -> None:
    """Cut a patch set from photos with a COLMAP reconstruction."""
    from matchkernel.data import from_colmap, summary

    settings = from_colmap.CutSettings(size, magnification, geometric, pairs, seed, mosaics)
    with progress_bar("cutting photos", unit="photos", resumes=out) as progress:
        from_colmap.build_from_colmap(
            images, sparse, database, out, settings, all_keypoints=all_keypoints, progress=progress
        )
    say(summary.one_line(out))


@app.command("from-photos")
def from_photos_(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Out,
    sequential: Annotated[bool | None, typer.Option(help="match neighbours in name order instead of all pairs")] = None,
    magnification: Magnification = MAGNIFICATION,
    geometric: Geometric = True,
    pairs: Pairs = 10_000,
    mosaics: Mosaics = True,
    seed: Seed = 0,
) -> None:
    """Reconstruct photos with COLMAP, then cut a patch set."""
    from matchkernel.data import from_colmap, from_photos, summary

    settings = from_colmap.CutSettings(64, magnification, geometric, pairs, seed, mosaics)
    with progress_bar("cutting photos", unit="photos", resumes=out) as progress:
        from_photos.build_from_photos(
            photos, out, settings, sequential=sequential, say=progress.announce, progress=progress
        )
    say(summary.one_line(out))


@app.command("from-homographies")
def from_homographies_(
    source: Annotated[Path, typer.Argument(help="folder of sequences: images 1 to 6 and H_1_2 to H_1_6")],
    out: Out,
    sequence: Annotated[list[str] | None, typer.Option(help="use only this one; may be given several times")] = None,
    most: Annotated[int, typer.Option(min=2, help="maximum number of patches per sequence")] = 1000,
    magnification: Magnification = MAGNIFICATION,
    verification: Annotated[int, typer.Option(min=1, help="rows in each verification list")] = 50_000,
    seed: Seed = 0,
) -> None:
    """Cut a set in the HPatches layout from sequences with known homographies."""
    from matchkernel.data import from_homographies, summary

    settings = from_homographies.HomographySettings(most, magnification, seed, verification)
    with progress_bar("cutting sequences", unit="sequences", resumes=out) as progress:
        from_homographies.build_from_homographies(source, out, settings, sequences=sequence or None, progress=progress)
    say(summary.one_line(out))


@app.command("synthetic")
def synthetic_(
    out: Out,
    points: Annotated[int, typer.Option(min=1, help="number of points")] = 1000,
    patches: Annotated[int, typer.Option(min=1, help="patches per point")] = 4,
    size: Size = 64,
    seed: Seed = 0,
) -> None:
    """Render a patch set whose correspondences are exact."""
    from matchkernel.data import summary, synthetic

    with progress_bar("rendering points", unit="points", resumes=out) as progress:
        synthetic.build_synthetic(out, synthetic.SyntheticSettings(points, patches, size, seed), progress)
    say(summary.one_line(out))


@app.command()
def info(folder: Set, as_json: Json = False) -> None:
    """Show what a set holds and where it comes from."""
    from matchkernel.data import summary

    facts = summary.facts(folder)
    print(json.dumps(facts, indent=2) if as_json else "\n".join(summary.lines(facts)))


@app.command()
def show(
    folder: Set,
    out: Picture,
    points: Annotated[int, typer.Option(min=1, help="number of points, one per row")] = 12,
    columns: Annotated[int, typer.Option(min=1, help="maximum number of patches per point")] = 16,
    geometric: Annotated[
        bool,
        typer.Option(
            "--geometric", help="show only points that have positives found by geometry, and frame these patches"
        ),
    ] = False,
    seed: Seed = 0,
) -> None:
    """Draw a contact sheet: each row shows the patches of one point."""
    from matchkernel.plots.contact_sheet import write_contact_sheet

    write_contact_sheet(folder, out, points=points, columns=columns, only_geometric=geometric, seed=seed)
    say(f"-> {out}")
