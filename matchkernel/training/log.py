"""The log of a run: one JSON object per line, optional TensorBoard events, and the numbers of a line."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.extras import need
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing

LOG = "log.jsonl"
SCORES = {"fpr95": "FPR@95", "map": "mAP"}  # of a validation, as they are shown


@dataclass(frozen=True)
class LogLine:
    """What a run reports at regular intervals."""

    step: int
    steps: int
    loss: float = math.nan  # mean since the last line
    rate: float = math.nan
    patches_per_second: float = math.nan
    validation: dict[str, float] | None = None  # scores of a validation, reported without loss, rate and speed

    def __str__(self) -> str:
        """The line as `matchkernel train` shows it."""
        if self.validation is not None:
            measured = ", ".join(f"{SCORES.get(name, name)} {value:.4f}" for name, value in self.validation.items())
            return f"step {self.step}/{self.steps}  validation: {measured}"
        facts = f"loss {self.loss:.4f}  rate {self.rate:.4g}  {self.patches_per_second:,.0f} patches/s"
        return f"step {self.step}/{self.steps}  {facts}"


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The entries of a log; a truncated last line is ignored, any other line that is not an entry is refused."""
    entries = []
    lines = read_small_text(path, LONG_TEXT, what="a training log", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise FileError(f"{path}, line {number}: not an entry of a training log (log.jsonl of a run)")
        entries.append(entry)
    return entries


class Log:
    """Append entries to <folder>/log.jsonl, flushed at once; entries of a resumed run after `step` are dropped."""

    def __init__(self, folder: Path, step: int, *, tensorboard: bool = False) -> None:
        self.path = folder / LOG
        kept = [entry for entry in read_log(self.path) if entry["step"] <= step] if self.path.exists() and step else []
        with replacing(self.path) as part:
            part.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        self.board: Any = None
        if tensorboard:
            need("tensorboard", "tensorboard", "loop.tensorboard")
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def write(self, step: int, event: str, **values: Any) -> None:
        """Add an entry."""
        try:
            self.file.write(json.dumps({"step": step, "event": event, **values}) + "\n")
            self.file.flush()
        except OSError as error:
            raise WriteError(f"{self.path}: could not be written ({error.strerror}); resume with --resume") from None
        for name, value in values.items():
            if self.board is not None and isinstance(value, float):
                self.board.add_scalar(f"{event}/{name}", value, step)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # write has already reported a full disk
            self.file.close()
        if self.board is not None:
            self.board.close()


class Meter:
    """Mean loss and speed between lines of the log.

    Args:
        monitor: (2,) float64 on the device: sum of all losses, and the first step whose loss was not finite, else 0.
        patches: per step.
        fail: called with the first step whose loss was not finite; raises.
    """

    def __init__(self, monitor: Tensor, patches: int, fail: Callable[[int], None]) -> None:
        self.monitor, self.patches, self.fail = monitor, patches, fail
        self._logged = (0, 0.0)  # step and sum of losses of the last line
        self._since: tuple[int, float] | None = None  # step and time since which the speed is measured
        self._paused = 0.0  # seconds since then that were not training

    def resume(self, step: int, loss_sum: float) -> None:
        """Continue after a checkpoint."""
        self.monitor[0] = loss_sum
        self._logged = (step, loss_sum)

    def count(self, step: int) -> None:
        """Note that a step was queued; the speed is measured from the end of the first one, which is slow."""
        if self._since is None:
            self.settle()
            self._since, self._paused = (step, time.perf_counter()), 0.0
        elif self.monitor.device.type == "cpu":
            self.settle()

    def settle(self) -> float:
        """Wait for the device, and fail unless every loss up to here is finite; returns the sum of the losses."""
        total, first_bad = self.monitor.tolist()
        if first_bad:
            self.fail(int(first_bad))
        return float(total)

    def read(self, step: int) -> tuple[float, float]:
        """Mean loss and patches per second since the last call."""
        assert self._since is not None
        total, now = self.settle(), time.perf_counter()
        (last_step, last_total), (first, start) = self._logged, self._since
        steps, seconds = step - first, now - start - self._paused
        self._logged, self._since, self._paused = (step, total), (step, now), 0.0
        speed = self.patches * steps / seconds if steps and seconds > 0 else 0.0
        return (total - last_total) / (step - last_step), speed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block from the measured speed."""
        self.settle()  # the device is idle now, so the host's clock measures the block
        start = time.perf_counter()
        yield
        self._paused += time.perf_counter() - start
