"""How long a training step takes, against the arithmetic floor and against a plain PyTorch loop, in one run.

Run on a GPU: python benchmarks/training.py [--profile]. The patches are random bytes: the arithmetic is the same.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as nnf

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from timing import print_kernels, read_result, write_result

from matchkernel.model.descriptors import Descriptor
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.loss import pair_loss
from matchkernel.training.network import can_fuse, prepare_for_training, torch_settings
from matchkernel.training.optimizer import Updater
from matchkernel.training.step import Update

PAPER_STEPS = 39_060
POINTS, SIDE = 50_000, 64


class RandomSet:
    """What Feed needs of a training set."""

    side = SIDE

    def __init__(self) -> None:
        self.labels = np.repeat(np.arange(POINTS), 4)
        self.patches = torch.randint(0, 256, (len(self.labels), SIDE, SIDE), dtype=torch.uint8)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """Patches at these indices."""
        return self.patches.numpy()[index]


def configuration(variant: str, size: int, pairs: int, **model: object) -> TrainingConfig:
    """The preset `paper` for this descriptor."""
    table = {"variant": variant, "patch_size": size, **model}
    return TrainingConfig.from_dict({"data": {"train": "-"}, "model": table, "sampling": {"pairs": pairs}})


def flops(config: TrainingConfig) -> float:
    """Multiplications and additions of a step: forward once, backward twice, of convolutions and M or W."""
    N, d = config.model.patch_size, config.model.d
    layers = [(1, 32, 1), (32, 32, 1), (32, 64, 2), (64, 64, 2), (64, d, 4), (d, d, 4)]
    per_patch = sum(2 * 9 * i * o * (N // s) ** 2 for i, o, s in layers)
    model = Descriptor(config.model)
    network = len(model.backbones) * per_patch
    projection = 2 * sum(p.numel() for p in model.projection.parameters())
    return 3.0 * 2 * config.sampling.pairs * (network + projection)


def measured_rate(device: torch.device) -> float:
    """bf16 operations per second of a large matrix product on this GPU, from which the arithmetic floor is computed."""
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = median_ms(lambda: a @ b, 10, 5) / 1e3
    return 2 * 8192**3 / seconds


def median_ms(work, repeats: int, blocks: int) -> float:
    """Median over blocks of the milliseconds of one call, by device events."""
    for _ in range(5):
        work()
    times = []
    for _ in range(blocks):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / repeats)
    return statistics.median(times)


def our_step(config: TrainingConfig, data: RandomSet, source: torch.Tensor, *, profile: bool) -> tuple[float, float]:
    """Median milliseconds of a step of the product's loop, over more than 1,000 steps, and seconds of its set-up."""
    start = time.perf_counter()
    device = source.device
    model = Descriptor(config.model, torch.Generator().manual_seed(0)).to(device)
    prepare_for_training(model, groups=2, fuse=can_fuse(model.config, device, is_half=True))
    monitor = torch.zeros(2, dtype=torch.float64, device=device)
    updater = Updater(list(model.parameters()), config.optimizer)
    update = Update(model, updater, config, source, Team(), monitor, is_half=True, is_captured=True)
    feed = Feed(config, data, Team(), streams=False, pins=True)
    with feed.running(1, PAPER_STEPS) as batches:
        for _ in range(20):
            update(next(batches))
        torch.cuda.synchronize()
        set_up = time.perf_counter() - start
        if profile:
            print_kernels(lambda: update(next(batches)), 5, 40)
        return median_ms(lambda: update(next(batches)), 100, 11), set_up


def plain_step(config: TrainingConfig, data: RandomSet, source: torch.Tensor) -> float:
    """Milliseconds of a step written the usual way: float32, eager, two passes, grid_sample, torch.optim."""
    device = source.device
    model = Descriptor(config.model, torch.Generator().manual_seed(0)).to(device).train()
    settings = config.optimizer
    optimizer = torch.optim.SGD(
        model.parameters(), settings.rate, settings.momentum, settings.dampening, settings.weight_decay
    )
    feed = Feed(config, data, Team(), streams=False, pins=False)
    N = config.model.patch_size

    def describe(index: torch.Tensor, warps: torch.Tensor) -> torch.Tensor:
        patches = source[index.to(device)].float()[:, None]
        grid = nnf.affine_grid(warps.to(device), [len(index), 1, N, N], align_corners=False)
        sampled = nnf.grid_sample(patches, grid, padding_mode="border", align_corners=False)
        return model.embed(model.feature_maps(sampled))

    def step(batch) -> None:
        loss = pair_loss(*(describe(i, w) for i, w in zip(batch.index, batch.warps, strict=True)), config.loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with feed.running(1, PAPER_STEPS) as batches:
        return median_ms(lambda: step(next(batches)), 10, 5)


def main() -> None:
    """Measure, print, write benchmarks/results/training.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print the kernels of each step")
    parser.add_argument("--only", default="", help="measure rows whose name contains this; the others stay")
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    device = torch.device("cuda", 0)
    data = RandomSet()
    source = data.patches.to(device)
    rate = measured_rate(device)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {rate / 1e12:.0f} TFLOP/s in bf16", flush=True)
    rows = read_result("training").get("rows", {}) if options.only else {}
    for name, config in {
        "dual s=2 at 512": configuration("dual", 32, 512, s=2),
        "fc": configuration("fc", 32, 512),
        "dual s=2 N=64": configuration("dual", 64, 512, s=2),
        "dual s=2, 2048 pairs": configuration("dual", 32, 2048, s=2),
        "dual s=2, 4096 pairs": configuration("dual", 32, 4096, s=2),
    }.items():
        if options.only not in name:
            continue
        torch._dynamo.reset()
        with torch_settings(device):
            ms, set_up = our_step(config, data, source, profile=options.profile)
        patches = 2 * config.sampling.pairs
        row = {"ms": ms, "set_up_s": set_up, "patches_per_s": 1e3 * patches / ms, "paper_run_s": ms * PAPER_STEPS / 1e3}
        row |= {"bf16_tflops": rate / 1e12, "share_of_floor": flops(config) / rate * 1e3 / ms}
        if options.plain:
            row["plain_ms"] = plain_step(config, data, source)
            row["ratio"] = row["plain_ms"] / ms
        rows[name] = row
        print(name, {key: round(value, 3) for key, value in row.items()}, flush=True)
        write_result("training", {"gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()
