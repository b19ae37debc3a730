"""Patches per second on the CPU: every shipped model on every engine that runs here, next to kornia's HardNet.

    python benchmarks/describe_speed.py [WEIGHTS.safetensors ...] [--threads N ...]

Jobs take turns in one run, so that ratios mean something on a busy machine too. With one thread the processor's time is
counted, and other programs matter little; with all threads the time that passes.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kornia
import numpy as np
import torch
from timing import interleaved_medians, write_result

import matchkernel
from matchkernel.errors import MatchKernelError
from matchkernel.model.engines.choose import open_engine

PATCHES, REPEATS = 384, 7
HARDNET = "kornia HardNet"
BATCHES = (16, 32, 96)  # of HardNet; it is compared at its best
ENGINES = ("torch", "onnx", "onnx-int8")
PACKAGES = ("torch", "kornia", "onnxruntime", "numpy")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", nargs="*", help="weight files to measure besides the shipped models")
    parser.add_argument("--threads", nargs="*", type=int, default=sorted({1, torch.get_num_threads()}))
    options = parser.parse_args()
    models = [*matchkernel.available(), *options.weights]
    print(f"{PATCHES} patches of 32 px, median of {REPEATS} turns; {processor()}; {versions()}")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for threads in options.threads:
        clock = time.process_time if threads == 1 else time.perf_counter
        with using(threads):
            seconds = interleaved_medians(jobs_of(models), REPEATS, clock)
        best = min(taken for name, taken in seconds.items() if name.startswith(HARDNET))
        print(f"{threads} thread{'s' if threads > 1 else ''}:")
        for name, taken in seconds.items():
            found = {"patches_per_second": round(PATCHES / taken), "times_hardnet_at_its_best": round(best / taken, 2)}
            rows.setdefault(name, {})[str(threads)] = found
            print(f"  {name:28} {PATCHES / taken:8,.0f} patches/s  {best / taken:6.2f} x HardNet", flush=True)
    result = {"processor": processor(), "versions": versions(), "patches": PATCHES, "rows": rows}
    write_result("describe_speed", result)


def jobs_of(models: list[str]) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    patches = np.random.default_rng(0).integers(0, 256, (PATCHES, 32, 32), dtype=np.uint8)
    hardnet = kornia.feature.HardNet(pretrained=False).eval()
    floats = torch.from_numpy(patches)[:, None].float()
    jobs: dict[str, Callable[[], object]] = {
        f"{HARDNET}, {size} at a time": partial(in_pieces, hardnet, floats, size) for size in BATCHES
    }
    for name in models:
        model = matchkernel.load(name)
        for engine in ENGINES:
            try:
                runner = open_engine(model, engine, size=32)
            except MatchKernelError as error:
                print(f"  {model.name}, {engine}: not measured: {error}")
                continue
            jobs[f"{model.name}, {engine}"] = partial(matchkernel.describe, patches, model, engine=runner)
    return jobs


@torch.inference_mode()
def in_pieces(model: torch.nn.Module, patches: torch.Tensor, size: int) -> None:
    """Apply a model piece by piece."""
    for piece in patches.split(size):
        model(piece)


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Compute with so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def processor() -> str:
    """Architecture and name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    features = [line for line in lines if line.startswith(("flags", "Features"))]
    int8 = [word for word in ("avx512_vnni", "avx_vnni", "asimddp", "i8mm") if features and word in features[0].split()]
    known = " ".join([platform.machine(), *names[:1], *int8])
    return f"{known}, {os.cpu_count()} cores"


def versions() -> str:
    """Of the packages that compute."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


if __name__ == "__main__":
    main()
