"""The state of one training run: what it holds, saves, validates and reports."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import save
from matchkernel.storage.tensors import first_not_finite
from matchkernel.training.average import averaged, running_statistics
from matchkernel.training.checkpoint import (
    Checkpoint,
    check_same_run,
    collect,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from matchkernel.training.config import TrainingConfig
from matchkernel.training.data import TrainingSet, identity
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Batch
from matchkernel.training.log import Log
from matchkernel.training.network import can_fuse, prepare
from matchkernel.training.optimizer import Updater
from matchkernel.training.size_statistics import with_size_statistics
from matchkernel.training.step import Update
from matchkernel.training.validation import is_better, validate

FINAL, BEST = "final.safetensors", "best.safetensors"
RESIDENT_SHARE = 0.5  # of the free GPU memory
Mark = torch.cuda.Event | float  # a moment: of the device, or seconds on a CPU


@dataclass(frozen=True)
class Report:
    """What a run says at times."""

    step: int
    steps: int
    loss: float = math.nan  # mean since the last report
    rate: float = math.nan
    patches_per_second: float = math.nan
    validation: dict[str, float] | None = None  # instead of the others, where a validation is reported


class Run:
    """A model being trained, with everything that must survive a stop.

    Args:
        config: the run.
        folder: where it is kept.
        data: what it learns from.
        validation: what it is measured on, may be empty.
        team: the processes.
        device: where it computes.
        log: its log, in the first process.
        report: called at every line of the log.
    """

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        data: TrainingSet,
        validation: Sequence[PatchSet],
        team: Team,
        device: torch.device,
        report: Callable[[Report], object] | None = None,
    ) -> None:
        self.config, self.folder, self.data, self.validation = config, folder, data, validation
        self.team, self.device, self.report = team, device, report
        loop = config.loop
        self.is_half = loop.precision == "bf16" or (loop.precision == "auto" and device.type == "cuda")
        self.is_captured = device.type == "cuda" and team.size == 1 and loop.compile != "no"
        self.model = Descriptor(config.model, torch.Generator().manual_seed(config.seed)).to(device)
        groups = 2 if loop.statistics == "separate" else 1
        if loop.compile == "yes" and not self.is_captured:
            raise ArgumentError("loop.compile = 'yes' needs a GPU and a single process; 'auto' compiles where it can")
        shared = loop.sync_batch_norm and team.size > 1
        fuse = can_fuse(device, is_half=self.is_half) and not shared and self.is_captured
        prepare(self.model, groups=groups, synchronize=shared, fuse=fuse)
        self.updater = Updater(list(self.model.parameters()), config.optimizer, running_statistics(self.model))
        self.monitor = torch.zeros(2, dtype=torch.float64, device=device)  # sum of losses, first step not finite
        self.streams = not self._is_resident()
        self.source = None if self.streams else torch.from_numpy(data.gather_all()).to(device)
        self.updates: dict[tuple[int, int], Update] = {}  # by number of pairs and side of the patches
        self.log: Log | None = None
        self.step, self.saved_step = 0, 0
        self.best: dict[str, float] = {}
        self._logged = (0, 0.0)  # step and sum of losses of the last line of the log
        self._clock: tuple[int, Mark] | None = None  # step and moment since which the speed is measured
        self._paused = 0.0  # seconds of it that were not training
        self._pending: tuple[int, float, Tensor, Mark] | None = None

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of this run."""
        checkpoint = read_checkpoint(path)
        check_same_run(checkpoint, self.config, self.data.identity, path)
        restore(checkpoint, self.model, self.updater, path)
        same_sets = checkpoint.validation == identity(self.validation)
        self.step = self.saved_step = checkpoint.step
        self.best = checkpoint.best if same_sets else {}
        self.monitor[0] = checkpoint.loss_sum
        self._logged = (self.step, checkpoint.loss_sum)

    def update(self, batch: Batch) -> None:
        """Do one update; a line of the log when it is time."""
        kind = batch.index.shape[1], batch.size
        if kind not in self.updates:
            self.updates[kind] = Update(
                self.model,
                self.updater,
                self.config,
                self.source,
                self.team,
                self.monitor,
                is_half=self.is_half,
                is_captured=self.is_captured,
            )
            with self.clock_stopped():
                self.updates[kind].prepare(batch)
        self.updates[kind](batch)
        self.step = batch.step
        if self._clock is None:
            self._clock, self._paused = (self.step, self._mark()), 0.0  # after the first update, which is slow
        if self.device.type == "cpu" and float(self.monitor[1]):
            self.settle()
        if self.step % self.config.loop.log_every == 0:
            self._read_later(batch.rate)

    def settle(self) -> None:
        """Write the line of the log that waits, and make sure that all is finite up to here."""
        self._write_pending()
        self._check(self.monitor.tolist()[1])

    def checkpoint(self) -> None:
        """Save the run, unless it is saved; never a run whose numbers are not finite. Call with the clock stopped."""
        if self.step == self.saved_step or not self.team.is_first:
            return
        state = Checkpoint(
            self.step,
            collect(self.model, self.updater),
            self.config.binding(),
            self.data.identity,
            identity(self.validation),
            self.best,
            self.monitor.tolist()[0],
        )
        self._check_state(state.tensors)
        write_checkpoint(self.folder, state)
        self.saved_step = self.step

    def validate(self) -> None:
        """Measure the model, log it, and keep its weights if they are the best so far. Call with the clock stopped."""
        if not self.validation or not self.team.is_first:
            return
        start = time.perf_counter()
        model = self._ready()
        result = validate(model, self.validation)
        if is_better(result, self.best, self.config.loop.select_by):
            save(model, self.folder / BEST, self._card(result))
            self.best = {**result, "step": float(self.step)}
        if self.log is not None:
            self.log.write(self.step, "validation", **result, seconds=time.perf_counter() - start)
        if self.report is not None:
            self.report(Report(self.step, self.config.sampling.steps, validation=result))

    def finish(self) -> None:
        """Write the final weights."""
        if self.team.is_first:
            save(self._ready(), self.folder / FINAL, self._card({}))

    def _ready(self) -> Descriptor:
        """The model as it is validated and saved: averaged, and with statistics of every size."""
        model = averaged(self.model, self.updater)
        has_sizes = bool(self.config.sampling.patch_sizes)
        return with_size_statistics(model, self.config, self.data) if has_sizes else model

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Leave what is done meanwhile out of the measured speed."""
        self.settle()  # the device has nothing left to do: the host's clock is its own
        start = time.perf_counter()
        yield
        self._paused += time.perf_counter() - start

    def _is_resident(self) -> bool:
        if self.config.loop.resident != "auto":
            return self.config.loop.resident == "yes"
        if self.device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return len(self.data) * self.data.side**2 < RESIDENT_SHARE * free

    def _read_later(self, rate: float) -> None:
        """Ask for the monitor without waiting for it; what was asked for before has come by now."""
        self._write_pending()
        if self.device.type == "cuda":
            values = torch.empty(2, dtype=torch.float64, pin_memory=True).copy_(self.monitor, non_blocking=True)
        else:
            values = self.monitor.clone()
        self._pending = (self.step, rate, values, self._mark())
        if self.device.type != "cuda":
            self._write_pending()

    def _mark(self) -> Mark:
        """This moment of the device's work."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _speed(self, step: int, mark: Mark) -> float:
        """Patches a second since the clock was set; sets it anew."""
        assert self._clock is not None
        last_step, last = self._clock
        seconds = _seconds_between(last, mark)
        steps, seconds = step - last_step, seconds - self._paused
        self._clock, self._paused = (step, mark), 0.0
        return 2 * self.config.sampling.pairs * steps / seconds if steps and seconds > 0 else 0.0

    def _write_pending(self) -> None:
        if self._pending is None:
            return
        step, rate, values, mark = self._pending
        self._pending = None
        if isinstance(mark, torch.cuda.Event):
            mark.synchronize()
        total, first_bad = values.tolist()
        self._check(first_bad)
        last_step, last_total = self._logged
        self._logged = (step, total)
        speed = self._speed(step, mark)
        if self.team.is_first:
            loss = (total - last_total) / (step - last_step)
            line = Report(step, self.config.sampling.steps, loss, rate, speed)
            if self.log is not None:
                self.log.write(step, "training", loss=loss, rate=rate, patches_per_second=speed)
            if self.report is not None:
                self.report(line)

    def _check(self, first_bad: float) -> None:
        if first_bad:
            self._fail(int(first_bad))

    def _check_state(self, tensors: dict[str, Tensor]) -> None:
        if first_not_finite(tensors):
            self._fail(self.step)

    def _fail(self, step: int) -> None:
        bad = first_not_finite(dict(self.model.state_dict()))
        rate = self.config.optimizer.rate
        cause = f"{bad} is not either: is optimizer.rate = {rate:g} too high?" if bad else "the weights still are"
        kept = f"the checkpoint of step {self.saved_step} is kept" if self.saved_step else "nothing was saved yet"
        raise WorkError(f"step {step}: the loss is no longer finite ({cause}); {kept}")

    def _card(self, result: dict[str, float]) -> dict[str, str]:
        card = {
            "training": json.dumps(self.config.to_dict(), sort_keys=True),
            "trained_on": ", ".join(patch_set.folder.resolve().name for patch_set in self.data.sets),
            "training_sets": json.dumps([_named(patch_set) for patch_set in self.data.sets]),
            "step": str(self.step),
        }
        return {**card, "validation": json.dumps(result, sort_keys=True)} if result else card


def _named(patch_set: PatchSet) -> dict[str, str]:
    """A set by its name and by its patches, so that it is known again under another name."""
    name, hashes = patch_set.folder.resolve().name, patch_set.manifest["sha256"]
    return {"name": name, "patches_sha256": str(hashes.get("patches.npy"))}


def _seconds_between(start: Mark, end: Mark) -> float:
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return start.elapsed_time(end) / 1e3
    return float(end) - float(start)  # type: ignore[arg-type]
