"""BatchNorm statistics for every patch size of a run that draws several.

Each update moves the running statistics towards those of its own size, so at the end they are a mixture that fits none.
They are measured anew for each size, with the weights as they are.
"""

import copy

import torch
from torch import nn

from matchkernel.descriptors import Descriptor
from matchkernel.training.batch_norm import group_statistics
from matchkernel.training.config import TrainingConfig
from matchkernel.training.data import TrainingSet
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.light import change_light
from matchkernel.training.warp import sample_patches

PATCHES, LEAST_BATCHES = 2**14, 8  # that the statistics of a size are measured on


@torch.no_grad()
def with_size_statistics(model: Descriptor, config: TrainingConfig, data: TrainingSet) -> Descriptor:
    """A copy of a model with the statistics of every size of its run, its own in use.

    Args:
        model: as it is trained, on its device.
        config: the run.
        data: what it learns from; the batches are those of the run's first updates.
    """
    result = copy.deepcopy(model)
    group_statistics(result, 1)  # of the whole batch, in this process alone
    result.eval()
    norms = [module for module in result.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    feed = Feed(config, data, Team(), streams=True, pins=False)
    count = max(LEAST_BATCHES, PATCHES // (2 * config.sampling.pairs))
    device = next(model.parameters()).device
    for size in sorted({*config.sampling.patch_sizes, config.model.patch_size}):
        for norm in norms:
            norm.train()
        for step in range(1, count + 1):
            batch = feed.batch(step)
            assert batch.patches is not None
            index, warps = batch.index.flatten().to(device), batch.warps.flatten(0, 1).to(device)
            patches = sample_patches(batch.patches.to(device), index, warps, size)
            if batch.light is not None:
                patches = change_light(patches, batch.light.flatten(0, 1).to(device), config.augmentation)
            for norm in norms:
                norm.momentum = 1 / step  # the mean over all batches
            result.embed(result.feature_maps(patches))
        result.eval()
        result.size_statistics[size] = {name: tensor.clone() for name, tensor in result.statistics().items()}
    result.use_statistics(config.model.patch_size)
    return result
