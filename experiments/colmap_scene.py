"""Reconstruct one scene with COLMAP from several features, and with COLMAP's own SIFT, side by side.

    python experiments/colmap_scene.py fountain/images OUT rootsift untrained:dual
    python experiments/colmap_scene.py fountain/images OUT dual light,choice=spread,orientations=one,filter=ratio:0.88

After the name of a model come changes of the settings of `matchkernel colmap`. --results adds the rows to a JSON file.
"""

import argparse
import json
import re
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from matchkernel.cli.console import run_script
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.points import analyze
from matchkernel.data.from_photos import reconstruct_with_sift
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.match import parse_filter
from matchkernel.storage.files import write_json

SIFT = "COLMAP's own SIFT"
COLUMNS = ("images", "keypoints", "registered", "points", "observations", "track_length", "error", "seconds")


def main() -> None:
    """Reconstruct and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("out", type=Path, help="folder for the workspaces and result.json")
    parser.add_argument("models", nargs="+", help="name, weight file, rootsift, or untrained:VARIANT, with settings")
    parser.add_argument("--results", type=Path, help="JSON file to which the rows are added")
    options = parser.parse_args()
    chosen = {text: settings_of(text) for text in options.models}
    options.out.mkdir(parents=True, exist_ok=True)
    results = {SIFT: with_sift(options.images, options.out / "colmap-sift")}
    for text, (name, settings) in chosen.items():
        untrained = name.startswith("untrained:")
        describer = open_describer(name.removeprefix("untrained:"), untrained=untrained, engine="torch")
        start = time.perf_counter()
        workspace = options.out / re.sub(r"[:/,=]", "-", text)
        if not workspace.exists():
            found = vars(reconstruct(options.images, workspace, describer, settings, say=print))
        else:
            found = {k: v for k, v in json.loads((workspace / "summary.json").read_text()).items() if k != "settings"}
        results[text] = {**found, "seconds": round(time.perf_counter() - start), "keypoints": keypoints_in(workspace)}
    print(f"{'features':<22}" + "".join(f"{column:>14}" for column in COLUMNS))
    for text, row in results.items():
        print(f"{text:<22}" + "".join(f"{row[column]:>14}" for column in COLUMNS))
    (options.out / "result.json").write_text(json.dumps(results, indent=1) + "\n")
    if options.results:
        known = json.loads(options.results.read_text()) if options.results.is_file() else {}
        write_json(options.results, {**known, **results})


def with_sift(images: Path, workspace: Path) -> dict[str, Any]:
    """The row of COLMAP's own features."""
    start = time.perf_counter()
    if not workspace.exists():
        reconstruct_with_sift(images, workspace)
    count = len(json.loads((workspace / "photos.json").read_text()))
    seconds = round(time.perf_counter() - start)
    return {"images": count, **analyze(workspace / "sparse"), "seconds": seconds, "keypoints": keypoints_in(workspace)}


def keypoints_in(workspace: Path) -> int:
    """Keypoints of all images."""
    return sum(map(len, read_database_keypoints(workspace / "database.db").values()))


def settings_of(text: str) -> tuple[str, ReconstructSettings]:
    """The model, and the settings of `matchkernel colmap` with its changes; a comma before a number belongs to it."""
    name, *changes = re.split(r",(?=[a-z])", text)
    kinds = {field.name: str if field.default is None else type(field.default) for field in fields(Detector)}
    detector, chosen = {}, ReconstructSettings()
    for change in changes:
        key, _, value = change.partition("=")
        if key == "filter":
            chosen = replace(chosen, filter=parse_filter(value))
        elif key in kinds and value:
            detector[key] = _value(change, kinds[key], value)
        else:
            raise ArgumentError(f"{text}: {change!r} is not a setting of the detector, nor filter=...")
    return name, replace(chosen, detector=replace(COLMAP_LIKE, **detector))


def _value(change: str, kind: type, text: str) -> Any:
    try:
        return text == "True" if kind is bool else kind(text)
    except ValueError:
        raise ArgumentError(f"{change!r}: expected a value of type {kind.__name__}") from None


if __name__ == "__main__":
    run_script(main)
