"""Made-up result files of the paper's experiments, in the shape that run.py writes. No number here is a measurement."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

from data import GROUPS, SEQUENCES
from jobs import EXPERIMENTS

from matchkernel.model.config import DescriptorConfig

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
LEVELS = {"dual-s2": 0.60, "dual-s1": 0.59, "combined-s1": 0.58, "polar-s1": 0.57, "cartesian-s1": 0.575}
LEVELS |= {"fc": 0.55, "concat": 0.52, "sum": 0.40}
NOISES = ("e", "h", "t")
STEP = 0.002  # between neighbouring seeds


def level_of(name, levels):
    return next((level for known, level in levels.items() if name.startswith(known)), 0.5)


def sequences(level, split):
    names = [name for kind in SEQUENCES[split].values() for name in kind]
    tasks = {"verification": level + 0.3, "matching": level, "retrieval": level + 0.1}
    return {
        **tasks,
        "by_noise": {
            task: {n: v + d for n, d in zip(NOISES, (0.1, 0, -0.1), strict=True)} for task, v in tasks.items()
        },
        "by_sequence": {name: dict(tasks) for name in names},
        "data_sha256": split,
    }


def sets(level, names):
    return {n: {"fpr95": {"ordinary": 0.02 - 0.02 * level, "hard": 1 - level}, "map": level + 0.2} for n in names}


def tolerance(level, name):
    steep = {"shift": 0.3 if "cartesian" in name else 0.5, "rotation": 0.4 if "polar" in name else 0.6}
    curves = {}
    for kind, amounts in {"shift": [0, 0.3, 0.6], "rotation": [0, 15, 30, 45], "scale": [-1, 0, 1]}.items():
        drop = [steep.get(kind, steep["rotation"]) * abs(a) / max(amounts) for a in amounts]
        curves[kind] = {
            "amounts": amounts,
            "similarity": [level + 0.3 - d for d in drop],
            "first": [0.9 - d for d in drop],
        }
    return curves


def similarity_maps(name):
    falling = [0.9 - 0.1 * min(k, 6) for k in range(11)]
    near = 0.2 if name.startswith("sum") else 0.8
    return {"near": near, "near_chance": 0.118, "mean": 0.3, "by_distance": falling, "pairs": 300}


def scores_of(job, level):
    scores = {"scenes": sets(level, GROUPS["validation"]), "validation": sequences(level, "validation")}
    scores["validation"]["data_sha256"] += job.score_cut  # other patches
    if "maps" in job.scores:
        scores["maps"] = similarity_maps(job.name)
    if "test" in job.scores:
        scores["test"] = sequences(level, "test")
    if "strips" in job.scores:
        scores["strips"] = {"e": level + 0.1, "h": level, "t": level - 0.1, "all": level}
    if "groups" in job.scores:
        scores["groups"] = sets(level, [group for group in "ABC" if group != job.train])
    if "sizes" in job.scores:
        scores["sizes"] = {str(s): sequences(level + 0.0005 * (s - 32), "validation") for s in (32, 48, 64, 96)}
    if "tolerance" in job.scores:
        scores["tolerance"] = tolerance(level, job.name)
    return scores


def result_of(job, levels=None):
    """A result of a job: levels by the beginning of its name, seeds STEP apart, 64 px 0.03 better."""
    seed = job.settings.get("seed", 0)
    model = DescriptorConfig.from_dict(job.settings["model"]).to_dict()
    level = level_of(job.name, levels or LEVELS) + STEP * seed + (0.03 if "-n64" in job.name else 0)
    cuts = {"train_cut": job.train_cut, "score_cut": job.score_cut}
    return {
        "train": job.train,
        **{name: cut for name, cut in cuts.items() if cut},
        "configuration": model,
        "settings": {
            **job.settings,
            "model": model,
            "sampling": {"pairs": 512, **job.settings["sampling"]},
            "seed": seed,
        },
        "seconds": 60.0 + seed,
        "hardware": "a made-up machine",
        "torch": "0.0",
        "scores": scores_of(job, level),
    }


def baseline(level):
    scores = {"scenes": sets(level, GROUPS["validation"])}
    scores |= {split: sequences(level, split) for split in ("validation", "test")}
    return {"parameters": 0, "settings": {"library": "none"}, "hardware": "made up", "torch": "0.0", "scores": scores}


def write_all(folder, levels=None):
    """Every experiment, done."""
    for experiment, jobs in EXPERIMENTS.items():
        write(folder, experiment, {job.name: result_of(job, levels) for job in jobs})
    write(folder, "baselines", {name: baseline(0.3) for name in ("sift", "rootsift", "mkd", "tfeat")})


def write(folder, experiment, results):
    (folder / f"{experiment}.json").write_text(json.dumps(results), encoding="utf-8")
