"""Which patches form the pairs of a batch, and at what size it sees them."""

from collections.abc import Sequence

import numpy as np

from matchkernel.data.patch_set import group_by_label
from matchkernel.errors import ArgumentError
from matchkernel.training.randomness import CLASSES, SIZES, generator_at


class PairSampler:
    """Draw pairs of patches of a point: points uniform, none twice in a batch, two distinct patches of each [M22].

    Points are weighted equally whatever their number of patches; those with one patch are left out.

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
            raise ArgumentError(f"no point has two patches, so there is no pair to learn from ({len(labels)} patches)")
        if len(self.starts) < pairs:
            raise ArgumentError(
                f"a batch of {pairs} pairs needs as many points with two patches or more, the set has"
                f" {len(self.starts)}; lower sampling.pairs"
            )

    def draw(self, step: int, pairs: int) -> np.ndarray:
        """(2, pairs) patch numbers of update `step`: anchors and positives."""
        random = generator_at(self.seed, step, CLASSES)
        points = random.choice(len(self.starts), pairs, replace=False)
        start, size = self.starts[points], self.sizes[points]
        first = random.integers(size)
        second = (first + random.integers(1, size)) % size
        return self.order[np.stack([start + first, start + second])]


def draw_size(sizes: Sequence[int], seed: int, step: int) -> int:
    """The side of the patches of update `step`: one of `sizes`, each as likely."""
    return sizes[int(generator_at(seed, step, SIZES).integers(len(sizes)))]
