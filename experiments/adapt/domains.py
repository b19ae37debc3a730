"""Adapt light-wide to single scenes by a fixed number of updates, and keep the verdicts.

    python experiments/adapt/domains.py DATA/scenes/monstree DATA/scenes/langley --work WORK    # as on two cores
    python experiments/adapt/domains.py DATA/scenes/monstree --work WORK --updates 4800 --device cuda
    python experiments/adapt/domains.py    # prints the table of the results

A scene is a folder with images/, sparse/ and database.db. The number of updates is fixed, not the time, so that the
results do not depend on what else the machine does. Run it again to resume; several processes may take other scenes.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from matchkernel.adapt import learn
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.adapt.stages import adapt
from matchkernel.storage.files import write_json

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Adapt to each scene; one JSON file per scene and number of updates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenes", nargs="*", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--updates", type=int, default=learn.ENOUGH)
    parser.add_argument("--pairs", type=int, default=AdaptSettings.pairs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    settings = AdaptSettings(minutes=10_000.0, pairs=arguments.pairs, seed=arguments.seed)
    learn.planned_updates = lambda *_: arguments.updates
    for scene in arguments.scenes:
        name = f"{scene.name}-{arguments.updates}x{arguments.pairs}-seed{arguments.seed}"
        paths = {"from_colmap": scene / "sparse", "database": scene / "database.db"}
        found = adapt(scene / "images", arguments.work / name, settings, **paths, device=arguments.device, say=print)
        if found is None:
            return
        gains = [gain.to_json() for gain in (*found.gains, *found.elsewhere)]
        result = {
            "scene": scene.name,
            "seed": settings.seed,
            "pairs": settings.pairs,
            "learned": asdict(found.learned),
            "gains": gains,
        }
        write_json(RESULTS / "adapt_light_wide" / f"{name}.json", {**result, "verdict": found.verdict})
    table()


def table() -> None:
    """Print what is stored: points of percent, with the 95 % interval of a change."""
    print("| scene | updates × pairs | validation | changes | verdict |\n|---|---|---|---|---|")
    for file in sorted((RESULTS / "adapt_light_wide").glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        learned = found["learned"]
        validation = f"{100 * learned['first_map']:.1f} → {100 * learned['best_map']:.1f}"
        gains = "; ".join(
            f"{gain['measure']}, {gain['place']}: {100 * (gain['after'] - gain['before']):+.1f}"
            f" [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
            for gain in found["gains"]
        )
        updates = f"{learned['step']} × {found['pairs']}"
        print(f"| {found['scene']} | {updates} | {validation} | {gains or '–'} | {found['verdict']} |")


if __name__ == "__main__":
    main()
