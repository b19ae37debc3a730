"""SGD and AdamW as plain updates of tensors, with rate and step in tensors, so that a CUDA graph can replay them.

torch.optim decides the undamped first step of SGD in Python, which a captured graph cannot; the updates themselves are
torch.optim's (tests compare them).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from matchkernel.training.schedule import Optimizer


class Updater:
    """Holds the state of an optimiser and changes parameters in place.

    Args:
        parameters: what is trained.
        settings: kind and constants.
        statistics: what is not trained but averaged with the parameters, where they are averaged.

    Attributes:
        state: lists of tensors by name: all that must be saved.
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
            gradients: as the parameters.
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
