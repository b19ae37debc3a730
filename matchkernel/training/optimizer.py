"""SGD and AdamW, the learning rate of every update, and the moving average of the weights.

The updates equal torch.optim's (tests compare them), but rate and step are tensors, so that a CUDA graph can replay
them: torch.optim decides in Python whether a step of SGD is the undamped first one, which a captured graph cannot do.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matchkernel.model.descriptors import Descriptor
from matchkernel.storage.settings import check_ranges, setting

HUGE = 1e30  # the maximum rate and decay, which fits in float32


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimiser and of its learning rate.

    Attributes:
        kind: "sgd", or "adamw" (decoupled weight decay).
        rate: the learning rate at the start (after the warm-up).
        momentum: of SGD.
        dampening: of SGD; 0.9 makes rate 10 act like rate 1 without it.
        beta_first: Adam's decay of the mean.
        beta_second: Adam's decay of the square.
        weight_decay: of all parameters; added to the gradient by SGD.
        schedule: "linear" and "cosine" end at exactly 0 after the last update; "hardnet" is its script's; "constant".
        warmup: updates over which the rate rises linearly from rate / warmup.
        average: decay of the moving average of the weights, which is validated and saved instead of them; 0 for none.
    """

    kind: str = setting("sgd", choices=("sgd", "adamw"))
    rate: float = setting(10.0, above=0, high=HUGE)
    momentum: float = setting(0.9, low=0, below=1)
    dampening: float = setting(0.9, low=0, below=1)
    beta_first: float = setting(0.9, low=0, below=1)
    beta_second: float = setting(0.999, low=0, below=1)
    weight_decay: float = setting(1e-4, low=0, high=HUGE)
    schedule: str = setting("linear", choices=("linear", "hardnet", "cosine", "constant"))
    warmup: int = setting(0, low=0)
    average: float = setting(0.0, low=0, below=1, omit_default=True)

    def __post_init__(self) -> None:
        check_ranges(self, "optimizer")


def rate_at(step: int, settings: Optimizer, steps: int, pairs: int, epoch_pairs: int = 0) -> float:
    """The rate of update `step`, from 1 [M24].

    Args:
        step: number of the update.
        settings: the schedule.
        steps: total number of updates.
        pairs: pairs per batch (the schedule `hardnet` depends on the number of pairs).
        epoch_pairs: pairs per epoch, 0 for no epochs.
    """
    done = (step - 1) / steps
    if settings.schedule == "linear":
        factor = 1 - done
    elif settings.schedule == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * done))
    elif settings.schedule == "hardnet":
        updates = -(-epoch_pairs // pairs) if epoch_pairs else steps
        total = (epoch_pairs or pairs * steps) * (steps / updates)
        factor = 1 - max(step - 2, 0) * pairs / total
        factor = max(factor, 0.0) if step <= steps else factor  # short batches count as full ones
    else:
        factor = 1.0
    warm = min(1.0, step / settings.warmup) if settings.warmup else 1.0
    return settings.rate * factor * warm


class Updater:
    """The state of an optimiser; changes parameters in place.

    Args:
        parameters: the tensors to train.
        settings: kind and constants.
        statistics: tensors that are not trained, but averaged together with the parameters.

    Attributes:
        state: lists of tensors by name: everything that must be saved.
    """

    def __init__(self, parameters: Sequence[Tensor], settings: Optimizer, statistics: Sequence[Tensor] = ()) -> None:
        self.parameters, self.statistics = list(parameters), list(statistics)
        self.settings = settings
        names = ("momentum",) if settings.kind == "sgd" else ("mean", "square")
        self.state = {name: [torch.zeros_like(p) for p in self.parameters] for name in names}
        if settings.average:
            self.state["average"] = [tensor.detach().clone() for tensor in (*self.parameters, *self.statistics)]

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        """One update.

        Args:
            gradients: of the parameters, in the same order.
            rate: () learning rate.
            step: () number of the update, from 1.
        """
        if self.settings.kind == "sgd":
            self._sgd(gradients, rate, step)
        else:
            self._adamw(gradients, rate, step)
        if self.settings.average:
            self._average(step)

    def _sgd(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        """buf = momentum buf + (1 - dampening) g, at the first step buf = g; p -= rate buf [M24]."""
        momentum = self.state["momentum"]
        damped = torch.full_like(rate, 1 - self.settings.dampening)
        gain = torch.where(step == 1, torch.ones_like(rate), damped)
        decayed = torch._foreach_add(list(gradients), self.parameters, alpha=self.settings.weight_decay)
        torch._foreach_mul_(momentum, self.settings.momentum)
        torch._foreach_add_(momentum, torch._foreach_mul(decayed, gain))
        torch._foreach_sub_(self.parameters, torch._foreach_mul(momentum, rate))

    def _adamw(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        first, second = self.settings.beta_first, self.settings.beta_second
        mean, square = self.state["mean"], self.state["square"]
        torch._foreach_mul_(self.parameters, 1 - rate * self.settings.weight_decay)
        torch._foreach_lerp_(mean, list(gradients), 1 - first)
        torch._foreach_mul_(square, second)
        torch._foreach_addcmul_(square, list(gradients), list(gradients), 1 - second)
        root = torch._foreach_sqrt(square)
        torch._foreach_mul_(root, (1 - second**step).rsqrt())
        torch._foreach_add_(root, 1e-8)
        change = torch._foreach_div(mean, root)
        torch._foreach_sub_(self.parameters, torch._foreach_mul(change, rate / (1 - first**step)))

    def _average(self, step: Tensor) -> None:
        """average = a average + (1 - a) p, a = min(settings.average, (1 + step) / (10 + step)): the start fades."""
        weight = 1 - ((1 + step) / (10 + step)).clamp(max=self.settings.average)
        now = [*self.parameters, *self.statistics]
        torch._foreach_lerp_(self.state["average"], now, [weight] * len(now))


def running_statistics(model: nn.Module) -> list[Tensor]:
    """Running means and variances of every BatchNorm, which are averaged together with the weights."""
    norms = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    tensors = [tensor for norm in norms for tensor in (norm.running_mean, norm.running_var)]
    return [tensor for tensor in tensors if tensor is not None]


@torch.no_grad()
def averaged(model: Descriptor, updater: Updater) -> Descriptor:
    """A copy of the model with the averaged weights; the model itself if weights are not averaged."""
    if "average" not in updater.state:
        return model
    result = copy.deepcopy(model)
    learned = [parameter for parameter in result.parameters() if parameter.requires_grad]
    for tensor, average in zip([*learned, *running_statistics(result)], updater.state["average"], strict=True):
        tensor.copy_(average)
    return result
