"""matchkernel extract"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say, say_stages
from matchkernel.cli.options import (
    Device,
    Engine,
    Json,
    Listed,
    Masks,
    On,
    Only,
    PhotoModel,
    Profile,
    Stored,
    Untrained,
    WorkerCount,
    check_model_options,
    detector_options,
    open_workers,
    speed,
)
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
    from matchkernel.photos.extract import open_describer
    from matchkernel.storage.photo_folders import photos_at
    from matchkernel.storage.work import recording, stage

    check_model_options(model, untrained, engine)
    with recording() as stages:
        with stage("open"):
            describer = open_describer(model, untrained=untrained, device=device, engine=engine, later=True)
        photos = photos_at(images, only=only or (), listed=listed, without=masks)
        if photos.ignored:
            say(photos.what_was_ignored())
        pool, label = open_workers(on, workers, len(photos.paths), device)
        start = time.monotonic()
        with progress_bar("extracting features", len(photos.paths), unit="images", resumes=out) as bar:
            report = extract_images(
                photos.paths, out, describer, detector, store=store, masks=masks, workers=pool, say=say, progress=bar
            )
    done, kept, skipped = len(report.done), len(report.kept), len(report.skipped)
    if not done and not kept:
        raise FileError(f"{out}: nothing written: none of the {skipped} images could be read")
    rate = speed(done, time.monotonic() - start, "images")
    if as_json:
        seconds = {"seconds": stages.rounded()} if profile else {}
        print(json.dumps({**asdict(report), "ignored": photos.ignored, "on": label, **rate, **seconds}))
    counts = f"{done} images done, {kept} already there, {skipped} skipped; {report.keypoints:,} keypoints"
    say(f"{counts} ({report.label}), {rate['images_per_second']:.1f} images/s -> {out}")
    if profile:
        say_stages(stages)
