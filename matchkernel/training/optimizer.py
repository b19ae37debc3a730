"""SGD and the learning rate of every update.

The updates equal those of torch.optim.SGD (tests compare them), but rate and step are tensors, so that a CUDA graph can
replay them: torch.optim decides in Python whether a step is the undamped first one, which a captured graph cannot do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from matchkernel.storage.settings import check_ranges, setting

HUGE = 1e30  # the maximum rate and decay, which fits in float32


@dataclass(frozen=True)
class Optimizer:
    """Settings of the optimiser and of its learning rate.

    Attributes:
        rate: the learning rate at the start (after the warm-up).
        momentum: of SGD.
        dampening: of SGD; 0.9 makes rate 10 act like rate 1 without it.
        weight_decay: of all parameters; added to the gradient.
        schedule: "linear" and "cosine" end at exactly 0 after the last update; "hardnet" is its script's; "constant".
        warmup: updates over which the rate rises linearly from rate / warmup.
    """

    rate: float = setting(10.0, above=0, high=HUGE)
    momentum: float = setting(0.9, low=0, below=1)
    dampening: float = setting(0.9, low=0, below=1)
    weight_decay: float = setting(1e-4, low=0, high=HUGE)
    schedule: str = setting("linear", choices=("linear", "hardnet", "cosine", "constant"))
    warmup: int = setting(0, low=0)

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
    """SGD with momentum; changes parameters in place.

    Args:
        parameters: the tensors to train.
        settings: momentum, dampening and weight decay.

    Attributes:
        state: lists of tensors by name: everything that must be saved.
    """

    def __init__(self, parameters: Sequence[Tensor], settings: Optimizer) -> None:
        self.parameters, self.settings = list(parameters), settings
        self.state = {"momentum": [torch.zeros_like(p) for p in self.parameters]}

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        """buf = momentum buf + (1 - dampening) g, at the first step buf = g; p -= rate buf [M24].

        Args:
            gradients: of the parameters, in the same order.
            rate: () learning rate.
            step: () number of the update, from 1.
        """
        momentum = self.state["momentum"]
        damped = torch.full_like(rate, 1 - self.settings.dampening)
        gain = torch.where(step == 1, torch.ones_like(rate), damped)
        decayed = torch._foreach_add(list(gradients), self.parameters, alpha=self.settings.weight_decay)
        torch._foreach_mul_(momentum, self.settings.momentum)
        torch._foreach_add_(momentum, torch._foreach_mul(decayed, gain))
        torch._foreach_sub_(self.parameters, torch._foreach_mul(momentum, rate))
