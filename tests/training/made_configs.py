"""What tests of the training configuration share."""

from matchkernel.training.augment import Augmentation
from matchkernel.training.config import Loop, Sampling, TrainingConfig
from matchkernel.training.loss import LossSettings
from matchkernel.training.optimizer import Optimizer

DATA = {"data": {"train": ["sets/liberty"]}}
TABLES = {
    "sampling": Sampling,
    "augmentation": Augmentation,
    "loss": LossSettings,
    "optimizer": Optimizer,
    "loop": Loop,
}


def config(**tables):
    """A configuration with these tables, trained on a set that need not be there."""
    return TrainingConfig.from_dict({**DATA, **tables})
