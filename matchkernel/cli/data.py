"""matchkernel data: make, check and look at patch sets."""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import answer, progress_bar, say
from matchkernel.cli.options import Json, Picture, Seed, with_settings
from matchkernel.data.from_colmap import CutSettings
from matchkernel.data.from_homographies import HomographySettings
from matchkernel.data.synthetic import SyntheticSettings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make, check and look at patch sets.")

Set = Annotated[Path, typer.Argument(metavar="SET", help="a patch set, or a set in the HPatches layout")]
Out = Annotated[Path, typer.Option("--out", "-o", help="folder to create; run the command again to resume")]


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
@with_settings
def from_colmap_(
    images: Annotated[Path, typer.Argument(help="folder of the photos")],
    sparse: Annotated[Path, typer.Argument(help="folder with cameras, images and points3D")],
    database: Annotated[Path, typer.Argument(help="COLMAP's database.db")],
    out: Out,
    settings: CutSettings,
    all_keypoints: Annotated[Path | None, typer.Option(help="database with more keypoints of the same photos")] = None,
) -> None:
    """Cut a patch set from photos with a COLMAP reconstruction."""
    from matchkernel.data import from_colmap, summary

    with progress_bar("cutting photos", unit="photos", resumes=out) as progress:
        from_colmap.build_from_colmap(
            images, sparse, database, out, settings, all_keypoints=all_keypoints, progress=progress
        )
    say(summary.one_line(out))


@app.command("from-photos")
@with_settings
def from_photos_(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Out,
    settings: CutSettings,
    sequential: Annotated[bool | None, typer.Option(help="match neighbours in name order instead of all pairs")] = None,
) -> None:
    """Reconstruct photos with COLMAP, then cut a patch set."""
    from matchkernel.data import from_photos, summary

    with progress_bar("cutting photos", unit="photos", resumes=out) as progress:
        from_photos.build_from_photos(
            photos, out, settings, sequential=sequential, say=progress.announce, progress=progress
        )
    say(summary.one_line(out))


@app.command("from-homographies")
@with_settings
def from_homographies_(
    source: Annotated[Path, typer.Argument(help="folder of sequences: images 1 to 6 and H_1_2 to H_1_6")],
    out: Out,
    settings: HomographySettings,
    sequence: Annotated[list[str] | None, typer.Option(help="use only this one; may be given several times")] = None,
) -> None:
    """Cut a set in the HPatches layout from sequences with known homographies."""
    from matchkernel.data import from_homographies, summary

    with progress_bar("cutting sequences", unit="sequences", resumes=out) as progress:
        from_homographies.build_from_homographies(source, out, settings, sequences=sequence or None, progress=progress)
    say(summary.one_line(out))


@app.command("synthetic")
@with_settings
def synthetic_(out: Out, settings: SyntheticSettings) -> None:
    """Render a patch set whose correspondences are exact."""
    from matchkernel.data import summary, synthetic

    with progress_bar("rendering points", unit="points", resumes=out) as progress:
        synthetic.build_synthetic(out, settings, progress)
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
