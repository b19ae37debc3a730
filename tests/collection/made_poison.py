"""A describer that some photos kill, and matchers that a pair kills, importable by workers."""

import os
import signal
from dataclasses import dataclass, replace

from matchkernel.collection.local_workers import LocalWorkers
from matchkernel.collection.match_shards import Matcher, MatchWork
from matchkernel.photos.describers import Recipe


def is_poisoned(gray):
    """Whether a photo has the pattern that kills whoever describes it."""
    return gray[0, :4].tolist() == [13, 66, 6, 99]


@dataclass(frozen=True)
class PoisonedRecipe(Recipe):
    """A real describer, but a photo with a certain pattern kills the process, as a decoder with a bug might."""

    def open(self):
        made = super().open()

        def compute(gray, *arguments, **options):
            if is_poisoned(gray):
                os.kill(os.getpid(), signal.SIGSEGV)
            return made.compute(gray, *arguments, **options)

        return replace(made, compute=compute)


class _PoisonedMatcher(Matcher):
    def do(self, task):
        if any({pair.a, pair.b} == set(self.work.poison) for pair in task):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().do(task)


@dataclass(frozen=True)
class _PoisonedMatchWork(MatchWork):
    poison: tuple[str, ...] = ()

    def open(self, threads, gpu):
        return _PoisonedMatcher(self, super().open(threads, gpu).device)


@dataclass(frozen=True)
class WorkersThatAPairKills:
    """Real processes, but whoever matches this pair dies."""

    workers: LocalWorkers
    poison: tuple[str, str]

    def opened(self, work, tasks):
        if isinstance(work, MatchWork):
            work = _PoisonedMatchWork(**vars(work), poison=self.poison)
        return self.workers.opened(work, tasks)
