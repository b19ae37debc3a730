"""What BatchNorm statistics by patch size give a model trained at several sizes.

python experiments/2026-11-15-mixed-sizes/run.py SETS RUN

Trains on group A in SETS (cut by experiments/paper/data.py) into the folder RUN, unless a run is there, and scores the
model on the validation sequences at each of its sizes: with the running statistics of the training, a mixture of all
sizes, and with those of the size.
"""

import argparse
import json
import platform
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))

import torch
from data import GROUPS, sequences_folder
from score import method_of, score_sequences

from matchkernel.model.descriptors import Descriptor
from matchkernel.storage.files import replacing
from matchkernel.training.checkpoint import LAST, read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.loop import train
from matchkernel.training.sets import TrainingSet, open_sets
from matchkernel.training.size_statistics import with_size_statistics

SETTINGS = {
    "model": {"variant": "cartesian", "s": 1},
    "sampling": {"pairs": 256, "steps": 2000, "patch_sizes": [24, 32, 48]},
    "loop": {"precision": "bf16", "save_every": 2000},
}
TASKS = ("verification", "matching", "retrieval")


def main() -> None:
    """Train, score, write result.json, and print it as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("run", type=Path)
    options = parser.parse_args()
    folders = [str(options.sets / scene) for scene in GROUPS["A"]]
    config = TrainingConfig.from_dict({**SETTINGS, "data": {"train": folders}})
    if not (options.run / LAST).exists():
        train(config, options.run)
    mixture = Descriptor(config.model)
    state = read_checkpoint(options.run / LAST).tensors
    mixture.load_state_dict({name.removeprefix("model."): t for name, t in state.items() if name.startswith("model.")})
    by_size = with_size_statistics(mixture, config, TrainingSet(open_sets(folders)))
    rows = []
    for size in config.sampling.patch_sizes:
        by_size.use_statistics(size)
        for words, model in (("of all sizes", mixture), ("of this size", by_size)):
            scores = score_at(model.eval(), size, options.sets)
            rows.append({"size": size, "statistics": words, **scores})
            print(f"| {size} | {words} | {' | '.join(f'{100 * scores[task]:.2f}' for task in TASKS)} |", flush=True)
    facts = {"settings": SETTINGS, "hardware": platform.machine(), "torch": torch.__version__, "rows": rows}
    with replacing(Path(__file__).parent / "result.json") as part:
        part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def score_at(model: Descriptor, size: int, sets: Path) -> dict[str, float]:
    """The three tasks on the validation sequences, patches resized to a size."""
    other = Descriptor(replace(model.config, patch_size=size))
    other.load_state_dict(model.state_dict())
    found = score_sequences(method_of(other.eval(), "cpu"), sets / sequences_folder("validation"))
    return {task: found[task] for task in TASKS}


if __name__ == "__main__":
    main()
