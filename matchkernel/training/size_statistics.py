"""BatchNorm statistics for every patch size of a run that draws several.

Each update moves the running statistics towards those of its own size, so that they become a mixture that fits no size.
Therefore they are measured again for each size, with fixed weights.
"""

import copy
from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor, nn

from matchkernel.model.descriptors import Descriptor
from matchkernel.training.augment import augmented
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.network import group_statistics
from matchkernel.training.sets import TrainingSet

PATCHES = 2**14  # number of patches on which the statistics of a size are measured
AT_A_TIME = 2**10  # so that memory does not depend on the batch size of the run


@torch.no_grad()
def with_size_statistics(model: Descriptor, config: TrainingConfig, data: TrainingSet) -> Descriptor:
    """A copy of a model with statistics for every size of its run, which uses those of its own size.

    Args:
        model: as it is trained, on its device.
        config: the run.
        data: what it learns from; the batches are those of the run's first updates.
    """
    result = copy.deepcopy(model)
    group_statistics(result, 1)  # of the whole batch, not shared with other processes
    result.eval()
    norms = [module for module in result.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    feed = Feed(config, data, Team(), streams=True)
    for size in sorted({*config.sampling.patch_sizes, config.model.patch_size}):
        for norm in norms:
            norm.train()
        for number, patches in enumerate(_batches(feed, config, size, next(model.parameters()).device), 1):
            for norm in norms:
                norm.momentum = 1 / number  # the mean over all of them
            result.embed(result.feature_maps(patches))
        result.eval()
        result.size_statistics[size] = {name: tensor.clone() for name, tensor in result.statistics().items()}
    result.use_statistics(config.model.patch_size)
    return result


def _batches(feed: Feed, config: TrainingConfig, size: int, device: torch.device) -> Iterator[Tensor]:
    """The patches of the first updates in equal pieces (b, 1, N, N), until there are enough."""
    at_a_time = min(AT_A_TIME, 2 * config.sampling.pairs)
    left = max(1, PATCHES // at_a_time)
    for step in count(1):
        batch = feed.batch(step)
        assert batch.patches is not None
        warps, drawn = batch.warps.flatten(0, 1).to(device), None
        if batch.photometric is not None:
            drawn = batch.photometric.flatten(0, 1).to(device)
        order = torch.arange(len(warps)).reshape(2, -1).T.flatten()  # pairs stay together
        for part in order.split(at_a_time):
            if len(part) < at_a_time:
                continue
            source = batch.patches[batch.index.flatten()[part]].to(device)
            changes = None if drawn is None else drawn[part]
            numbers = torch.arange(len(part), device=device)
            yield augmented(source, numbers, warps[part], changes, size, config.augmentation)
            left -= 1
            if not left:
                return
