"""Score the candidates of a step of the study of photos by camera poses, or time them.

    python experiments/photos/run.py keypoints DATA --weights BASELINES --workers 16

DATA holds `scenes/<scene>/` with images/ and sparse/ (see `matchkernel evaluate photos`). BASELINES holds other
people's weights (desdis-8.pth, desdis-16.pth, desdis-32.pth, keynet.pth, AffNet.pth, OriNet.pth) and further weights of
ours (*.safetensors). Steps are those of candidates.json; `test` was scored once, `turned` is scored on the scenes that
turned_scene.py makes of the validation scenes, in DATA/scenes, and `seconds` is the processor time of one photo in one
thread. Results go to `<results>/photos_<step>.json`; what is there is not measured again. `--seconds 540` starts
nothing new after nine minutes. taken.json holds what the rules of the report chose.

The error of a pose is kept as one character, once for each order of the matches of a pair: "1" for at most 1 degree,
... "9", "a" for at most 10, "-" for more or for no pose at all.
"""

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.evaluation.methods import MOVED
from matchkernel.evaluation.photos.evaluate import Protocol, evaluate_photos, threads
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scene
from matchkernel.geometry.detect import Detector
from matchkernel.storage.files import replacing
from matchkernel.storage.images import read_colour, read_gray

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
STEPS = json.loads((HERE / "candidates.json").read_text(encoding="utf-8"))
SCENES = STEPS.pop("scenes")
BUDGET, MOST_PAIRS = 2000, {"training": 30, "turned": 4}  # keypoints of a photo, pairs of a scene by its group
# The keypoints before any choice of this study, whatever the defaults of the package are by now.
BASE = Detector(
    keypoints=BUDGET,
    choice="strongest",
    orientations="all",
    contrast=0.04,
    edge=10.0,
    upright=False,
    magnification=8.0,
    density=0.0,
)
NETWORKS = ("keynet", "affnet", "orinet")  # settings of Detector that name a file of BASELINES
NOT_OURS = ("sift", "rootsift", "desdis-32")  # never saw the training scenes
DEGREES, NO_POSE = "123456789a", "-"
OF_PROTOCOL = ("estimator", "pixels")  # the others of Candidate.how are fields of MethodSpec


@dataclass(frozen=True)
class Candidate:
    """A method with its keypoints and filter."""

    method: str  # "detect": only keypoints are found, for `seconds`
    changes: dict[str, Any]  # of BASE
    filter: str
    how: dict[str, Any] = field(default_factory=dict)  # estimator, pixels, engine, aligned

    @property
    def protocol(self) -> Protocol:
        """How its poses are scored; MAGSAC was the only estimator when the first steps were."""
        given = {name: value for name, value in self.how.items() if name in OF_PROTOCOL}
        return Protocol(**{"estimator": "magsac", **given})

    @property
    def key(self) -> str:
        """The name of its results."""
        changes = " ".join(f"{name}={value}" for name, value in sorted(self.changes.items()))
        how = " ".join(f"{name}={value}" for name, value in sorted(self.how.items()))
        return " | ".join(part for part in (self.method, changes, self.filter, how) if part)

    def spec(self, weights: Path, device: str) -> MethodSpec:
        """What evaluate_photos is given."""
        file = weights / f"{self.method}.safetensors"
        text = f"{MOVED[self.method]}:{weights / self.method}.pth" if self.method in MOVED else self.method
        networks = {name: str(weights / self.changes[name]) for name in NETWORKS if name in self.changes}
        detector = replace(BASE, **{**self.changes, **networks})
        is_guided = self.filter.startswith("guided:")
        kept = self.filter.replace("guided:", "ratio:")
        more = {name: value for name, value in self.how.items() if name not in OF_PROTOCOL}
        return MethodSpec(str(file) if file.is_file() else text, detector, kept, device, guided=is_guided, **more)


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=list(STEPS))
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights", type=Path, default=Path(), help="folder of weights")
    parser.add_argument("--only", nargs="+", default=[""], help="only candidates whose name contains one of these")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results, read and written")
    parser.add_argument("--work", type=Path, help="folder that keeps features for a later run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=6, help="candidates between two writes of the results")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start nothing new after this time")
    options = parser.parse_args()
    path = options.results / f"photos_{options.step}.json"
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    rows = about.pop("rows", {})
    wanted = [Candidate(*row) for row in STEPS[options.step]]
    wanted = [one for one in wanted if any(part in one.key for part in options.only)]
    options.results.mkdir(parents=True, exist_ok=True)
    measure = time_photos if options.step == "seconds" else score_poses
    measure(wanted, path, about, rows, options)


def score_poses(
    wanted: list[Candidate], path: Path, about: dict[str, Any], rows: dict[str, Any], options: argparse.Namespace
) -> None:
    """Score candidates that have no results, several at a time, by group of scenes."""
    end = time.monotonic() + options.seconds
    for group, names in SCENES.items():
        missing = [
            one
            for one in wanted
            if group in groups_of(options.step, one.method) and not set(names) <= set(scenes_of(rows, one.key))
        ]
        folders = [options.data / "scenes" / name for name in names] if missing else []
        scenes = [read_scene(folder, most_pairs=MOST_PAIRS.get(group)) for folder in folders]
        about["scenes"] = {**about.get("scenes", {}), **sizes_of(scenes, about.get("scenes", {}), path)}
        about |= {"format": 1, "protocol": vars(Candidate("", {}, "").protocol)}
        for start in range(0, len(missing), options.batch):
            if time.monotonic() > end:
                print(f"time is up: {len(missing) - start} candidates on {group} scenes are left", flush=True)
                return
            batch = missing[start : start + options.batch]
            results = []
            for protocol, part in groupby(batch, key=lambda one: one.protocol):
                specs = [one.spec(options.weights, options.device) for one in part]
                results += evaluate_photos(scenes, specs, protocol, work=options.work, workers=options.workers)
            for one, result in zip(batch, results, strict=True):
                rows[one.key] = compact(result, scenes_of(rows, one.key))
                about["versions"] = result["versions"]
                print(f"{group}: {one.key}: {100 * result['mean']['maa10']['mean']:.1f}", flush=True)
            write(path, about, rows)


def groups_of(step: str, method: str) -> tuple[str, ...]:
    """The groups of scenes that a method is scored on: our weights were trained on the training scenes."""
    if step in ("test", "turned"):
        return (step,)
    if step == "matchers":
        return ("validation", "test")
    return ("training", "validation") if step == "keypoints" and method in NOT_OURS else ("validation",)


def scenes_of(rows: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What is known of a candidate, by scene."""
    return dict(rows.get(key, {}).get("scenes", {}))


def sizes_of(scenes: list[EvaluationScene], known: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Images and pairs of each scene, which must be those of earlier measurements."""
    sizes = {scene.name: {"images": len(scene.images), "pairs": len(scene.pairs)} for scene in scenes}
    for name, size in sizes.items():
        if known.get(name, size) != size:
            raise FileError(f"{path}: was measured with {known[name]} of {name}, here are {size}")
    return sizes


def compact(result: Mapping[str, Any], scenes: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a result of evaluate_photos, beside what is known of other scenes."""
    for name, scene in result["scenes"].items():
        errors = [both for row in scene["pairs"] for both in zip(row["rotation"], row["direction"], strict=True)]
        scenes[name] = {
            "poses": "".join(degree(*both) for both in errors),
            "orders": len(scene["pairs"][0]["rotation"]),
            "matches": round(scene["matches"], 2),
            "inliers": round(scene["inliers"], 2),
        }
    kept = {key: result[key] for key in ("descriptor", "licence", "keypoints", "filter", "seconds")}
    return {**kept, "scenes": scenes}


def degree(rotation: float | None, direction: float | None) -> str:
    """The character of a pose error; None for no pose."""
    if rotation is None or direction is None or max(rotation, direction) > len(DEGREES):
        return NO_POSE
    return DEGREES[max(math.ceil(max(rotation, direction)), 1) - 1]


def time_photos(
    wanted: list[Candidate], path: Path, about: dict[str, Any], rows: dict[str, Any], options: argparse.Namespace
) -> None:
    """Seconds per photo: the median over every third photo of the validation scenes, without reading them."""
    folders = [options.data / "scenes" / scene / "images" for scene in SCENES["validation"]]
    photos = [path for folder in folders for path in sorted(folder.iterdir())[::3]]
    about |= {"threads": 1, "photos": len(photos), "machine": platform.machine(), "torch": torch.__version__}
    for one in (one for one in wanted if one.key not in rows):
        spec, found = one.spec(options.weights, "cpu"), []
        with threads(1):
            method = None if one.method == "detect" else spec.open()
            for photo in (photos[0], *photos):  # the first is seen twice, as a first run also loads and plans
                gray, colour = read_gray(photo), read_colour(photo)
                start = time.process_time()
                if method is None:
                    replace(BASE, **one.changes).detect(gray)
                else:
                    method.extract(colour, photo.name)
                found.append(time.process_time() - start)
        rows[one.key] = {"seconds": round(statistics.median(found[1:]), 4)}
        write(path, about, rows)
        print(f"{one.key}: {rows[one.key]['seconds']:.2f} s", flush=True)


def write(path: Path, about: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    """One line per row, so that files can be compared."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items()))
    with replacing(path) as part:
        part.write_text(f'{json.dumps(about)[:-1]}, "rows": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
