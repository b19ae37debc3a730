"""The model whose weights are the moving average of those trained (optimizer.average)."""

import copy

import torch
from torch import Tensor, nn

from matchkernel.model.descriptors import Descriptor
from matchkernel.training.optimizer import Updater


def running_statistics(model: nn.Module) -> list[Tensor]:
    """Running means and variances of every BatchNorm: they belong to the weights, so they are averaged with them."""
    norms = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    tensors = [tensor for norm in norms for tensor in (norm.running_mean, norm.running_var)]
    return [tensor for tensor in tensors if tensor is not None]


@torch.no_grad()
def averaged(model: Descriptor, updater: Updater) -> Descriptor:
    """A copy of the model with the averages in it; the model itself where there are none."""
    if "average" not in updater.state:
        return model
    result = copy.deepcopy(model)
    for tensor, average in zip(
        [*result.parameters(), *running_statistics(result)], updater.state["average"], strict=True
    ):
        tensor.copy_(average)
    return result
