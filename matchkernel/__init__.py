"""Local patch descriptors with explicit spatial encoding (Mukundan, Tolias, Chum, CVPR 2019)."""

from matchkernel.errors import MatchKernelError
from matchkernel.model.config import VARIANTS, DescriptorConfig
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor, build
from matchkernel.model.weights import available, load, save

__version__ = "0.1.0"

__all__ = [
    "VARIANTS",
    "Descriptor",
    "DescriptorConfig",
    "MatchKernelError",
    "available",
    "build",
    "describe",
    "load",
    "save",
]
