"""matchkernel colmap"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli import options
from matchkernel.cli.console import progress_bar, say
from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.storage.settings import with_options

if TYPE_CHECKING:
    from matchkernel.collection.workspace import Summary

SHOWN_REASONS = 100


@options.with_settings
def colmap(
    context: typer.Context,
    images: Annotated[Path, typer.Argument(help="folder of images, of one scene or of several")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="workspace to create; run the command again to resume, or to add photos"),
    ],
    model: options.ModelOptions,
    settings: ReconstructSettings,
    compute: options.WorkerOptions,
    detector: Detector = COLMAP_LIKE,
    only: options.Only = None,
    listed: options.Listed = None,
    features: Annotated[
        Path | None, typer.Option(help="features that `extract` made; model and settings not given are theirs")
    ] = None,
    masks: options.Masks = None,
    undistort: Annotated[
        bool, typer.Option("--undistort", help="also write OUT/undistorted, which trainers of Gaussian splats read")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Reconstruct scenes from our features and matches with COLMAP, which verifies them and builds the model."""
    from matchkernel.collection.reconstruct import reconstruct
    from matchkernel.storage.photo_folders import photos_in

    given = options.given_options(context)
    describer = _model_of(features, out, model, given).open()
    count = len(photos_in(images, only=only or (), listed=listed, without=masks).paths)
    pool, label = compute.open(count, model.device)
    start = time.monotonic()
    with progress_bar("reconstructing", resumes=out) as progress:
        found = reconstruct(
            images,
            out,
            describer,
            replace(settings, detector=detector),
            only=only or (),
            listed=listed,
            features=features,
            given=given,
            masks=masks,
            undistort=undistort,
            workers=pool,
            say=progress.announce,
            progress=progress,
        )
    rate = options.speed(found.images, time.monotonic() - start, "images")
    if as_json:
        print(json.dumps({**asdict(found), "on": label, **rate}))
    _say_summary(found, f"({describer.label}) -> {out}")


def _model_of(
    features: Path | None, workspace: Path, model: options.ModelOptions, given: list[str]
) -> options.ModelOptions:
    """The model and the engine that made the features, or the model of the workspace, as far as they are not given."""
    from matchkernel.collection.given_features import model_of_features
    from matchkernel.collection.workspace import model_of_workspace

    made_by = {} if features is None else model_of_features(features)
    if not made_by:
        return model.continuing(model_of_workspace(workspace), given)
    if {"model", "untrained"}.intersection(given) and model.model != made_by.get("model"):
        return model
    found = with_options(model, {name: value for name, value in made_by.items() if name not in given})
    if found != model:
        say(f"with the model of {features}: {', '.join(made_by.values())}")
    return found


def _say_summary(found: "Summary", rest: str) -> None:
    for name, reason in list(found.reasons.items())[:SHOWN_REASONS]:
        say(f"not in the model: {name}: {reason}")
    if len(found.reasons) > SHOWN_REASONS:
        say(f"and {len(found.reasons) - SHOWN_REASONS} more: see reasons in summary.json")
    others = f", and {len(found.models) - 1} smaller models ({found.models[1:]} images)" * (len(found.models) > 1)
    counts = f"{found.registered} of {found.images} images{others}, {found.points:,} points"
    counts += f" seen in {found.track_length:.2f} images on average"
    say(f"{counts}, mean error {found.error:.3f} px {rest}")
