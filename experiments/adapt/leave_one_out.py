"""Leave one domain out: bases trained without it, adapted on half of its photos, tested on the other half.

python experiments/adapt/leave_one_out.py cut DATA WORK
python experiments/adapt/leave_one_out.py run WORK [--results FOLDER] [--workers 3] [--seconds 1500] [--only NAME...]
python experiments/adapt/leave_one_out.py run WORK --steps 3 --device cpu --results elsewhere    # to try it out
python experiments/adapt/leave_one_out.py laptop WORK [--results FOLDER] [--minutes 10]

`cut` needs no GPU: it cuts every training scene whole, for the bases, and the scenes of the domains in parts, of which
half of the photos and places are for the test (see matchkernel/data/split.py). `run` trains three seeds of a base
without each domain, then from each base the ways of WAYS. `laptop` adapts the bases of seed 0 as `matchkernel adapt`
does, for the minutes given, on a CPU. Results go to <results>/adapt.json after every base; what is there is not done
again. Weights stay in WORK/weights.

The rule for the defaults of `matchkernel adapt`, written down before any result: of the ways that need only the user's
photos, the one with the largest mean gain of retrieval on the validation parts, over all domains and seeds; of ways
within 0.2 points of it, the one that forgets the least on the validation scenes. The test parts choose nothing.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from matchkernel.adapt.judge import describe_set, hard_gain, matching_gain, retrieval_gain
from matchkernel.adapt.learn import learn, training_config
from matchkernel.adapt.settings import AdaptSettings, Record
from matchkernel.cli.console import run_script
from matchkernel.data.from_colmap import CutSettings, build_from_colmap, build_parts
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.split import Counts
from matchkernel.errors import FileError
from matchkernel.model.weights import load, save
from matchkernel.storage.files import read_small_text, replacing
from matchkernel.storage.settings import merged, parse_override
from matchkernel.training.config import TrainingConfig
from matchkernel.training.loop import train
from matchkernel.training.validation import validate

RESULTS = Path(__file__).parents[1] / "results"
LAPTOP = "two cores"
# Kinds of photos with their scenes; all training scenes; scenes on which forgetting is measured; settings of a base
# and how it becomes the domain's own: `{base}` is its weight file; MIX draws half of the pairs from its training sets.
STUDY = json.loads((Path(__file__).parent / "study.json").read_text(encoding="utf-8"))
DOMAINS, SCENES, VALIDATION, WAYS = (STUDY[name] for name in ("domains", "scenes", "validation", "ways"))
SHARES = (0.35, 0.15, 0.5)  # training, validation, test: half of the photos are for the test
SEEDS = (0, 1, 2)
MIX = "mix"


def cut(data: Path, work: Path) -> None:
    """Cut the sets: <work>/whole/<scene>, and <work>/parts/<scene>/{training,validation,test}."""
    whole = CutSettings(pairs=2000, mosaics=False)
    for scene in (*SCENES, *VALIDATION):
        source, target = data / "scenes" / scene, work / "whole" / scene
        if not target.exists():
            how = replace(whole, jitter="h") if scene in VALIDATION else whole
            build_from_colmap(source / "images", source / "sparse", source / "database.db", target, how)
            print(f"{scene}: {len(open_patch_set(target)):,} patches", flush=True)
    for scene in (scene for scenes in DOMAINS.values() for scene in scenes):
        source, target = data / "scenes" / scene, work / "parts" / scene

        def tell(counts: dict[str, Counts], scene: str = scene) -> None:
            print(scene, "; ".join(f"{name}: {count}" for name, count in counts.items()), flush=True)

        if not all((target / part).exists() for part in ("training", "validation", "test")):
            build_parts(
                source / "images", source / "sparse", source / "database.db", target, whole, shares=SHARES, counted=tell
            )


def configuration(
    text: str, work: Path, domain: str, seed: int, base: Path | None, steps: int | None
) -> TrainingConfig:
    """A run: of a base (None), or of a way from a base."""
    words = [word for word in text.replace("{base}", str(base)).split() if word != MIX]
    if base is None:
        train_on = [work / "whole" / scene for scene in SCENES if scene not in DOMAINS[domain]]
        check_on = [work / "whole" / scene for scene in VALIDATION]
    else:
        train_on = [work / "parts" / scene / "training" for scene in DOMAINS[domain]]
        check_on = [work / "parts" / scene / "validation" for scene in DOMAINS[domain]]
    others = [work / "whole" / scene for scene in SCENES if scene not in DOMAINS[domain]]
    folders = {"train": train_on, "mix": others if MIX in text.split() else [], "validation": check_on}
    data = {name: [str(path) for path in paths] for name, paths in folders.items()}
    settings = merged({"data": data, "seed": seed}, *map(parse_override, words))
    if steps is not None:
        settings["sampling"] = {**settings["sampling"], "steps": steps, "pairs": 32}
    length = settings["sampling"]["steps"]
    settings["loop"] = {"log_every": length, "save_every": length, "validate_every": max(1, length // 6)}
    if base is not None:
        settings["loop"]["compile"] = "no"  # so short a training is over before it is compiled
    return TrainingConfig.from_dict(settings)


def trained(config: TrainingConfig, weights: Path, device: str) -> Path:
    """Train, unless the weights are there; the best on validation, for a base the last."""
    if not weights.exists():
        if device != "cpu":
            torch._dynamo.reset()
        with tempfile.TemporaryDirectory() as folder:
            outcome = train(config, folder, device=device)
            is_base = config.sampling.pairs >= 4096
            best = load(Path(folder) / "final.safetensors" if is_base else outcome.weights or "")
            weights.parent.mkdir(parents=True, exist_ok=True)
            save(best, weights, best.card)
    return weights


def scored(base: Path, weights: Path, work: Path, domain: str, device: str) -> dict[str, Any]:
    """Gains over the base on the test parts of the domain, and on validation scenes of other kinds."""
    models, found = (load(base), load(weights)), {}
    places = {f"{scene}, test": work / "parts" / scene / "test" for scene in DOMAINS[domain]}
    for name, place in {**places, **{scene: work / "whole" / scene for scene in VALIDATION}}.items():
        patch_set = open_patch_set(place)
        rows = [describe_set(model, patch_set, device) for model in models]
        gains = [gain(rows, patch_set, name) for gain in (retrieval_gain, matching_gain, hard_gain)]
        found[name] = [gain.to_json() for gain in gains if gain is not None]
    return found


def validated(weights: Path, work: Path, domain: str, device: str) -> float:
    """Mean retrieval on the validation parts of a domain."""
    sets = [open_patch_set(work / "parts" / scene / "validation") for scene in DOMAINS[domain]]
    return validate(load(weights).to(device), sets)["map"]


def do(domain: str, seed: int, options: argparse.Namespace, done: set[str], until: float) -> dict[str, Any]:
    """Train a base and adapt it in every way that has no result yet; returns the results by name."""
    work, steps, device = options.work, options.steps, options.device
    place, name = work / ("weights" if steps is None else "trials"), f"{domain} {seed}"
    left, found = [way for way in WAYS if f"{name} {way}" not in done], {}
    if left and time.time() < until:
        config = configuration(STUDY["base"], work, domain, seed, None, steps)
        base = trained(config, place / f"{name.replace(' ', '-')}.safetensors", device)
        for way in left:
            if time.time() > until:
                break
            start = time.time()
            config = configuration(WAYS[way], work, domain, seed, base, steps)
            weights = trained(config, place / f"{name.replace(' ', '-')}-{way}.safetensors", device)
            seconds = round(time.time() - start, 1)
            found[f"{name} {way}"] = {"seconds": seconds, **result(config, base, weights, work, domain, device)}
            print(f"{name} {way}: {seconds} s", flush=True)
    return found


def result(config: TrainingConfig, base: Path, weights: Path, work: Path, domain: str, device: str) -> dict[str, Any]:
    """Settings, validation before and after, and scores."""
    settings = {name: value for name, value in config.to_dict().items() if name not in ("data", "start", "teacher")}
    validation = [validated(path, work, domain, device) for path in (base, weights)]
    return {"settings": settings, "validation": validation, "scores": scored(base, weights, work, domain, device)}


def laptop(options: argparse.Namespace) -> None:
    """Adapt the base of each domain with seed 0 for some minutes, as `matchkernel adapt` does, on a CPU."""
    path, work = options.results / "adapt.json", options.work
    for domain, scenes in DOMAINS.items():
        results, name = read_results(path), f"{domain} 0 {LAPTOP}"
        if name in results:
            continue
        base = work / "weights" / f"{domain.replace(' ', '-')}-0.safetensors"
        settings = AdaptSettings(base=str(base), minutes=options.minutes)
        sets = {
            part: [open_patch_set(work / "parts" / scene / part) for scene in scenes]
            for part in ("training", "validation")
        }
        with tempfile.TemporaryDirectory() as folder:
            learned = learn(sets, Path(folder), settings, "cpu", Record(Path(folder)), lambda line: None)
            if learned is None:
                return
            config = training_config(sets, settings, learned.steps)
            best = Path(folder) / "run" / "best.safetensors" if learned.best_step else base
            found = {"seconds": learned.seconds, **result(config, base, best, work, domain, "cpu")}
        write_results(path, {**results, name: {**found, "learned": asdict(learned)}})
        print(f"{name}: {learned}", flush=True)


def run(options: argparse.Namespace) -> None:
    """Share domains and seeds among processes; weights are kept as soon as they are trained."""
    path, begun = options.results / "adapt.json", time.time()
    results = read_results(path)
    missing = next((s for s in SCENES if not (options.work / "whole" / s / "manifest.json").exists()), None)
    if missing:
        raise FileError(f"{options.work / 'whole' / missing}: not cut yet; see `cut`")
    jobs = [(domain, seed) for seed in SEEDS for domain in DOMAINS]
    jobs = [job for job in jobs if options.only is None or f"{job[0]} {job[1]}" in options.only]
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(do, *job, options, set(results), begun + options.seconds) for job in jobs]
        for task in as_completed(tasks):
            results |= task.result()
            write_results(path, results)


def read_results(path: Path) -> dict[str, Any]:
    """What is done."""
    return dict(json.loads(read_small_text(path))) if path.exists() else {}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """All results so far, a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(result)}" for name, result in results.items())
        part.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> None:
    """Cut or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    cutting = verbs.add_parser("cut")
    cutting.add_argument("data", type=Path)
    cutting.add_argument("work", type=Path)
    running = verbs.add_parser("run")
    running.add_argument("work", type=Path)
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--seconds", type=float, default=1e9, help="start nothing after this time")
    running.add_argument("--steps", type=int, help="of every training, to try it out")
    running.add_argument("--only", nargs="+", help="such as 'aerial 0'")
    running.add_argument("--device", default="auto")
    slow = verbs.add_parser("laptop")
    slow.add_argument("work", type=Path)
    slow.add_argument("--minutes", type=float, default=10.0)
    for part in (running, slow):
        part.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.verb == "cut":
        cut(options.data, options.work)
    elif options.verb == "run":
        options.device = (
            ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
        )
        run(options)
    else:
        laptop(options)


if __name__ == "__main__":
    run_script(main)
