"""torch.hub: `torch.hub.load("<folder of this repository>", "dual", source="local")`.

One entry for each of the trained weights shipped with the package, under its name (dual_paper for dual-paper), and
`descriptor` for untrained ones. Nothing is downloaded.
"""

from collections.abc import Callable
from typing import Any

from matchkernel import Descriptor, available, build, load

dependencies = ["torch", "numpy", "safetensors"]


def descriptor(variant: str = "dual", **settings: Any) -> Descriptor:
    """An untrained descriptor in eval mode: (B, 1, N, N) -> (B, D). Settings are those of DescriptorConfig."""
    return build(variant, **settings).eval()


def _entry(name: str) -> Callable[..., Descriptor]:
    def trained(patch_size: int | None = None) -> Descriptor:
        return load(name, patch_size=patch_size)

    trained.__name__ = name
    trained.__doc__ = f"The descriptor with the trained weights {name!r}, in eval mode: (B, 1, N, N) -> (B, D)."
    return trained


globals().update({_name.replace("-", "_"): _entry(_name) for _name in available()})
