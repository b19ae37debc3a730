"""Local patch descriptors with explicit spatial encoding (Mukundan, Tolias, Chum, CVPR 2019)."""

from matchkernel.config import VARIANTS, DescriptorConfig
from matchkernel.describe import describe
from matchkernel.descriptors import Descriptor, build
from matchkernel.errors import MatchKernelError
from matchkernel.weights import available, load, save

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
