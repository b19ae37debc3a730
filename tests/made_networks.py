"""Weight files of Key.Net, AffNet and OriNet with random numbers, in the layout of the published ones."""

from pathlib import Path

import kornia.feature
import torch

from matchkernel.geometry.frame_networks import CLASSES

PUBLISHED = {"keynet": "keynet_pytorch.pth", "affnet": "AffNet.pth", "orinet": "OriNet.pth"}


def write_networks(folder: Path) -> dict[str, Path]:
    """The files by kind. AffNet and OriNet exaggerate, so that shapes and angles differ."""
    for kind, name in CLASSES.items():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            network = getattr(kornia.feature, name)(pretrained=False)
        if kind != "keynet":
            network.features[-3].weight.data *= 40
            network.features[-3].bias.data.zero_()
        state = {key: value for key, value in network.state_dict().items() if "tracked" not in key or kind == "keynet"}
        torch.save({"epoch": 1, "state_dict": state}, folder / PUBLISHED[kind])
    return {kind: folder / name for kind, name in PUBLISHED.items()}
