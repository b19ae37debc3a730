"""bf16 with CUDA graphs against plain float32, three seeds each; then one full run of the paper's recipe.

python experiments/training_on_a_gpu.py --train SET... --validation SET... --out FOLDER
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from matchkernel.training.config import TrainingConfig
from matchkernel.training.log import read_log
from matchkernel.training.loop import train

WAYS = {"fp32 eager": {"precision": "fp32", "compile": "no"}, "bf16 graph": {"precision": "bf16", "compile": "auto"}}


def run(options: argparse.Namespace, name: str, steps: int, seed: int, loop: dict) -> dict:
    """Train `dual` s=2 with the preset `paper` for this number of steps; returns its scores."""
    settings = {
        "seed": seed,
        "model": {"variant": "dual", "s": 2},
        "data": {"train": options.train, "validation": options.validation},
        "sampling": {"steps": steps, "pairs": options.pairs},
        "loop": {"log_every": max(1, steps // 60), "save_every": steps, **loop},
    }
    folder = options.out / "runs" / name
    torch._dynamo.reset()
    start = time.perf_counter()
    outcome = train(TrainingConfig.from_dict(settings), folder, device=options.device)
    seconds = time.perf_counter() - start
    last = [entry for entry in read_log(folder / "log.jsonl") if entry["event"] == "validation"][-1]
    loss = [entry["loss"] for entry in read_log(folder / "log.jsonl") if entry["event"] == "training"][-1]
    print(
        name,
        f"{outcome.step} steps, {seconds:.0f} s, loss {loss:.4f}, {last['fpr95']:.4f}, {last['map']:.4f}",
        flush=True,
    )
    return {"fpr95": last["fpr95"], "map": last["map"], "loss": loss, "seconds": seconds}


def report(result: dict, ways: list[str], seeds: list[int]) -> None:
    """Print means and spreads over seeds, and the difference per seed of two settings, with its standard error."""
    for measure in ("fpr95", "map", "loss"):
        values = {way: [result[f"{way}, seed {seed}"][measure] for seed in seeds] for way in ways}
        for way, found in values.items():
            print(f"{measure:6s} {way:24s} {statistics.mean(found):.4f} +- {_spread(found):.4f}", flush=True)
        if len(ways) == 2:
            gaps = [one - two for one, two in zip(*values.values(), strict=True)]
            error = _spread(gaps) / len(gaps) ** 0.5
            print(f"{measure:6s} {' - '.join(ways):24s} {statistics.mean(gaps):.4f} +- {error:.4f}", flush=True)


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Run what is not done yet, and write result.json after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--validation", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--full-steps", type=int, default=39_060)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    place = options.out / "result.json"
    result = json.loads(place.read_text()) if place.exists() else {"steps": options.steps, "pairs": options.pairs}
    result["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    jobs = {f"{way}, seed {s}": (options.steps, s, WAYS[way]) for s in options.seeds for way in options.ways}
    if options.full_steps:
        every = max(1, options.full_steps // 8)
        jobs["full"] = (options.full_steps, 0, {**WAYS["bf16 graph"], "validate_every": every})
    for name, (steps, seed, loop) in jobs.items():
        if name not in result:
            result[name] = run(options, name.replace(" ", "-").replace(",", ""), steps, seed, loop)
            place.write_text(json.dumps(result, indent=1) + "\n")
    report(result, options.ways, options.seeds)
    if options.full_steps:
        shutil.copy(options.out / "runs" / "full" / "log.jsonl", options.out / "log.jsonl")


if __name__ == "__main__":
    main()
