"""The batch of every step: which pairs, how each patch is changed, at what rate; prepared in threads.

Random numbers depend only on the seed and the step, so that a resumed run and every process draw the same.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import group_by_label
from matchkernel.errors import ArgumentError
from matchkernel.storage.work import in_threads
from matchkernel.training.augment import draw_photometric, draw_warps
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.optimizer import rate_at
from matchkernel.training.sets import TrainingSet

AHEAD, WORKERS = 8, 2  # batches prepared in advance; threads that prepare them
CLASSES, WARPS, PHOTOMETRIC, NETWORK = range(4)  # purposes of random numbers: independent streams


def generator_at(seed: int, step: int, purpose: int) -> np.random.Generator:
    """The generator for one purpose at one step; counter-based, so no step depends on the one before."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, step], np.uint64), counter=[0, 0, 0, purpose]))


class PairSampler:
    """Draw pairs of patches: points uniformly without repetition, two distinct patches of each [M22].

    Every point is equally likely, however many patches it has; points with one patch are left out.

    Args:
        labels: (K,) the point of each patch, any whole numbers.
        pairs: the largest batch that will be drawn.
        seed: of the draws.
    """

    def __init__(self, labels: np.ndarray, pairs: int, seed: int) -> None:
        self.seed = seed
        self.order, starts, sizes = group_by_label(labels)
        self.starts, self.sizes = starts[sizes > 1], sizes[sizes > 1]
        if not len(self.starts):
            raise ArgumentError(
                f"no point has two patches, so there are no pairs to learn from ({len(labels)} patches)"
            )
        if len(self.starts) < pairs:
            raise ArgumentError(
                f"a batch of {pairs} pairs needs {pairs} points with two or more patches, the set has"
                f" {len(self.starts)}; lower sampling.pairs"
            )

    def draw(self, step: int, pairs: int) -> np.ndarray:
        """(2, pairs) patch indices of update `step`: anchors and positives."""
        random = generator_at(self.seed, step, CLASSES)
        points = random.choice(len(self.starts), pairs, replace=False)
        start, size = self.starts[points], self.sizes[points]
        first = random.integers(size)
        second = (first + random.integers(1, size)) % size
        return self.order[np.stack([start + first, start + second])]


class MixedSampler:
    """Draw a share of every batch from mixed-in sets and the rest from the run's own, both as PairSampler does.

    Args:
        labels: (K,) the point of each patch: the run's own sets first, then the mixed-in ones.
        first: index of the first mixed-in patch.
        pairs: the largest batch that will be drawn.
        share: fraction of the pairs that comes from the mixed-in sets.
        seed: of the draws.
    """

    def __init__(self, labels: np.ndarray, first: int, pairs: int, share: float, seed: int) -> None:
        self.first, self.share = first, share
        mixed = self._mixed(pairs)
        self.own = PairSampler(labels[:first], pairs - mixed, seed)
        self.others = PairSampler(labels[first:], mixed, seed)

    def draw(self, step: int, pairs: int) -> np.ndarray:
        """(2, pairs) patch indices of update `step`: anchors and positives."""
        mixed = self._mixed(pairs)
        own, others = self.own.draw(step, pairs - mixed), self.others.draw(step, mixed)
        return np.concatenate([own, others + self.first], axis=1)

    def _mixed(self, pairs: int) -> int:
        return min(max(1, round(self.share * pairs)), pairs - 1)


@dataclass(frozen=True)
class Batch:
    """What one update needs. B is this process's share of the pairs."""

    step: int
    rate: float
    index: Tensor  # (2, B) int64 into the source
    warps: Tensor  # (2, B, 2, 3)
    photometric: Tensor | None  # (2, B, 7)
    patches: Tensor | None  # (2 B, S, S) uint8, the source, where the set is not on the device


class Feed:
    """Makes the batch of any step.

    Args:
        config: the run.
        data: the training set.
        team: whose share of each batch this process takes.
        streams: put the patches themselves into the batches, for a set that is not on the device.
        pins: pin the tensors' memory, for asynchronous copies to a GPU.
    """

    def __init__(
        self, config: TrainingConfig, data: TrainingSet, team: Team, *, streams: bool = False, pins: bool = False
    ) -> None:
        self.config, self.data, self.team = config, data, team
        self.streams, self.pins = streams, pins
        labels, sampling = data.labels, config.sampling
        self.sampler: PairSampler | MixedSampler
        if config.data.mix:
            self.sampler = MixedSampler(labels, data.first_mixed, sampling.pairs, sampling.mixed, config.seed)
        else:
            self.sampler = PairSampler(labels, sampling.pairs, config.seed)
        for step in (1, 0):  # an ordinary batch, and the last of an epoch: refused now rather than there
            team.share(sampling.pairs_at(step))

    def batch(self, step: int) -> Batch:
        """The batch of update `step`; depends on nothing else."""
        config, sampling = self.config, self.config.sampling
        pairs = sampling.pairs_at(step)
        share = self.team.share(pairs)
        index = self.sampler.draw(step, pairs)[:, share]
        settings = config.augmentation
        warps = draw_warps(settings, generator_at(config.seed, step, WARPS), pairs)[:, share]
        photometric = None
        if settings.is_photometric:
            drawn = draw_photometric(settings, generator_at(config.seed, step, PHOTOMETRIC), pairs)
            photometric = self._tensor(drawn[:, share])
        patches = None
        if self.streams:
            patches = self._tensor(self.data.gather(index.ravel()))
            index = np.arange(index.size).reshape(index.shape)
        return Batch(
            step,
            rate_at(step, config.optimizer, sampling.steps, sampling.pairs, sampling.epoch_pairs),
            self._tensor(index),
            self._tensor(warps),
            photometric,
            patches,
        )

    def running(self, first: int, last: int) -> AbstractContextManager[Iterator[Batch]]:
        """The batches of updates first..last, prepared in advance in threads."""
        return closing(in_threads(self.batch, range(first, last + 1), WORKERS, AHEAD))

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if self.pins else tensor
