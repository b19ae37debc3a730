"""matchkernel colmap"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from matchkernel.cli.console import announcing, goes_on, progress_bar, say, user_errors
from matchkernel.cli.detector_options import detector_options
from matchkernel.cli.options import (
    Device,
    Engine,
    Json,
    Listed,
    Masks,
    MatchFilter,
    Only,
    PhotoModel,
    Stored,
    Untrained,
    check_model_options,
)
from matchkernel.cli.worker_options import On, WorkerCount, open_workers, speed
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.filters import DEFAULT_FILTER, parse_filter


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
    """Reconstruct scenes with COLMAP's importers, verification and mapper from our features and matches."""
    from matchkernel.collection.reconstruct import reconstruct
    from matchkernel.collection.reconstruct_settings import ReconstructSettings
    from matchkernel.photos.describers import open_describer
    from matchkernel.storage.photo_folders import first_names, photos_in

    with user_errors():
        check_model_options(model, untrained, engine)
        settings = ReconstructSettings(
            detector, parse_filter(keep), pairs, single_camera, camera_model, camera_params, mapper, store
        )
        describer = open_describer(model, untrained=untrained, device=device, engine=engine)
        photos = photos_in(images, only=only or (), listed=listed, without=masks).paths
        crew = open_workers(on, workers, len(photos), device)
        start = time.monotonic()
        with goes_on(out), progress_bar("reconstructing") as progress:
            found = reconstruct(
                images,
                out,
                describer,
                settings,
                only=only or (),
                listed=listed,
                features=features,
                masks=masks,
                workers=crew,
                say=announcing(progress),
                progress=progress,
            )
        if as_json:
            rate = speed(found.images, time.monotonic() - start, "images")
            print(json.dumps({**dataclasses.asdict(found), "on": crew.label if crew else "local", **rate}))
        if found.refused:
            say(f"not taken in by COLMAP: {first_names(found.refused)}")
        if found.unregistered:
            say(f"in no model: {first_names(found.unregistered)}")
        others = f", and {len(found.models) - 1} smaller models ({found.models[1:]} images)" * (len(found.models) > 1)
        counts = f"{found.registered} of {found.images} images{others}, {found.points:,} points"
        counts += f" seen in {found.track_length:.2f} images on average"
        say(f"{counts}, mean error {found.error:.3f} px ({describer.label}) -> {out}")
