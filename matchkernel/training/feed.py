"""Batches prepared on the host while the device works: which patches, how each is warped, at what rate."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchkernel.training.augment import draw_light, draw_warps
from matchkernel.training.config import TrainingConfig
from matchkernel.training.data import TrainingSet
from matchkernel.training.distributed import Team
from matchkernel.training.sampler import PairSampler, draw_size
from matchkernel.training.schedule import rate_at

AHEAD, WORKERS = 8, 2  # batches made ahead; threads that make them


@dataclass(frozen=True)
class Batch:
    """What one update needs. B is this process's share of the pairs."""

    step: int
    rate: float
    size: int  # N, side of the patches the model sees
    index: Tensor  # (2, B) int64 into the source
    warps: Tensor  # (2, B, 2, 3)
    light: Tensor | None  # (2, B, 8)
    patches: Tensor | None  # (2 B, S, S) uint8, the source, where the set is not on the device


class Feed:
    """Makes the batch of any step.

    Args:
        config: the run.
        data: the training set.
        team: whose share of each batch this process takes.
        streams: put the patches themselves into the batches.
        pins: make the tensors fit for asynchronous copies to a GPU.
    """

    def __init__(self, config: TrainingConfig, data: TrainingSet, team: Team, *, streams: bool, pins: bool) -> None:
        self.config, self.data, self.team = config, data, team
        self.streams, self.pins = streams, pins
        self.sampler = PairSampler(data.labels, config.sampling.pairs, config.seed)
        for pairs in config.sampling.sizes:
            team.share(pairs)  # refused now rather than at the end of an epoch

    def batch(self, step: int) -> Batch:
        """The batch of update `step`: the same whoever asks, whenever."""
        config, sampling = self.config, self.config.sampling
        pairs = sampling.pairs_at(step)
        share = self.team.share(pairs)
        index = self.sampler.draw(step, pairs)[:, share]
        warps = draw_warps(config.augmentation, config.seed, step, pairs)[:, share]
        light = draw_light(config.augmentation, config.seed, step, pairs) if config.augmentation.has_light else None
        patches = None
        if self.streams:
            patches = self._tensor(self.data.gather(index.ravel()))
            index = np.arange(index.size).reshape(index.shape)
        return Batch(
            step,
            rate_at(step, config.optimizer, sampling.steps, sampling.pairs, sampling.epoch_pairs),
            draw_size(sampling.patch_sizes or (config.model.patch_size,), config.seed, step),
            self._tensor(index),
            self._tensor(warps),
            None if light is None else self._tensor(light[:, share]),
            patches,
        )

    @contextmanager
    def running(self, first: int, last: int) -> Iterator[Iterator[Batch]]:
        """The batches of updates first..last, made ahead in threads."""
        with ThreadPoolExecutor(WORKERS, "matchkernel-feed") as pool:
            waiting = deque(pool.submit(self.batch, step) for step in range(first, min(first + AHEAD, last + 1)))

            def taken() -> Iterator[Batch]:
                for step in range(first, last + 1):
                    batch = waiting.popleft().result()
                    if step + AHEAD <= last:
                        waiting.append(pool.submit(self.batch, step + AHEAD))
                    yield batch

            try:
                yield taken()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if self.pins else tensor
