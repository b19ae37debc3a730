"""matchkernel match-pairs"""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli import options
from matchkernel.cli.console import progress_bar, say
from matchkernel.errors import FileError
from matchkernel.photos.pipeline import MatchSettings

UNVERIFIED = MatchSettings(geometry="none")


@options.with_settings
def match_pairs(
    features: Annotated[Path, typer.Argument(help="features.h5 or folder that `matchkernel extract` wrote")],
    pairs: Annotated[Path, typer.Argument(help="file of pairs, two image names per line; see `matchkernel pairs`")],
    out: Annotated[
        list[Path],
        typer.Option("--out", "-o", help="matches.h5 of hloc, or .txt for COLMAP's matches_importer; or both"),
    ],
    compute: options.WorkerOptions,
    settings: MatchSettings = UNVERIFIED,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Match many pairs of images whose features were extracted; run it again to resume."""
    from matchkernel.collection.match import match_pairs as run
    from matchkernel.photos.pair_lists import read_pairs
    from matchkernel.storage.files import check_output

    for path in out:
        check_output(path, pairs)
    wanted = read_pairs(pairs)
    if not wanted:
        raise FileError(f"{pairs}: contains no pairs")
    pool, label = compute.open(len(wanted), device)
    start = time.monotonic()
    with progress_bar("matching", len(wanted), unit="pairs", resumes=out[0]) as progress:
        report = run(features, wanted, out, settings, device=device, workers=pool, say=say, progress=progress)
    rate = options.speed(report.done, time.monotonic() - start, "pairs")
    if as_json:
        print(json.dumps({**asdict(report), "on": label, **rate}))
    done = f"{report.done} pair{'s' * (report.done != 1)} done, {report.kept} already there"
    say(
        f"{done}, {len(report.skipped)} images or pairs skipped; "
        f"{report.matches:,} matches, {rate['pairs_per_second']:.1f} pairs/s -> {', '.join(map(str, out))}"
    )
