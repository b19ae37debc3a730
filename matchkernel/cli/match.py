"""matchkernel match"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli import options
from matchkernel.cli.console import answer, progress_bar, say, say_stages
from matchkernel.errors import FileError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.pipeline import MatchSettings


@options.with_settings
def match(
    a: Annotated[Path, typer.Argument(metavar="A", help="image")],
    b: Annotated[Path, typer.Argument(metavar="B", help="another image")],
    model: options.ModelOptions,
    detector: Detector,
    settings: MatchSettings,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="PNG to draw the matches to, or CSV to list them; may be given several times"),
    ] = None,
    align: Annotated[
        bool, typer.Option("--align", help="move the points of B by fractions of a pixel, to look like those of A")
    ] = False,
    profile: options.Profile = False,
    as_json: options.Json = False,
) -> None:
    """Match two images: detect, describe, match, verify; draw the matches, list them, or print them as JSON."""
    from matchkernel.photos.pipeline import match_images, save_csv
    from matchkernel.plots.matches import save_picture
    from matchkernel.storage.files import check_output
    from matchkernel.storage.work import recording, stage

    for photo in (a, b):
        if photo.is_dir():
            raise FileError(
                f"{photo}: is a folder, expected an image; for folders: matchkernel extract, then match-pairs"
            )
    for path in out or []:
        check_output(path, a, b, *options.weight_files(model.model), suffixes=(".png", ".csv"))
    with recording() as stages:
        with stage("open"):
            describer = model.open()
        with progress_bar("reading") as bar:
            chosen = replace(settings, detector=detector)
            found = match_images(a, b, describer, chosen, align=align, say=bar.rename, progress=bar)
        with stage("write"):
            for path in out or []:
                save_csv(found, path) if path.suffix.lower() == ".csv" else save_picture(found, a, b, path)
    if as_json:
        print(json.dumps({**found.to_json(), **({"seconds": stages.rounded()} if profile else {})}))
    answer(found.one_line(), as_json)
    for path in out or []:
        say(f"-> {path}")
    if profile:
        say_stages(stages)
