"""What several tests need."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from matchkernel.data.synthetic import random_texture, sample_linear


def textures(count: int, size: int = 32, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """(count, 1, size, size) smooth random patches from 0 to 255."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 9, 9, generator=generator, dtype=dtype)
    smooth = torch.nn.functional.interpolate(coarse, size, mode="bicubic", align_corners=True)
    return 255 * smooth.clamp(0, 1)


def trained_like(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give a model BatchNorm statistics and an m as if it had been trained.

    A fresh model is positively homogeneous (it maps a constant patch to zero and ignores the scale of its input all by
    itself), so that it hides mistakes which a trained one would show.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.running_mean.copy_(0.2 * torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
        if isinstance(module, torch.nn.Linear) and module.bias is not None:
            module.bias.data.copy_(0.1 * torch.randn(module.out_features, generator=generator))
    return model.eval()


HOMOGRAPHIES = [
    np.array([[1, 0, 5], [0, 1, -3], [0, 0, 1]], float),
    np.array([[0.9, -0.2, 40], [0.2, 0.9, -20], [0, 0, 1]], float),
    np.array([[1.1, 0.1, -20], [-0.05, 1.05, 5], [1e-4, 5e-5, 1]], float),
    np.array([[0.8, 0, 30], [0, 0.8, 30], [0, 0, 1]], float),
    np.eye(3),
]


def write_sequence(folder: Path, homographies: list[np.ndarray] = HOMOGRAPHIES, seed: int = 0, side: int = 300) -> Path:
    """Image 1 is a texture; image k is the same texture seen through H_1_k, sampled exactly."""
    folder.mkdir(parents=True)
    texture = random_texture(side, np.random.default_rng(seed))
    Image.fromarray(texture.astype(np.uint8)).save(folder / "1.png")
    y, x = np.mgrid[:side, :side].astype(float)
    for number, H in enumerate(homographies, 2):
        back = np.linalg.pinv(H) @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
        seen = sample_linear(texture, *(back[:2] / np.where(np.abs(back[2]) > 1e-9, back[2], 1e-9))).reshape(side, side)
        Image.fromarray(seen.astype(np.uint8)).save(folder / f"{number}.png")
        (folder / f"H_1_{number}").write_text("\n".join(" ".join(f"{value:.9g}" for value in row) for row in H))
    return folder
