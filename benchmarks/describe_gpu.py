"""Patches per second of `describe` on a GPU, and what half precision loses, for every shipped model.

Run on a GPU: python benchmarks/describe_gpu.py [--profile]. Patches are cut from random textures, two of
each point, so that matching can be scored.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from timing import write_result

import matchkernel
from matchkernel.data.synthetic import random_texture
from matchkernel.geometry.device_sampling import extract_patches_on
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.jitter import Jitter, jittered
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.choose import open_engine

PATCHES, SIDE, POINTS, TEXTURES, TEXTURE = 2**19, 32, 8192, 8, 1024
REPEATS = 5
JITTER = Jitter(shift=0.1, octaves=0.25, degrees=15.0, stretch=0.2)


def patches_of_points(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Two patches of each point, (K, SIDE, SIDE) uint8 each; a point with a constant patch is left out."""
    random, found = np.random.default_rng(0), []
    for _ in range(TEXTURES):
        count = POINTS // TEXTURES
        texture = torch.from_numpy(random_texture(TEXTURE, random).astype(np.uint8)).to(device)
        centers, half = random.uniform(80, TEXTURE - 80, (count, 2)), random.uniform(12, 40, count)
        base = Frames.turned_squares(centers, half, random.uniform(-np.pi, np.pi, count))
        found.append([extract_patches_on(texture, jittered(base, JITTER, random), SIDE) for _ in range(2)])
    a, b = (torch.cat(part) for part in zip(*found, strict=True))
    have_content = [patches.flatten(1).amin(1) < patches.flatten(1).amax(1) for patches in (a, b)]
    kept = (have_content[0] & have_content[1]).nonzero()[:, 0]
    return a[kept], b[kept]


def matching_map(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean reciprocal rank of each row's own match among all rows of the other list, in percent."""
    similar = a @ b.T
    rank = 1 + (similar > similar.diagonal()[:, None]).sum(1)
    return float((100 / rank).mean())


def rates(jobs: dict[str, Callable[[], object]], patches: int) -> dict[str, float]:
    """Median patches per second of each job; jobs take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(REPEATS + 1):
        for name, job in jobs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            job()
            torch.cuda.synchronize()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: patches / statistics.median(times) for name, times in seconds.items()}


def print_kernels(work: Callable[[], object], most: int = 25) -> None:
    """Where the time goes, kernel by kernel."""
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        work()
        torch.cuda.synchronize()
    rows = sorted(record.key_averages(), key=lambda row: -row.device_time_total)
    total = sum(row.device_time_total for row in rows)
    print(f"    kernels {total / 1e3:.2f} ms, {sum(row.count for row in rows)} launches")
    for row in rows[:most]:
        print(f"    {row.device_time_total:9.1f} us x{row.count:4d} {row.key[:110]}")


def measured(model: Descriptor, pairs: tuple[torch.Tensor, torch.Tensor], many: torch.Tensor) -> dict[str, Any]:
    """Both engines: patches per second from the GPU and from host arrays, and the loss of the faster one."""
    start = time.perf_counter()
    engines = {name: open_engine(model, name, size=SIDE, device=many.device) for name in ("torch", "cuda-half")}
    host = many.cpu().numpy()
    target = np.zeros((len(host), model.config.D), np.float32)  # its pages exist before the clock starts
    first = matchkernel.describe(many[:1], model, engine=engines["cuda-half"])
    matchkernel.describe(many, model, engine=engines["cuda-half"])
    torch.cuda.synchronize()
    result: dict[str, Any] = {"set_up_s": time.perf_counter() - start, "D": first.shape[1]}
    jobs = {}
    for name, engine in engines.items():
        jobs[f"{name}, CUDA bytes"] = lambda engine=engine: matchkernel.describe(many, model, engine=engine)
        jobs[f"{name}, host array"] = lambda engine=engine: matchkernel.describe(host, model, engine=engine)
        jobs[f"{name}, host array, out="] = lambda engine=engine: matchkernel.describe(
            host, model, engine=engine, out=target
        )
    result["patches_per_s"] = rates(jobs, len(many))
    result["ratio"] = {
        kind: result["patches_per_s"][f"cuda-half, {kind}"] / result["patches_per_s"][f"torch, {kind}"]
        for kind in ("CUDA bytes", "host array")
    }
    exact, half = ([matchkernel.describe(part, model, engine=engine) for part in pairs] for engine in engines.values())
    cosines = torch.cat([(e.double() * h.double()).sum(1) for e, h in zip(exact, half, strict=True)])
    result["cosine"] = {"mean": float(cosines.mean()), "least": float(cosines.min())}
    result["map"] = {"torch": matching_map(*exact), "cuda-half": matching_map(*half)}
    return result


def main() -> None:
    """Measure, print, write benchmarks/results/describe_gpu.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print the kernels")
    parser.add_argument("--models", nargs="*", default=matchkernel.available())
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    device = torch.device("cuda", 0)
    gpu = torch.cuda.get_device_name()
    print(f"{gpu}, torch {torch.__version__}; {PATCHES:,} patches of {SIDE} px, median of {REPEATS} turns", flush=True)
    pairs = patches_of_points(device)
    many = torch.cat(pairs).repeat(-(-PATCHES // (2 * len(pairs[0]))), 1, 1)[:PATCHES]
    results: dict[str, Any] = {}
    for name in options.models:
        model = matchkernel.load(name).to(device)
        row = results[name] = measured(model, pairs, many)
        print(f"{name}: set-up {row['set_up_s']:.1f} s; {row['ratio']['CUDA bytes']:.2f} x engine torch")
        for job, rate in row["patches_per_s"].items():
            print(f"  {job:28} {rate:12,.0f} patches/s")
        share = row["patches_per_s"]["cuda-half, host array"] / row["patches_per_s"]["cuda-half, CUDA bytes"]
        print(f"  from host arrays {share:.0%} of the speed; ", end="")
        print(f"1 - cosine {1 - row['cosine']['mean']:.1e}, at most {1 - row['cosine']['least']:.1e}; ", end="")
        print(f"mAP {row['map']['torch']:.3f} torch, {row['map']['cuda-half']:.3f} cuda-half", flush=True)
        if options.profile:
            engine = open_engine(model, "cuda-half", size=SIDE, device=device)
            print_kernels(partial(matchkernel.describe, many[:65536], model, engine=engine))
        write_result("describe_gpu", {"gpu": gpu, "patches": PATCHES, "rows": results})


if __name__ == "__main__":
    main()
