"""Random numbers that depend on the seed and the step alone, so that a resumed run and every process draw the same."""

import numpy as np

CLASSES, WARPS, LIGHT, NETWORK, SIZES = range(5)  # what the numbers are for: streams that never meet


def generator_at(seed: int, step: int, purpose: int) -> np.random.Generator:
    """The generator of one step for one purpose; counter-based, so that no step needs the one before."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, step], np.uint64), counter=[0, 0, 0, purpose]))
