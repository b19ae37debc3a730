"""matchkernel match-pairs"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import (
    Device,
    Geometry,
    Guided,
    InlierPixels,
    Json,
    MatchFilter,
    Mutual,
    On,
    WorkerCount,
    open_workers,
    speed,
)
from matchkernel.errors import FileError
from matchkernel.photos.match import DEFAULT_FILTER, parse_filter
from matchkernel.photos.verify import INLIER_PIXELS


def match_pairs(
    features: Annotated[Path, typer.Argument(help="features.h5 or folder that `matchkernel extract` wrote")],
    pairs: Annotated[Path, typer.Argument(help="file of pairs, two image names per line; see `matchkernel pairs`")],
    out: Annotated[
        list[Path],
        typer.Option("--out", "-o", help="matches.h5 of hloc, or .txt for COLMAP's matches_importer; or both"),
    ],
    geometry: Annotated[
        Geometry, typer.Option(help="keep only matches that agree on this model; auto tries both")
    ] = Geometry.none,
    pixels: InlierPixels = INLIER_PIXELS,
    guided: Guided = False,
    mutual: Mutual = True,
    keep: MatchFilter = str(DEFAULT_FILTER),
    device: Device = "auto",
    on: On = "local",
    workers: WorkerCount = None,
    as_json: Json = False,
) -> None:
    """Match many pairs of images whose features were extracted; run it again to resume."""
    from matchkernel.collection.match import match_pairs as run
    from matchkernel.photos.files import read_pairs
    from matchkernel.photos.pipeline import MatchSettings

    settings = MatchSettings(
        mutual=mutual, filter=parse_filter(keep), geometry=geometry.value, pixels=pixels, guided=guided
    )
    wanted = read_pairs(pairs)
    if not wanted:
        raise FileError(f"{pairs}: contains no pairs")
    pool, label = open_workers(on, workers, len(wanted), device)
    start = time.monotonic()
    with progress_bar("matching", len(wanted), unit="pairs", resumes=out[0]) as progress:
        report = run(features, wanted, out, settings, device=device, workers=pool, say=say, progress=progress)
    rate = speed(report.done, time.monotonic() - start, "pairs")
    if as_json:
        print(json.dumps({**asdict(report), "on": label, **rate}))
    say(
        f"{report.done} pairs done, {report.kept} already there, {len(report.skipped)} images or pairs skipped; "
        f"{report.matches:,} matches, {rate['pairs_per_second']:.1f} pairs/s -> {', '.join(map(str, out))}"
    )
