"""What the tests share: the reference data beside the checkout, where it is there, and textured patches."""

from pathlib import Path

import hypothesis
import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"

# Deadlines would be timed tests; a fixed seed keeps CI from failing by chance.
hypothesis.settings.register_profile("matchkernel", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("matchkernel")
torch.set_num_threads(1)  # several test processes share the cores


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference values."""
    return _shared("golden")


@pytest.fixture(scope="session")
def hpatches_sample() -> Path:
    """One real HPatches sequence."""
    return _shared("data/hpatches_sample/i_contruction")


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"reference data {name} is not here (it lies beside the checkout, not in it)")
    return folder


@pytest.fixture
def textures():
    """Make (count, 1, size, size) smooth random patches, in float32 from 0 to 255."""

    def make(count: int, size: int = 32, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.rand(count, 1, 9, 9, generator=generator, dtype=dtype)
        smooth = torch.nn.functional.interpolate(coarse, size, mode="bicubic", align_corners=True)
        return 255 * smooth.clamp(0, 1)

    return make


@pytest.fixture
def trained_like():
    """Give a model BatchNorm statistics and an m as if it had been trained, so that folding has work to do."""

    def disturb(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
        generator = torch.Generator().manual_seed(seed)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
                module.running_mean.copy_(0.2 * torch.randn(module.num_features, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
            if isinstance(module, torch.nn.Linear) and module.bias is not None:
                module.bias.data.copy_(0.1 * torch.randn(module.out_features, generator=generator))
        return model.eval()

    return disturb
