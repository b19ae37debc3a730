"""matchkernel extract"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import goes_on, progress_bar, say, say_stages, user_errors
from matchkernel.cli.detector_options import detector_options
from matchkernel.cli.options import (
    Device,
    Engine,
    Json,
    Listed,
    Masks,
    Only,
    PhotoModel,
    Profile,
    Stored,
    Untrained,
    check_model_options,
)
from matchkernel.cli.worker_options import On, WorkerCount, open_workers, speed
from matchkernel.errors import FileError
from matchkernel.geometry.detect import Detector


@detector_options()
def extract(
    *,
    images: Annotated[list[Path], typer.Argument(help="images, folders of images, patterns such as 'photos/**/*.jpg'")],
    out: Annotated[Path, typer.Option("--out", "-o", help="features.h5 in hloc's layout, or a folder for .npz files")],
    model: PhotoModel = "light-wide",
    untrained: Untrained = False,
    detector: Detector,
    only: Only = None,
    listed: Listed = None,
    masks: Masks = None,
    store: Stored = "float32",
    device: Device = "auto",
    engine: Engine = "auto",
    on: On = "local",
    workers: WorkerCount = None,
    profile: Profile = False,
    as_json: Json = False,
) -> None:
    """Extract features from images; run it again to resume."""
    from matchkernel.collection.extract import extract_images
    from matchkernel.photos.describers import open_describer
    from matchkernel.storage.photo_folders import photos_at
    from matchkernel.storage.progress import recording, stage

    with user_errors(), recording() as stages:
        check_model_options(model, untrained, engine)
        with stage("open"):
            describer = open_describer(model, untrained=untrained, device=device, engine=engine, later=True)
        photos = photos_at(images, only=only or (), listed=listed, without=masks)
        found = photos.paths
        if photos.ignored:
            say(photos.what_was_ignored())
        crew = open_workers(on, workers, len(found), device)
        start = time.monotonic()
        with goes_on(out), progress_bar("extracting features", len(found), unit="images") as progress:
            report = extract_images(
                found, out, describer, detector, store=store, masks=masks, workers=crew, say=say, progress=progress
            )
        rate = speed(len(report.done), time.monotonic() - start, "images")
        done, kept, skipped = len(report.done), len(report.kept), len(report.skipped)
        if not done and not kept:
            raise FileError(f"{out}: nothing written: none of the {skipped} images could be read")
        if as_json:
            result = {**asdict(report), "ignored": photos.ignored, "on": crew.label if crew else "local", **rate}
            print(json.dumps({**result, **({"seconds": stages.rounded()} if profile else {})}))
        say(
            f"{done} images done, {kept} already there, {skipped} skipped; {report.keypoints:,} keypoints "
            f"({report.label}), {rate['images_per_second']:.1f} images/s -> {out}"
        )
        if profile:
            say_stages(stages)
