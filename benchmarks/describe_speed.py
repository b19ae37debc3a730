"""Patches per second of every descriptor on the CPU, next to kornia's HardNet in the same run."""

from functools import partial

import kornia
import torch
from timing import interleaved_medians, write_result

import matchkernel

PATCHES = 1024


def in_pieces(model: torch.nn.Module, patches: torch.Tensor, size: int) -> None:
    """Apply a model piece by piece."""
    for piece in patches.split(size):
        model(piece)


def main() -> None:
    """Measure, print, write."""
    patches = torch.rand(PATCHES, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    hardnet = kornia.feature.HardNet(pretrained=False).eval()
    jobs = {
        "kornia HardNet, all at once": partial(hardnet, patches),
        "kornia HardNet, 64 at a time": partial(in_pieces, hardnet, patches, 64),
        "fc, 512 at a time": partial(matchkernel.describe, patches, matchkernel.build("fc").eval(), batch_size=512),
    }
    for variant in matchkernel.VARIANTS:
        model = matchkernel.build(variant).eval()
        jobs[variant] = partial(matchkernel.describe, patches, model)
    for name in matchkernel.available():
        jobs[f"trained {name}"] = partial(matchkernel.describe, patches, matchkernel.load(name))
    with torch.inference_mode():
        seconds = interleaved_medians(jobs)
    reference = min(time for name, time in seconds.items() if name.startswith("kornia"))
    rows = {
        name: {
            "patches_per_second": round(PATCHES / time),
            "times_kornia_hardnet_at_its_best": round(reference / time, 2),
        }
        for name, time in seconds.items()
    }
    print(f"describe: {PATCHES} patches of 32 x 32, median of 7 turns, {torch.get_num_threads()} threads")
    print("x: times as fast as kornia's HardNet at its best")
    for name, row in rows.items():
        print(f"{name:30} {row['patches_per_second']:7,} patches/s  {row['times_kornia_hardnet_at_its_best']:5.2f} x")
    write_result("describe_speed", {"patches": PATCHES, "kornia": kornia.__version__, "rows": rows})


if __name__ == "__main__":
    main()
