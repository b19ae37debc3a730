"""Work for a pool to do in tests, importable by its workers."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from matchkernel.errors import ArgumentError
from matchkernel.storage.pool import Work


@dataclass(frozen=True)
class Squares:
    """Squares numbers, except those for which the process dies or an error is raised."""

    folder: Path | None = None  # counts the calls
    killed: tuple[int, ...] = ()  # the process is killed
    killed_once: tuple[int, ...] = ()
    fails: tuple[int, ...] = ()  # an error that is not ours
    refused: tuple[int, ...] = ()  # an error of ours
    seconds: float = 0.0
    weights: bytes = field(default=b"", repr=False)
    start: str = ""  # how starting fails

    @property
    def work(self):
        return Work(self.open, memory=10**8)

    def open(self, gpu):
        if self.start == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.start:
            raise ArgumentError(self.start)
        return {"weights": len(self.weights)}, self.run

    def run(self, items):
        return [self.square(number) for number in items]

    def square(self, number):
        time.sleep(self.seconds)
        if self.folder is not None:
            with (self.folder / f"{number}.calls").open("a") as file:
                file.write(f"{os.getpid()}\n")
        if number in self.killed or (number in self.killed_once and self.is_first(number)):
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.fails:
            raise OverflowError("too large")
        if number in self.refused:
            raise ArgumentError(f"{number} is refused")
        return number * number

    def is_first(self, number):
        return len((self.folder / f"{number}.calls").read_text().split()) == 1
