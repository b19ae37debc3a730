"""Work for workers to do in tests, importable by them."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from matchkernel.errors import ArgumentError


@dataclass(frozen=True)
class Squares:
    """Squares numbers; numbers of the tables below are poisoned."""

    folder: Path | None = None  # counts the calls
    killed: tuple[int, ...] = ()  # the process is killed
    killed_once: tuple[int, ...] = ()
    fails: tuple[int, ...] = ()  # an error that is not ours
    refused: tuple[int, ...] = ()  # an error of ours
    seconds: float = 0.0
    weights: bytes = field(default=b"", repr=False)
    memory: int = 10**8
    uses_gpu: bool = False
    start: str = ""  # how starting fails

    def open(self, threads, gpu):
        if self.start == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.start:
            raise ArgumentError(self.start)
        return Squaring(self)

    def split(self, task):
        return [[number] for number in task]


class Squaring:
    def __init__(self, work):
        self.work = work
        self.facts = {"weights": len(work.weights)}

    def do(self, task):
        return [self.square(number) for number in task]

    def square(self, number):
        work = self.work
        time.sleep(work.seconds)
        if work.folder is not None:
            with (work.folder / f"{number}.calls").open("a") as file:
                file.write(f"{os.getpid()}\n")
        if number in work.killed or (number in work.killed_once and self.is_first(number)):
            os.kill(os.getpid(), signal.SIGKILL)
        if number in work.fails:
            raise OverflowError("too large")
        if number in work.refused:
            raise ArgumentError(f"{number} is refused")
        return number * number

    def is_first(self, number):
        return len((self.work.folder / f"{number}.calls").read_text().split()) == 1
