"""Local patch descriptors with explicit spatial encoding (Mukundan, Tolias, Chum, CVPR 2019)."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers assume True; importing `typing` for it would take longer than everything else
if TYPE_CHECKING:
    from matchkernel.errors import MatchKernelError
    from matchkernel.model.describe import describe
    from matchkernel.model.descriptors import Descriptor, build
    from matchkernel.model.weights import load, save
    from matchkernel.photos.pipeline import match_images
    from matchkernel.plots.matches import save_picture
    from matchkernel.runtime.config import VARIANTS, DescriptorConfig
    from matchkernel.runtime.weights import Card, available

__version__ = "0.2.0"

__all__ = [
    "VARIANTS",
    "Card",
    "Descriptor",
    "DescriptorConfig",
    "MatchKernelError",
    "available",
    "build",
    "describe",
    "load",
    "match_images",
    "save",
    "save_picture",
]

# Each name is imported on first use: importing torch takes seconds, and the command line often does not need it.
_MODULES = {
    "VARIANTS": "runtime.config",
    "Card": "runtime.weights",
    "Descriptor": "model.descriptors",
    "DescriptorConfig": "runtime.config",
    "MatchKernelError": "errors",
    "available": "runtime.weights",
    "build": "model.descriptors",
    "describe": "model.describe",
    "load": "model.weights",
    "match_images": "photos.pipeline",
    "save": "model.weights",
    "save_picture": "plots.matches",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'matchkernel' has no attribute {name!r}")
    value = getattr(import_module(f"matchkernel.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
