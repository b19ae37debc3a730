"""Local patch descriptors with explicit spatial encoding (Mukundan, Tolias, Chum, CVPR 2019)."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers assume True; importing `typing` for it would take longer than everything else
if TYPE_CHECKING:
    from matchkernel.errors import MatchKernelError
    from matchkernel.model.describe import describe
    from matchkernel.model.descriptors import Descriptor, build
    from matchkernel.model.hub import from_pretrained, save_pretrained
    from matchkernel.model.weights import load, save
    from matchkernel.photos.extract import extract
    from matchkernel.photos.match import match
    from matchkernel.photos.matcher import Matcher
    from matchkernel.photos.pipeline import match_images
    from matchkernel.photos.verify import verify
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
    "Matcher",
    "available",
    "build",
    "describe",
    "extract",
    "from_pretrained",
    "load",
    "match",
    "match_images",
    "save",
    "save_picture",
    "save_pretrained",
    "verify",
]

# Each name is imported on first use: importing torch takes seconds, and the command line often does not need it.
_MODULES = {
    "VARIANTS": "runtime.config",
    "Card": "runtime.weights",
    "Descriptor": "model.descriptors",
    "DescriptorConfig": "runtime.config",
    "MatchKernelError": "errors",
    "Matcher": "photos.matcher",
    "available": "runtime.weights",
    "build": "model.descriptors",
    "describe": "model.describe",
    "extract": "photos.extract",
    "from_pretrained": "model.hub",
    "load": "model.weights",
    "match": "photos.match",
    "match_images": "photos.pipeline",
    "save": "model.weights",
    "save_picture": "plots.matches",
    "save_pretrained": "model.hub",
    "verify": "photos.verify",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'matchkernel' has no attribute {name!r}")
    value = getattr(import_module(f"matchkernel.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
