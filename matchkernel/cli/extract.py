"""matchkernel extract"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli import options
from matchkernel.cli.console import progress_bar, say, say_stages
from matchkernel.errors import FileError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.features import Store


@options.with_settings
def extract(
    context: typer.Context,
    images: Annotated[list[Path], typer.Argument(help="images, folders of images, patterns such as 'photos/**/*.jpg'")],
    out: Annotated[Path, typer.Option("--out", "-o", help="features.h5 in hloc's layout, or a folder for .npz files")],
    model: options.ModelOptions,
    detector: Detector,
    compute: options.WorkerOptions,
    only: options.Only = None,
    listed: options.Listed = None,
    masks: options.Masks = None,
    store: Annotated[Store, typer.Option(help="how descriptors are stored in features files")] = "float32",
    profile: options.Profile = False,
    as_json: options.Json = False,
) -> None:
    """Extract features from images; run it again to resume."""
    from matchkernel.collection.extract import extract_images, model_there
    from matchkernel.storage.photo_folders import photos_at
    from matchkernel.storage.work import recording, stage

    with recording() as stages:
        with stage("open"):
            describer = model.continuing(model_there(out), options.given_options(context)).open(later=True)
        photos = photos_at(images, only=only or (), listed=listed, without=masks)
        if photos.ignored:
            say(photos.what_was_ignored())
        pool, label = compute.open(len(photos.paths), model.device)
        start = time.monotonic()
        with progress_bar("extracting features", len(photos.paths), unit="images", resumes=out) as bar:
            report = extract_images(
                photos.paths, out, describer, detector, store=store, masks=masks, workers=pool, say=say, progress=bar
            )
    done, kept, skipped = len(report.done), len(report.kept), len(report.skipped)
    if not done and not kept:
        reason = f"none of the {skipped} images could be read" if skipped > 1 else "".join(report.skipped.values())
        raise FileError(f"nothing written to {out}: {reason}")
    rate = options.speed(done, time.monotonic() - start, "images")
    if as_json:
        seconds = {"seconds": stages.rounded()} if profile else {}
        print(json.dumps({**asdict(report), "ignored": photos.ignored, "on": label, **rate, **seconds}))
    counts = f"{done} image{'s' * (done != 1)} done, {kept} already there, {skipped} skipped; {report.keypoints:,}"
    say(f"{counts} keypoints ({report.label}), {rate['images_per_second']:.1f} images/s -> {out}")
    if profile:
        say_stages(stages)
