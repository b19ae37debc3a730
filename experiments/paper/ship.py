"""Put trained weights into the package, with a card that says what they are.

python experiments/paper/ship.py WEIGHTS

WEIGHTS is the folder of `run.py ship poses students --keep`; their scores are read from the results. A model whose
weights are not there keeps those it has, with a new card.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from data import RESULTS
from run import read_jobs

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.model.weights import load, save
from matchkernel.photos.features import LEARNED_RATIO
from matchkernel.runtime.weights import SHIPPED, Card, read_card

# Weights of the package -> experiment and job of jobs.json.
PACKAGE = {
    "dual": ("ship", "dual-x6"),
    "light": ("ship", "light-cartesian-x6"),
    "dual-paper": ("ship", "dual-paper"),
    "fc": ("ship", "fc"),
    "light-wide": ("poses", "light-x6-to-x12-seed0"),
    "tiny": ("students", "tiny-seed0"),
    "small-wide": ("students", "wide-fifth-seed0"),
}
TAKEN = Path(__file__).parents[1] / "photos" / "taken.json"  # calibrated ratios
MATCHING = (
    "matching_validation",
    "matching_validation_wide",
    "matching_validation_tiny",
    "matching_validation_small",
)  # by experiments/photos/sequences.py
LICENCE = (
    "Apache-2.0, as the package. Trained on photos of which two sets have a stated licence (lewis CC0, brighton "
    "BSD-2); for the others none is stated. No scene under non-commercial terms was trained on; recipes and "
    "match_threshold were chosen on validation photos, some of which have such terms. See docs/models.md."
)


def card_of(name: str, experiment: str, job: str, weights: Path) -> Card:
    """The card of a weight file, with scores, command, licence and calibrated limits; sets by cut and name."""
    card = read_card(weights)
    made = next(each for each in read_jobs()[experiment] if each.name == job)
    cut = Path("sets", made.train_cut)
    training = {
        **card.training,
        "data": {
            **card.training["data"],
            "train": [(cut / Path(folder).name).as_posix() for folder in card.training["data"]["train"]],
        },
    }
    if made.teachers:
        names = {"/".join(teacher): known for known, teacher in PACKAGE.items()}
        training["teacher"] = {**training["teacher"], "weights": [names[teacher] for teacher in made.teachers]}
    filters = json.loads(TAKEN.read_text(encoding="utf-8"))["filters"]
    ratio = float(filters[name].removeprefix("ratio:"))
    scores = json.loads((RESULTS / f"{experiment}.json").read_text(encoding="utf-8"))[job]["scores"]
    return replace(
        card,
        training=training,
        metrics=metrics(scores),
        match_threshold=distances()[name],
        match_ratio=None if ratio == LEARNED_RATIO else ratio,
        command=f"matchkernel train configs/trained/{name}.toml -o runs/{name}",
        licence=LICENCE,
    )


def distances() -> dict[str, float]:
    """The calibrated distance of each model."""
    files = [RESULTS / f"{name}.json" for name in MATCHING]
    return {k: v for path in files for k, v in json.loads(path.read_text(encoding="utf-8"))["thresholds"].items()}


def metrics(scores: dict[str, Any]) -> dict[str, float]:
    """The scores of validation in percent: HPatches tasks on six sequences, FPR@95 and mAP on two scenes."""
    found = {task: scores["validation"][task] for task in ("verification", "matching", "retrieval")}
    scenes = list(scores["scenes"].values())
    for kind in ("ordinary", "hard"):
        found[f"fpr95_{kind}"] = sum(scene["fpr95"][kind] for scene in scenes) / len(scenes)
    found["map"] = sum(scene["map"] for scene in scenes) / len(scenes)
    return {f"validation_{name}": round(100 * value, 2) for name, value in found.items()}


def main() -> None:
    """Write matchkernel/runtime/trained/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    folder = parser.parse_args().weights
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    SHIPPED.mkdir(exist_ok=True)
    for name, (experiment, job) in PACKAGE.items():
        path = SHIPPED / f"{name}.safetensors"
        kept = folder / experiment / f"{job}.safetensors"
        weights = kept if kept.is_file() else path
        save(load(weights), path, card_of(name, experiment, job, weights))
        print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, {read_card(path).metrics}")


if __name__ == "__main__":
    run_script(main)
