"""The state of a training run: the model, its optimiser, and how they are updated, saved, restored and validated."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.data.patch_set import PatchSet, training_entries
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import save
from matchkernel.runtime.weights import Card
from matchkernel.storage.tensors import first_not_finite
from matchkernel.training.checkpoint import (
    BEST,
    FINAL,
    Checkpoint,
    check_same_run,
    checkpoint_to_resume,
    collect,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Batch
from matchkernel.training.log import Log, LogLine, Meter
from matchkernel.training.network import can_fuse, is_half_precision, prepare_for_training
from matchkernel.training.optimizer import Updater
from matchkernel.training.sets import TrainingSet, identity
from matchkernel.training.start import fix_layers, start_from
from matchkernel.training.step import Update
from matchkernel.training.teacher import open_teacher
from matchkernel.training.validation import is_better, validate

RESIDENT_SHARE = 0.5  # of the free GPU memory


class TrainingState:
    """A model being trained, with everything that must survive a stop.

    Args:
        config: the run.
        folder: where it is kept.
        data: what it learns from.
        validation: sets to measure it on; may be empty.
        team: the processes.
        device: where it computes.
        report: called at every line of the log.

    Attributes:
        step: updates done.
        best: the best validation so far and its step; empty before the first.
        source: (K, S, S) uint8, all patches on the device, or None if every batch contains its own.
        log: None except in the first process.
    """

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        data: TrainingSet,
        validation: Sequence[PatchSet],
        team: Team,
        device: torch.device,
        report: Callable[[LogLine], object] | None = None,
    ) -> None:
        self.config, self.folder, self.data, self.validation = config, folder, data, validation
        self.team, self.device, self.report = team, device, report
        loop = config.loop
        self.is_half = is_half_precision(loop.precision, device)
        self.is_captured = device.type == "cuda" and team.size == 1 and loop.compile != "no"
        if loop.compile == "yes" and not self.is_captured:
            raise ArgumentError("loop.compile = 'yes' needs a GPU and a single process; 'auto' compiles where it can")
        self.model = Descriptor(config.model, torch.Generator().manual_seed(config.seed)).to(device)
        groups = 2 if loop.statistics == "separate" else 1
        layers = "all" if config.start is None else config.start.layers
        fuse = self.is_captured and layers == "all" and can_fuse(config.model, device, is_half=self.is_half)
        self.start = None if config.start is None else start_from(config.start.weights, self.model)
        prepare_for_training(self.model, groups=groups, fuse=fuse)
        fix_layers(self.model, layers)
        learned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.updater = Updater(learned, config.optimizer)
        self.monitor = torch.zeros(2, dtype=torch.float64, device=device)  # sum of losses, first step not finite
        self.meter = Meter(self.monitor, 2 * config.sampling.pairs, self._fail)
        self.source = (
            torch.from_numpy(np.concatenate([part.patches for part in data.sets])).to(device)
            if self._is_resident()
            else None
        )
        self.teacher = None
        if config.teacher is not None:
            in_half = self.is_half and device.type == "cuda"
            self.teacher = open_teacher(
                config.teacher, config.model, data, device, in_half=in_half, turns=config.start is None
            )
        sources = [source.digest for source in (self.teacher, self.start) if source is not None]
        self.identity = " ".join([identity(data.sets), *sources])
        self.updates: dict[int, Update] = {}  # by number of pairs
        self.log: Log | None = None
        self.step, self.saved_step = 0, -1
        self.best: dict[str, float] = {}

    def update(self, batch: Batch) -> None:
        """Do one update; write a line of the log when it is due."""
        pairs = batch.index.shape[1]
        if pairs not in self.updates:
            self.updates[pairs] = Update(
                self.model,
                self.updater,
                self.config,
                self.source,
                self.team,
                self.monitor,
                self.teacher,
                is_half=self.is_half,
                is_captured=self.is_captured,
            )
            with self.meter.paused():
                self.updates[pairs].capture(batch)
        self.updates[pairs](batch)
        self.step = batch.step
        self.meter.count(self.step)
        if self.step % self.config.loop.log_every == 0:
            loss, speed = self.meter.read(self.step)
            self.write_log("training", loss=loss, rate=batch.rate, patches_per_second=speed)
            self._report(LogLine(self.step, self.config.sampling.steps, loss, batch.rate, speed))

    def validate(self) -> None:
        """Measure the model, log it, and keep its weights if they are the best so far; if that fails, save first."""
        with self.meter.paused():
            if not self.validation or not self.team.is_first:
                return
            start = time.perf_counter()
            try:
                result = validate(self.model, self.validation)
                if is_better(result, self.best, self.config.loop.select_by):
                    save(self.model, self.folder / BEST, self._card(result))
                    self.best = {**result, "step": float(self.step)}
            except Exception:
                self.save()
                raise
            self.write_log("validation", **result, seconds=time.perf_counter() - start)
            self._report(LogLine(self.step, self.config.sampling.steps, validation=result))

    def validate_start(self) -> None:
        """Measure the weights that a new run starts from, if it does not start at random."""
        if self.start is not None and self.step == 0:
            self.save()  # first, or a run killed now could neither be resumed nor begun again
            self.validate()

    def save(self) -> None:
        """Write a checkpoint of this step, unless it exists; never with values that are not finite."""
        with self.meter.paused():
            if self.step == self.saved_step or not self.team.is_first:
                return
            checkpoint = Checkpoint(
                self.step,
                collect(self.model, self.updater),
                self.config.binding(),
                self.identity,
                identity(self.validation),
                self.best,
                self.monitor.tolist()[0],
            )
            if first_not_finite(checkpoint.tensors):
                self._fail(self.step)
            write_checkpoint(self.folder, checkpoint)
            self.saved_step = self.step

    def resume(self) -> None:
        """Continue from the folder's last checkpoint."""
        path = checkpoint_to_resume(self.folder)
        checkpoint = read_checkpoint(path)
        check_same_run(checkpoint, self.config, self.identity, path)
        restore(checkpoint, self.model, self.updater, path)
        self.step = self.saved_step = checkpoint.step
        self.best = checkpoint.best if checkpoint.validation == identity(self.validation) else {}
        self.meter.resume(self.step, checkpoint.loss_sum)

    def write_final_weights(self) -> None:
        """Write the weights after the last update."""
        if self.team.is_first:
            save(self.model, self.folder / FINAL, self._card({}))

    def write_log(self, event: str, **values: Any) -> None:
        """Add an entry for this step to the log, if there is one."""
        if self.log is not None:
            self.log.write(self.step, event, **values)

    def _report(self, line: LogLine) -> None:
        if self.report is not None and self.team.is_first:
            self.report(line)

    def _is_resident(self) -> bool:
        if self.config.loop.resident != "auto":
            return self.config.loop.resident == "yes"
        if self.device.type != "cuda":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return len(self.data) * self.data.side**2 < RESIDENT_SHARE * free

    def _fail(self, step: int) -> None:
        bad = first_not_finite(dict(self.model.state_dict()))
        rate = self.config.optimizer.rate
        cause = f"nor is {bad}: is optimizer.rate = {rate:g} too high?" if bad else "the weights still are"
        kept = f"the checkpoint of step {self.saved_step} is kept" if self.saved_step > 0 else "nothing was saved yet"
        raise WorkError(f"step {step}: the loss is no longer finite ({cause}); {kept}")

    def _card(self, result: dict[str, float]) -> Card:
        own = [entry for part in self.data.sets for entry in training_entries(part)]
        taught = () if self.teacher is None else self.teacher.training_sets  # the model has learned from these too
        unknown = [name for source in (self.teacher, self.start) if source is not None for name in source.unknown]
        card = Card(
            training=self.config.to_dict(),
            trained_on=", ".join(part.folder.resolve().name for part in self.data.sets),
            training_sets=tuple(dict.fromkeys([*own, *taught])),
            unknown_from=", ".join(dict.fromkeys(unknown)) or None,
            step=self.step,
            validation=result,
            other={} if self.teacher is None else {"teacher_weights": self.teacher.described},
        )
        return card if self.start is None else self.start.added_to(card)
