"""A describer that some photos kill, and matchers that a pair kills, importable by workers."""

import os
import signal
from dataclasses import dataclass, replace
from functools import partial

from matchkernel.collection import match
from matchkernel.photos.extract import Describer
from matchkernel.storage.pool import LocalWorkers


def is_poisoned(gray):
    """Whether a photo has the pattern that kills whoever describes it."""
    return gray[0, :4].tolist() == [13, 66, 6, 99]


class PoisonedDescriber(Describer):
    """A real describer, but a photo with a certain pattern kills the process, as a decoder with a bug might."""

    def compute(self, image, *arguments):
        if is_poisoned(image):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().compute(image, *arguments)


def open_poisoned(open_matcher, poison, gpu):
    """Open the work of a matcher, whose process dies at a certain pair."""
    facts, run = open_matcher(gpu)

    def run_or_die(items):
        if any({pair.a, pair.b} == set(poison) for pair in items):
            os.kill(os.getpid(), signal.SIGSEGV)
        return run(items)

    return facts, run_or_die


@dataclass(frozen=True)
class WorkersThatAPairKills:
    """Real processes, of which the one that matches this pair dies."""

    workers: LocalWorkers
    poison: tuple[str, str]

    def pool(self, work, tasks):
        if work.memory == match.MEMORY:  # the work is to match
            work = replace(work, open=partial(open_poisoned, work.open, self.poison))
        return self.workers.pool(work, tasks)
