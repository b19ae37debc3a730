"""The learning rate of every update."""

import math
from dataclasses import dataclass

from matchkernel.errors import ArgumentError
from matchkernel.storage.settings import setting, short_repr

KINDS = ("sgd", "adamw")
SCHEDULES = ("linear", "hardnet", "cosine", "constant")


@dataclass(frozen=True)
class Optimizer:
    """Which optimiser, and how its rate changes.

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
        average: decay of the moving average of the weights that is validated and saved instead of them; 0: none.
    """

    kind: str = "sgd"
    rate: float = 10.0
    momentum: float = 0.9
    dampening: float = 0.9
    beta_first: float = 0.9
    beta_second: float = 0.999
    weight_decay: float = 1e-4
    schedule: str = "linear"
    warmup: int = 0
    average: float = setting(0.0, omit_default=True)

    def __post_init__(self) -> None:
        for name, allowed in {"kind": KINDS, "schedule": SCHEDULES}.items():
            if getattr(self, name) not in allowed:
                value = short_repr(getattr(self, name))
                raise ArgumentError(f"optimizer.{name} must be one of {', '.join(allowed)}, got {value}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ArgumentError(f"optimizer.rate must be above 0, got {self.rate}")
        for name in ("momentum", "dampening", "beta_first", "beta_second", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise ArgumentError(f"optimizer.{name} must be from 0 to below 1, got {getattr(self, name)}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ArgumentError(f"optimizer.weight_decay must be 0 or more, got {self.weight_decay}")
        if self.warmup < 0:
            raise ArgumentError(f"optimizer.warmup must be 0 or more, got {self.warmup}")


def rate_at(step: int, settings: Optimizer, steps: int, pairs: int, epoch_pairs: int = 0) -> float:
    """The rate of update `step`, from 1 [M24].

    Args:
        step: number of the update.
        settings: the schedule.
        steps: updates in all.
        pairs: in a batch (`hardnet` counts its rate in pairs).
        epoch_pairs: in an epoch, 0 for none.
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
        factor = max(factor, 0.0) if step <= steps else factor  # short epochs count more pairs than there are
    else:
        factor = 1.0
    warm = min(1.0, step / settings.warmup) if settings.warmup else 1.0
    return settings.rate * factor * warm
