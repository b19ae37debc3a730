"""matchkernel match"""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import answer, progress_bar, say, say_stages
from matchkernel.cli.options import (
    Device,
    Engine,
    Geometry,
    Guided,
    InlierPixels,
    Json,
    MatchFilter,
    Mutual,
    PhotoModel,
    Profile,
    Untrained,
    check_model_options,
    detector_options,
    weight_files,
)
from matchkernel.geometry.detect import Detector
from matchkernel.photos.match import DEFAULT_FILTER, parse_filter
from matchkernel.photos.verify import INLIER_PIXELS


@detector_options()
def match(
    *,
    a: Annotated[Path, typer.Argument(metavar="A", help="image")],
    b: Annotated[Path, typer.Argument(metavar="B", help="another image")],
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", "-o", help="PNG to draw the matches to, or CSV to list them; may be given several times"),
    ] = None,
    model: PhotoModel = "light-wide",
    untrained: Untrained = False,
    detector: Detector,
    geometry: Annotated[Geometry, typer.Option(help="model to verify matches with; auto tries both")] = Geometry.auto,
    pixels: InlierPixels = INLIER_PIXELS,
    guided: Guided = False,
    mutual: Mutual = True,
    keep: MatchFilter = str(DEFAULT_FILTER),
    device: Device = "auto",
    engine: Engine = "auto",
    profile: Profile = False,
    as_json: Json = False,
) -> None:
    """Match two images: detect, describe, match, verify; draw the matches, list them, or print them as JSON."""
    from matchkernel.photos.extract import open_describer
    from matchkernel.photos.pipeline import MatchSettings, match_images, save_csv
    from matchkernel.plots.matches import save_picture
    from matchkernel.storage.files import check_output
    from matchkernel.storage.work import recording, stage

    check_model_options(model, untrained, engine)
    for path in out or []:
        check_output(path, a, b, *weight_files(model), suffixes=(".png", ".csv"))
    settings = MatchSettings(detector, mutual, parse_filter(keep), geometry.value, pixels, guided)
    with recording() as stages:
        with stage("open"):
            describer = open_describer(model, untrained=untrained, device=device, engine=engine)
        with progress_bar("reading") as bar:
            found = match_images(a, b, describer, settings, say=bar.rename, progress=bar)
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
