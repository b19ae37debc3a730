"""Train from the base on the photos' own patches: as many updates as the time allows, stopped early by validation."""

import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.adapt.settings import ADAPTED, AdaptSettings, Record
from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.report.write import FILES
from matchkernel.runtime.weights import read_card
from matchkernel.storage.work import Say
from matchkernel.training.checkpoint import find_checkpoint, read_checkpoint
from matchkernel.training.config import TrainingConfig
from matchkernel.training.log import LOG, LogLine, read_log
from matchkernel.training.loop import train

TRIAL, TRIAL_ON_GPU = 4, 60  # updates by which the speed is measured
SHARE = 0.8  # of the time that is planned for updates; the rest is for validations and a machine that slows down
SLOWER = 1.2  # by so much another run may be: minutes that are advised are so many more
MIN_UPDATES = 20
ENOUGH = 100  # updates of 512 pairs: fewer seldom find a gain, and that these find none says little
MINUTES, MOST_MINUTES = 10.0, 60.0  # without --minutes: at least, and at most where ENOUGH updates need more
MAX_PAIRS = 2400 * 1024  # in all updates: more were not measured; on a GPU a minute or two
VALIDATIONS, PATIENCE = 10, 4  # how often; and how many without a better one end the training
NO_BETTER, TIME_OVER = f"{PATIENCE} validations brought nothing better", "the time was over"

Parts = Mapping[str, PatchSet]  # "training" and "validation"


@dataclass(frozen=True)
class Learned:
    """How the training ended: the update with the best validation, and why it ended."""

    step: int
    steps: int
    best_step: int
    best_map: float
    first_map: float
    last_map: float
    seconds: float
    why: str
    pairs: int = AdaptSettings.pairs  # per update

    @property
    def is_enough(self) -> bool:
        """True if longer trainings would hardly gain more: none is planned to be longer, and it had its time.

        A hundred updates do not say so: on a GPU, scenes gained on which those had found nothing
        (experiments/reports/2026-11-19-adapt-on-a-gpu.md).
        """
        return self.steps >= MAX_PAIRS // self.pairs and self.why != TIME_OVER

    @property
    def fair_minutes(self) -> int:
        """Minutes in which ENOUGH updates are planned, also by a run that is slower than this; a multiple of five."""
        return _minutes_of(SLOWER * ENOUGH * self.seconds / max(self.step, 1) / SHARE)


def learn(sets: Parts, folder: Path, settings: AdaptSettings, device: str, record: Record, say: Say) -> Learned | None:
    """Train into <folder>/run; a stopped or killed training goes on. None if the process was asked to end.

    <folder>/run/best.safetensors are the best weights on validation so far. The record keeps the number of updates and
    how the training ended; `say` is called with the state of the training at every line of its log. With other minutes
    than before the training begins again; of what the old one left beside the folder the report is removed, and the
    weights, which someone may use, get another name.
    """
    if record.get("plan", {}).get("asked", settings.minutes) != settings.minutes:
        say("training again: --minutes has changed")
        old = folder.parent / ADAPTED
        if old.exists():
            kept = old.replace(old.with_name(f"adapted-{record['plan']['minutes']:g}-minutes.safetensors"))
            say(f"the weights of the training before are kept: {kept}")
        record.forget("plan", "learned", "scores")
        for name in FILES:
            (folder.parent / name).unlink(missing_ok=True)
        shutil.rmtree(folder)
    if "learned" in record:
        return Learned(**record["learned"])
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    if "plan" not in record:
        begun = time.perf_counter()
        say("measuring how fast this machine trains")
        speed = _speed(sets, folder, settings, device)
        if speed is None:
            return None
        seconds, pairs = time.perf_counter() - begun, training_config(sets, settings, 1).sampling.pairs
        minutes = settings.minutes or worthwhile_minutes(speed, pairs, seconds)
        steps = planned_updates(speed, pairs, 60 * minutes - seconds)
        plan = {"asked": settings.minutes, "minutes": minutes, "steps": steps, "seconds": round(seconds, 1)}
        record.finish("plan", plan)
    steps, minutes = int(record["plan"]["steps"]), float(record["plan"]["minutes"])
    say(f"training for at most {minutes:g} minutes")
    checkpoint = find_checkpoint(run)
    watch = _Watch(max(1.0, 60 * minutes - record["plan"]["seconds"]), steps, say)
    if checkpoint is not None:
        watch.go_on(run, read_checkpoint(checkpoint).step)
    config, resume = training_config(sets, settings, steps), checkpoint is not None
    outcome = train(config, run, resume=resume, device=device, report=watch.see, stop_when=watch.must_stop)
    if not outcome.is_finished and not watch.why:
        return None
    best, maps = outcome.best, [float(entry["map"]) for entry in _validations(run)]
    learned = Learned(
        step=outcome.step,
        steps=steps,
        best_step=int(best["step"]),
        best_map=best["map"],
        first_map=maps[0],
        last_map=maps[-1],
        seconds=round(watch.before + watch.seconds(), 1),
        why=watch.why or "all updates were made",
        pairs=config.sampling.pairs,
    )
    record.finish("learned", asdict(learned))
    say(f"training ended after {learned.step:,} of {steps:,} updates: {learned.why}")
    return learned


def training_config(sets: Parts, settings: AdaptSettings, steps: int, **tables: Any) -> TrainingConfig:
    """The run: the base's own loss and augmentation, a low rate, and the base as a teacher of its own rows."""
    before = read_card(settings.model).training
    own = {name: before[name] for name in ("loss", "augmentation") if isinstance(before.get(name), dict)}
    own["augmentation"] = {**own.get("augmentation", {}), "zoom_octaves": 0.0}  # the patches are cut as for matching
    points = paired_points(sets["training"])
    if settings.mix:  # half of the pairs come from there
        points = min(points, 2 * sum(paired_points(open_patch_set(place)) for place in settings.mix))
    values: dict[str, Any] = {
        **own,
        "seed": settings.seed,
        "start": {"weights": settings.model, "layers": settings.layers},
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
        values["teacher"] = {"weights": [settings.model], "rows": settings.remember, "pairs": 1.0}
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
            self.judge(line.step, line.validation["map"])
        done = line.step - self.first
        planned = self.seconds() / done * (self.steps - line.step) if done else self.limit
        minutes, seconds = divmod(int(max(0.0, min(planned, self.limit - self.seconds()))), 60)
        self.say(f"step {line.step}/{line.steps}  {score}  {minutes}:{seconds:02d} left")

    def judge(self, step: int, score: float) -> None:
        """A validation. That before training does not count: first updates may lose what later ones regain."""
        if step == 0:
            return
        self.best, self.since = max(self.best, score), 0 if score > self.best else self.since + 1
        if self.since >= PATIENCE:
            self.why = NO_BETTER

    def go_on(self, run: Path, step: int) -> None:
        """Take in the validations of a run that goes on after this update, and the share of the time that it took."""
        for entry in _validations(run):
            if entry["step"] <= step:
                self.judge(int(entry["step"]), float(entry["map"]))
        self.before = self.limit * step / self.steps
        self.limit -= self.before

    def must_stop(self) -> bool:
        """True if the time is over, or validation no longer improves."""
        if not self.why and self.seconds() > self.limit:
            self.why = TIME_OVER
        return bool(self.why)


def _speed(sets: Parts, folder: Path, settings: AdaptSettings, device: str) -> float | None:
    """Pairs per second in a short trial; None if the process was asked to end."""
    trial, speeds = folder / "trial", []
    shutil.rmtree(trial, ignore_errors=True)
    count = TRIAL if device == "cpu" else TRIAL_ON_GPU
    data = {"train": [str(sets["training"].folder)], "mix": list(settings.mix)}
    config = training_config(sets, settings, count, data=data, loop={"log_every": count // 2})
    outcome = train(config, trial, device=device, report=lambda line: speeds.append(line.patches_per_second))
    shutil.rmtree(trial, ignore_errors=True)
    return speeds[-1] / 2 if outcome.is_finished else None


def worthwhile_minutes(pairs_per_second: float, pairs: int, trial: float) -> float:
    """MINUTES, or as many more as the trial's seconds and ENOUGH updates need; refuses more than MOST_MINUTES."""
    minutes = _minutes_of(trial + ENOUGH * pairs / pairs_per_second / SHARE)
    if minutes > MOST_MINUTES:
        raise ArgumentError(
            f"{ENOUGH} updates, fewer than which tell little, would take {minutes} minutes here: use a GPU, or the"
            f" same command with --minutes {minutes}"
        )
    return max(MINUTES, float(minutes))


def _minutes_of(seconds: float) -> int:
    return 5 * math.ceil(seconds / 300)


def planned_updates(pairs_per_second: float, pairs: int, left: float) -> int:
    """How many updates of so many pairs to make in the seconds that are left."""
    return max(int(min(SHARE * left * pairs_per_second, MAX_PAIRS) / pairs), MIN_UPDATES)


def _validations(run: Path) -> list[dict[str, Any]]:
    path = run / LOG
    return [entry for entry in read_log(path) if entry.get("event") == "validation"] if path.exists() else []
