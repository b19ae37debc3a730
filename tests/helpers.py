"""What several tests need."""

import torch


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
