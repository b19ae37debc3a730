"""A describer that some photos kill, importable by workers."""

import os
import signal
from dataclasses import dataclass, replace

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
