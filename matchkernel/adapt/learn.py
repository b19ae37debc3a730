"""Train from the base on the photos' own patches: as many updates as the time allows, stopped early by validation."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.adapt.settings import AdaptSettings, Record
from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.runtime.weights import read_card
from matchkernel.storage.work import Say
from matchkernel.training.checkpoint import find_checkpoint, read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.log import LOG, LogLine, read_log
from matchkernel.training.loop import train

TRIAL, TRIAL_ON_GPU = 4, 60  # updates by which the speed is measured
SHARE = 0.8  # of the time that is planned for updates; the rest is for validations and a machine that slows down
MIN_UPDATES = 20
MAX_PAIRS = 2400 * 1024  # in all updates: more were not measured
VALIDATIONS, PATIENCE = 10, 4  # how often; and how many without a better one end the training

Parts = Mapping[str, PatchSet]  # "training" and "validation"


@dataclass(frozen=True)
class Learned:
    """How the training ended: the update with the best validation, and why it ended."""

    step: int
    steps: int
    best_step: int
    best_map: float
    first_map: float
    seconds: float
    why: str


def learn(sets: Parts, folder: Path, settings: AdaptSettings, device: str, record: Record, say: Say) -> Learned | None:
    """Train into <folder>/run; a stopped or killed training goes on. None if the process was asked to end.

    <folder>/run/best.safetensors are the best weights on validation so far. The record keeps the number of updates and
    how the training ended; `say` is called with the state of the training at every line of its log.
    """
    if "learned" in record:
        return Learned(**record["learned"])
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    if "plan" not in record:
        begun = time.perf_counter()
        planned = _planned_steps(sets, folder, settings, device, begun)
        if planned is None:
            return None
        record.finish("plan", {"steps": planned, "seconds": round(time.perf_counter() - begun, 1)})
    steps = int(record["plan"]["steps"])
    checkpoint = find_checkpoint(run)
    watch = _Watch(max(1.0, 60 * settings.minutes - record["plan"]["seconds"]), steps, say)
    if checkpoint is not None:
        watch.go_on(run, read_checkpoint(checkpoint).step)
    config, resume = training_config(sets, settings, steps), checkpoint is not None
    outcome = train(config, run, resume=resume, device=device, report=watch.see, stop_when=watch.must_stop)
    if not outcome.is_finished and not watch.why:
        return None
    best, first = outcome.best, _validations(run)[0]
    learned = Learned(
        step=outcome.step,
        steps=steps,
        best_step=int(best["step"]),
        best_map=best["map"],
        first_map=float(first["map"]),
        seconds=round(watch.before + watch.seconds(), 1),
        why=watch.why or "all updates were made",
    )
    record.finish("learned", asdict(learned))
    return learned


def training_config(sets: Parts, settings: AdaptSettings, steps: int, **tables: Any) -> TrainingConfig:
    """The run: the base's own loss and augmentation, a low rate, and the base as a teacher of its own rows."""
    before = read_card(settings.base).training
    own = {name: before[name] for name in ("loss", "augmentation") if isinstance(before.get(name), dict)}
    own["augmentation"] = {**own.get("augmentation", {}), "zoom_octaves": 0.0}  # the patches are cut as for matching
    points = paired_points(sets["training"])
    if settings.mix:  # half of the pairs come from there
        points = min(points, 2 * sum(paired_points(open_patch_set(place)) for place in settings.mix))
    values: dict[str, Any] = {
        **own,
        "seed": settings.seed,
        "start": {"weights": settings.base, "layers": settings.layers},
        "data": {
            "train": [str(sets["training"].folder)],
            "mix": list(settings.mix),
            "validation": [str(sets["validation"].folder)],
        },
        "sampling": {"pairs": max(2, min(settings.pairs, points)), "steps": steps},
        # Without a warm-up the first update, which SGD does not dampen, undoes what the base has learned.
        "optimizer": {"rate": settings.rate, "warmup": max(2, steps // 10)},
        "loop": {
            "log_every": max(1, steps // 50),
            "save_every": max(1, steps // VALIDATIONS),
            "validate_every": max(1, steps // VALIDATIONS),
        },
    }
    if settings.remember:
        values["teacher"] = {"weights": [settings.base], "rows": settings.remember, "pairs": 1.0}
    return TrainingConfig.from_dict({**values, **tables})


def paired_points(part: PatchSet) -> int:
    """Points with two patches or more."""
    return int(np.count_nonzero(part.groups().sizes > 1))


class _Watch:
    """Keeps the time of a training, and ends it where validation no longer improves."""

    def __init__(self, limit: float, steps: int, say: Say) -> None:
        self.start, self.limit, self.steps, self.say = time.perf_counter(), limit, steps, say
        self.best, self.since, self.why, self.before = -1.0, 0, "", 0.0
        self.first: int | None = None

    def seconds(self) -> float:
        """Since the training began, or went on."""
        return time.perf_counter() - self.start

    def see(self, line: LogLine) -> None:
        """A line of the log."""
        if self.first is None:
            self.first = line.step
        score = f"loss {line.loss:.4f}"
        if line.validation is not None:
            score = f"validation mAP {100 * line.validation['map']:.2f}"
            self.judge(line.validation["map"])
        done = line.step - self.first
        planned = self.seconds() / done * (self.steps - line.step) if done else self.limit
        minutes, seconds = divmod(int(max(0.0, min(planned, self.limit - self.seconds()))), 60)
        self.say(f"step {line.step}/{line.steps}  {score}  {minutes}:{seconds:02d} left")

    def judge(self, score: float) -> None:
        """A validation."""
        self.best, self.since = max(self.best, score), 0 if score > self.best else self.since + 1
        if self.since >= PATIENCE:
            self.why = f"{PATIENCE} validations brought nothing better"

    def go_on(self, run: Path, step: int) -> None:
        """Take in the validations of a run that goes on after this update, and the share of the time that it took."""
        for entry in _validations(run):
            if entry["step"] <= step and step > 0:  # one that has made no update is validated again
                self.judge(float(entry["map"]))
        self.before = self.limit * step / self.steps
        self.limit -= self.before

    def must_stop(self) -> bool:
        """True if the time is over, or validation no longer improves."""
        if not self.why and self.seconds() > self.limit:
            self.why = "the time was over"
        return bool(self.why)


def _planned_steps(sets: Parts, folder: Path, settings: AdaptSettings, device: str, begun: float) -> int | None:
    """As many updates as fit into the time that a short trial of the speed leaves; None if asked to end."""
    trial, speeds = folder / "trial", []
    shutil.rmtree(trial, ignore_errors=True)
    count = TRIAL if device == "cpu" else TRIAL_ON_GPU
    data = {"train": [str(sets["training"].folder)], "mix": list(settings.mix)}
    config = training_config(sets, settings, count, data=data, loop={"log_every": count // 2})
    outcome = train(config, trial, device=device, report=lambda line: speeds.append(line.patches_per_second))
    shutil.rmtree(trial, ignore_errors=True)
    if not outcome.is_finished:
        return None
    return planned_updates(speeds[-1] / 2, config.sampling.pairs, 60 * settings.minutes - (time.perf_counter() - begun))


def planned_updates(pairs_per_second: float, pairs: int, left: float) -> int:
    """How many updates of so many pairs to make in the seconds that are left."""
    return max(int(min(SHARE * left * pairs_per_second, MAX_PAIRS) / pairs), MIN_UPDATES)


def _validations(run: Path) -> list[dict[str, Any]]:
    path = run / LOG
    return [entry for entry in read_log(path) if entry.get("event") == "validation"] if path.exists() else []
