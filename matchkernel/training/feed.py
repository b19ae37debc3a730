"""The batch of every step: which pairs, how each patch is changed, at what rate; prepared in threads.

Random numbers depend only on the seed and the step, so that a resumed run and every process draw the same.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import group_by_label
from matchkernel.errors import ArgumentError
from matchkernel.training.augment import draw_photometric, draw_warps
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.optimizer import rate_at
from matchkernel.training.sets import TrainingSet

AHEAD, WORKERS = 8, 2  # batches prepared in advance; threads that prepare them
SPACING = 6  # pixels: side of a cell of a photo that holds at most one point of a batch
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


class PhotoPairSampler:
    """Draw pairs in groups: points seen by the same two photos, anchors from one photo, positives from the other.

    A group starts with a point drawn as PairSampler does, and two of its photos. No point is drawn twice in a batch,
    and points of a photo keep a distance, so that one place found at two sizes or orientations is not a negative.

    Args:
        labels: (K,) the point of each patch.
        photos: (K,) the photo of each patch.
        centers: (K, 2) its place there, in pixels.
        pairs: the largest batch that will be drawn.
        per_photo: pairs in a group.
        seed: of the draws.
    """

    def __init__(
        self, labels: np.ndarray, photos: np.ndarray, centers: np.ndarray, pairs: int, per_photo: int, seed: int
    ) -> None:
        self.seed, self.per_photo = seed, per_photo
        entries = _pairs_of_points(labels)
        entries = entries[photos[entries[:, 0]] != photos[entries[:, 1]]]
        is_swapped = photos[entries[:, 0]] > photos[entries[:, 1]]
        entries[is_swapped] = entries[is_swapped, ::-1]
        _, both = np.unique(photos[entries], axis=0, return_inverse=True)
        by_photos = group_by_label(both.ravel())
        self.entries = entries[by_photos.order]  # (E, 2) patches of one point; those of the same two photos together
        self.group = np.repeat(np.arange(len(by_photos.sizes)), by_photos.sizes)  # (E,) their two photos
        self.starts, self.sizes = by_photos.starts, by_photos.sizes
        self.points = group_by_label(labels[self.entries[:, 0]])
        self.labels = labels
        cells = (centers // SPACING).astype(np.int64) + 2**20
        self.cells = (photos.astype(np.int64) * 2**22 + cells[:, 0]) * 2**22 + cells[:, 1]  # (K,) one number per place
        if len(self.points.sizes) < pairs:
            raise ArgumentError(
                f"a batch of {pairs} pairs needs {pairs} points seen in two photos, the set has"
                f" {len(self.points.sizes)}; lower sampling.pairs"
            )

    def draw(self, step: int, pairs: int) -> np.ndarray:
        """(2, pairs) patch indices of update `step`: anchors and positives."""
        random = generator_at(self.seed, step, CLASSES)
        seeds = random.permutation(len(self.points.sizes))
        first = self.points.order[self.points.starts[seeds] + random.integers(self.points.sizes[seeds])]
        count = min(len(seeds), 3 * pairs // self.per_photo + 1)
        group = self.group[first[:count]]
        shape = (count, self.per_photo - 1)
        others = self.starts[group][:, None] + random.integers(self.sizes[group][:, None], size=shape)
        rows = self.entries[np.concatenate([first[:count, None], others], 1)]  # (count, per_photo, 2)
        is_swapped = random.random(count) < 0.5
        rows[is_swapped] = rows[is_swapped, :, ::-1]
        rows = rows.reshape(-1, 2)
        for keys in (self.labels[rows[:, 0]], self.cells[rows[:, 0]], self.cells[rows[:, 1]]):
            rows[_repeats(keys)] = -1
        rows = rows[(rows >= 0).all(1)]
        if len(rows) < pairs:  # a small set: fill up with points on their own
            alone = self.entries[first]
            alone = alone[~np.isin(self.labels[alone[:, 0]], self.labels[rows[:, 0]])]
            rows = np.concatenate([rows, alone])
        return rows[:pairs].T


class MixedSampler:
    """Draw a share of every batch from other sets, the rest from one's own; both as PairSampler does.

    Args:
        labels: (K,) the point of each patch: one's own, then the others.
        first: index of the first patch of the others.
        pairs: the largest batch that will be drawn.
        share: of the pairs that come from the others.
        seed: of the draws.
    """

    def __init__(self, labels: np.ndarray, first: int, pairs: int, share: float, seed: int) -> None:
        self.first, self.share = first, share
        mixed = self._mixed(pairs)
        self.own, self.others = (
            PairSampler(labels[:first], pairs - mixed, seed),
            PairSampler(labels[first:], mixed, seed),
        )

    def draw(self, step: int, pairs: int) -> np.ndarray:
        """(2, pairs) patch indices of update `step`: anchors and positives."""
        mixed = self._mixed(pairs)
        own, others = self.own.draw(step, pairs - mixed), self.others.draw(step, mixed)
        return np.concatenate([own, others + self.first], axis=1)

    def _mixed(self, pairs: int) -> int:
        return min(max(1, round(self.share * pairs)), pairs - 1)


def _repeats(keys: np.ndarray) -> np.ndarray:
    """(M,) whether a key has occurred before."""
    repeats = np.ones(len(keys), bool)
    repeats[np.unique(keys, return_index=True)[1]] = False
    return repeats


def _pairs_of_points(labels: np.ndarray) -> np.ndarray:
    """(E, 2) all pairs of patches with the same label."""
    groups, parts = group_by_label(labels), [np.empty((0, 2), np.int64)]
    for size in np.unique(groups.sizes[groups.sizes > 1]):
        members = groups.order[groups.starts[groups.sizes == size][:, None] + np.arange(size)]
        one, two = np.triu_indices(size, 1)
        parts.append(np.stack([members[:, one], members[:, two]], -1).reshape(-1, 2))
    return np.concatenate(parts)


def open_sampler(config: TrainingConfig, data: TrainingSet) -> PairSampler | PhotoPairSampler | MixedSampler:
    """The sampler that a run asks for."""
    sampling = config.sampling
    if config.data.mix:
        if sampling.per_photo > 1:
            raise ArgumentError("sampling.per_photo and data.mix cannot be combined")
        return MixedSampler(data.labels, data.first_mixed, sampling.pairs, sampling.mixed, config.seed)
    if sampling.per_photo == 1:
        return PairSampler(data.labels, sampling.pairs, config.seed)
    photos, centers = data.photos()
    return PhotoPairSampler(data.labels, photos, centers, sampling.pairs, sampling.per_photo, config.seed)


@dataclass(frozen=True)
class Batch:
    """What one update needs. B is this process's share of the pairs."""

    step: int
    rate: float
    index: Tensor  # (2, B) int64 into the source
    warps: Tensor  # (2, B, 2, 3)
    photometric: Tensor | None  # (2, B, 8)
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
        self.sampler = open_sampler(config, data)
        for pairs in config.sampling.sizes:
            team.share(pairs)  # refuse this now rather than at the end of an epoch

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

    @contextmanager
    def running(self, first: int, last: int) -> Iterator[Iterator[Batch]]:
        """The batches of updates first..last, prepared in advance in threads."""
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
