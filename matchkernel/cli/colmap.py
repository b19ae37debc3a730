"""matchkernel colmap"""

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import (
    Device,
    Engine,
    Json,
    Listed,
    Masks,
    MatchFilter,
    On,
    Only,
    PhotoModel,
    Stored,
    Untrained,
    WorkerCount,
    check_model_options,
    detector_options,
    open_workers,
    speed,
)
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.match import DEFAULT_FILTER, parse_filter

if TYPE_CHECKING:
    from matchkernel.collection.reconstruct import Summary


@detector_options(COLMAP_LIKE)
def colmap(
    *,
    images: Annotated[Path, typer.Argument(help="folder of images, of one scene or of several")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="workspace to create; run the command again to resume, or to add photos"),
    ],
    model: PhotoModel = "light-wide",
    untrained: Untrained = False,
    detector: Detector,
    keep: MatchFilter = str(DEFAULT_FILTER),
    pairs: Annotated[
        str,
        typer.Option(
            help="what to match: all, top:20 (each with the 20 most similar), sequential:10 (neighbours by name), "
            "a file of pairs, or several joined by + (auto: all of up to 120 images, top:20 of more)"
        ),
    ] = "auto",
    only: Only = None,
    listed: Listed = None,
    features: Annotated[
        Path | None, typer.Option(help="folder of features that `extract` made with the same settings")
    ] = None,
    masks: Masks = None,
    store: Stored = "float32",
    single_camera: Annotated[bool, typer.Option("--single-camera", help="all images were taken by one camera")] = False,
    camera_model: Annotated[str, typer.Option(help="COLMAP's name of the camera model")] = "SIMPLE_RADIAL",
    camera_params: Annotated[
        str | None, typer.Option(help="known intrinsics of the camera model, such as 1200,640,480,0; they are kept")
    ] = None,
    mapper: Annotated[Literal["incremental", "global"], typer.Option(help="global needs COLMAP 4")] = "incremental",
    device: Device = "auto",
    engine: Engine = "auto",
    on: On = "local",
    workers: WorkerCount = None,
    as_json: Json = False,
) -> None:
    """Reconstruct scenes from our features and matches with COLMAP, which verifies them and builds the model."""
    from matchkernel.collection.reconstruct import reconstruct
    from matchkernel.collection.reconstruct_settings import ReconstructSettings
    from matchkernel.photos.extract import open_describer
    from matchkernel.storage.photo_folders import photos_in

    check_model_options(model, untrained, engine)
    settings = ReconstructSettings(
        detector, parse_filter(keep), pairs, single_camera, camera_model, camera_params, mapper, store
    )
    describer = open_describer(model, untrained=untrained, device=device, engine=engine)
    count = len(photos_in(images, only=only or (), listed=listed, without=masks).paths)
    chosen: dict[str, Any] = {"only": only or (), "listed": listed, "features": features, "masks": masks}
    pool, label = open_workers(on, workers, count, device)
    start = time.monotonic()
    with progress_bar("reconstructing", resumes=out) as progress:
        found = reconstruct(
            images, out, describer, settings, **chosen, workers=pool, say=progress.announce, progress=progress
        )
    rate = speed(found.images, time.monotonic() - start, "images")
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "on": label, **rate}))
    _say_summary(found, f"({describer.label}) -> {out}")


def _say_summary(found: "Summary", rest: str) -> None:
    from matchkernel.storage.photo_folders import first_names

    if found.refused:
        say(f"refused by COLMAP: {first_names(found.refused)}")
    if found.unregistered:
        say(f"in no model: {first_names(found.unregistered)}")
    others = f", and {len(found.models) - 1} smaller models ({found.models[1:]} images)" * (len(found.models) > 1)
    counts = f"{found.registered} of {found.images} images{others}, {found.points:,} points"
    counts += f" seen in {found.track_length:.2f} images on average"
    say(f"{counts}, mean error {found.error:.3f} px {rest}")
