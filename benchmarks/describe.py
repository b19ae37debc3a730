"""Patches per second of every shipped model on every engine: on a CPU next to kornia's HardNet, or on a GPU.

    python benchmarks/describe.py [WEIGHTS.safetensors ...] [--threads N ...] [--profile]
    python benchmarks/describe.py --gpu [--profile]

Jobs take turns in one run, so that ratios mean something on a busy machine too. With one thread the processor's time is
counted, and other programs matter little. On a GPU the loss of half precision is measured too, by matching two patches
of each point of random textures. A profile of a CPU is of onnx-int8: microseconds of every node for one patch, and how
fast its convolutions are, counted without products that only a form of the graph adds; and what else a patch of a photo
costs. Where there is a C compiler and AVX-512 VNNI, what one core could do at most is measured beside it.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import interleaved_medians, print_kernels, processor, using_threads, versions, write_result

import matchkernel
from matchkernel.data.sample_pair import FOLDER
from matchkernel.data.synthetic import random_texture
from matchkernel.errors import MatchKernelError
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames, Pyramid, extract_patches
from matchkernel.geometry.jitter import Jitter, jittered
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.choose import open_engine
from matchkernel.photos.extract import CUT
from matchkernel.runtime.graph import INPUT, OUTPUT
from matchkernel.runtime.onnx import peaks, prepare_patches
from matchkernel.storage.pixels import as_gray

PATCHES, REPEATS = 384, 7
HARDNET, BATCHES = "kornia HardNet", (16, 32, 96)  # it is compared at its best batch size
ENGINES = ("torch", "onnx", "onnx-int8")
PROFILED, NODES, KERNEL = 40, 12, "_kernel_time"  # of a profile: turns, nodes that are printed, how their events end
KEYPOINTS = 2000  # of the photo of a profile
PEAK = Path(__file__).with_name("vnni_peak.c")
GPU_PATCHES, SIDE, POINTS, TEXTURES, TEXTURE = 2**19, 32, 8192, 8, 1024
JITTER = Jitter(shift=0.1, octaves=0.25, degrees=15.0, stretch=0.2)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="*", help="weight files to measure besides the shipped models")
    parser.add_argument("--threads", nargs="*", type=int, default=sorted({1, torch.get_num_threads()}))
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print the kernels on the GPU, or the nodes on a CPU")
    options = parser.parse_args()
    models = [*matchkernel.available(), *options.weights]
    if options.gpu:
        measure_on_gpu(models, options.profile)
    elif options.profile:
        profile_on_cpu(models, options.threads)
    else:
        measure_on_cpu(models, options.threads)


def measure_on_cpu(models: list[str], numbers_of_threads: list[int]) -> None:
    """All engines of a CPU, and HardNet."""
    print(f"{PATCHES} patches of 32 px, median of {REPEATS} turns; {processor()}; {versions()}")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for threads in numbers_of_threads:
        clock = time.process_time if threads == 1 else time.perf_counter
        with using_threads(threads):
            seconds = interleaved_medians(cpu_jobs(models), REPEATS, clock)
        best = min(taken for name, taken in seconds.items() if name.startswith(HARDNET))
        print(f"threads: {threads}")
        for name, taken in seconds.items():
            found = {"patches_per_second": round(PATCHES / taken), "times_hardnet_at_its_best": round(best / taken, 2)}
            rows.setdefault(name, {})[str(threads)] = found
            print(f"  {name:28} {PATCHES / taken:8,.0f} patches/s  {best / taken:6.2f} x HardNet", flush=True)
    machine = platform.machine()
    name = "describe_speed" if machine == "x86_64" else f"describe_speed_{machine}"
    write_result(name, {"patches": PATCHES, "rows": rows})


def cpu_jobs(models: list[str]) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    import kornia

    patches = np.random.default_rng(0).integers(0, 256, (PATCHES, 32, 32), dtype=np.uint8)
    hardnet, floats = kornia.feature.HardNet(pretrained=False).eval(), torch.from_numpy(patches)[:, None].float()
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


def profile_on_cpu(models: list[str], numbers_of_threads: list[int]) -> None:
    """The time of every node of onnx-int8, the shortest of PROFILED turns."""
    print(f"{processor()}; {versions()}")
    profiles: dict[str, dict[str, Any]] = {}
    peaks = [peak_of_a_core()]
    for threads in numbers_of_threads:
        print(f"threads: {threads}")
        for name in models:
            profiles.setdefault(str(threads), {})[name] = profile = profile_of(name, threads)
            words = f"{profile['us']:.1f} us a patch, {profile['billion_products_per_s']:.0f} billion products/s"
            print(f"  {name}, {profile['patches']} patches: {words}; of a photo, one by one: {profile['photo_us']}")
            for node, found in list(profile["nodes"].items())[:NODES]:
                print(f"    {node:40} " + ", ".join(f"{value:8.2f} {key}" for key, value in found.items()), flush=True)
    peaks.append(peak_of_a_core())
    print(f"one core at most, before and after: {peaks} billion products/s")
    machine = platform.machine()
    name = "describe_profile" + ("" if machine == "x86_64" else f"_{machine}")
    write_result(name, {"peaks_of_a_core": peaks, "threads": profiles})


def peak_of_a_core() -> float | None:
    """Billions of products of bytes a second by AVX-512 VNNI; None without it or without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or "avx512_vnni" not in processor():
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        subprocess.run([compiler, "-O2", "-mavx512vnni", PEAK, "-o", program], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def profile_of(name: str, threads: int) -> dict[str, Any]:
    """Microseconds for one patch and speed of a model in int8, as a whole and by node, the slowest first."""
    model = matchkernel.load(name)
    engine: Any = open_engine(model, "onnx-int8", size=SIDE)
    count = engine.batch_pixels // SIDE**2
    patches = np.random.default_rng(0).integers(0, 256, (count, 1, SIDE, SIDE)).astype(np.float32)
    side, products = SIDE, []
    for inputs, outputs, stride in model.config.convolutions:
        side //= stride
        products.append(side**2 * 9 * inputs * outputs)
    nodes: dict[str, dict[str, float]] = {}
    networks = set()
    seconds = {node: own / count for node, own in node_seconds(engine.content, patches, threads).items()}
    for (node, operator), own in sorted(seconds.items(), key=lambda entry: -entry[1]):
        found = nodes[f"{node.split('_token')[0]} {operator}"] = {"us": round(own * 1e6, 2)}
        if operator == "QLinearConv":
            network, number = node.split("_")[0].split(".")
            networks.add(network)
            found["billion_products_per_s"] = round(products[int(number)] / own / 1e9, 1)
    whole = sum(seconds.values())
    rate = len(networks) * sum(products) / whole / 1e9
    return {
        "patches": count,
        "us": round(whole * 1e6, 2),
        "billion_products_per_s": round(rate, 1),
        "photo_us": photo_parts(engine, count),
        "nodes": nodes,
    }


def photo_parts(engine: Any, count: int) -> dict[str, float]:
    """Microseconds for a patch of a photo, by part, `count` at a time in one thread."""
    gray = as_gray(FOLDER / "left.png")
    frames = Detector(keypoints=KEYPOINTS).detect(gray).frames
    pyramid, starts = Pyramid(gray), range(0, KEYPOINTS, count)
    patches = [pyramid.cut(frames[start : start + count], CUT)[:, None] for start in starts]
    values = [prepare_patches(some, engine.size, engine.dtype)[0] for some in patches]
    jobs: dict[str, Callable[[], object]] = {
        "cut": lambda: [pyramid.cut(frames[start : start + count], CUT) for start in starts],
        "to floats": lambda: [prepare_patches(some, engine.size, engine.dtype) for some in patches],
        "find those beyond int8": lambda: [peaks(some) for some in values],
        "network": lambda: [engine.session.run([OUTPUT], {INPUT: some}) for some in values],
    }
    seconds = interleaved_medians(jobs, REPEATS, time.process_time)
    return {part: round(1e6 * taken / KEYPOINTS, 1) for part, taken in seconds.items()}


def node_seconds(content: bytes, values: np.ndarray, threads: int) -> dict[tuple[str, str], float]:
    """Node and operator -> seconds, the shortest of PROFILED turns."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = threads, True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "nodes")
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for _ in range(PROFILED):
            session.run([OUTPUT], {INPUT: values})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(KERNEL):
            found[event["name"].removesuffix(KERNEL), event["args"]["op_name"]].append(event["dur"] / 1e6)
    return {node: min(seconds) for node, seconds in found.items()}


@torch.inference_mode()
def in_pieces(model: torch.nn.Module, patches: torch.Tensor, size: int) -> None:
    """Apply a model piece by piece."""
    for piece in patches.split(size):
        model(piece)


def measure_on_gpu(models: list[str], profile: bool) -> None:
    """Engines torch and cuda-half, from the GPU and from host arrays."""
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    device, gpu = torch.device("cuda", 0), torch.cuda.get_device_name()
    print(f"{gpu}, torch {torch.__version__}; {GPU_PATCHES:,} patches of {SIDE} px", flush=True)
    pairs = [patches.to(device) for patches in patches_of_points()]
    many = torch.cat(pairs).repeat(-(-GPU_PATCHES // (2 * len(pairs[0]))), 1, 1)[:GPU_PATCHES]
    rows: dict[str, Any] = {}
    for name in models:
        model = matchkernel.load(name).to(device)
        row = rows[name] = gpu_row(model, pairs, many)
        for job, rate in row["patches_per_s"].items():
            print(f"{name:12} {job:28} {rate:12,.0f} patches/s")
        print(f"{name:12} cosine {row['cosine']}, mAP {row['map']}", flush=True)
        if profile:
            engine = open_engine(model, "cuda-half", size=SIDE, device=device)
            print_kernels(partial(matchkernel.describe, many[:65536], model, engine=engine))
        write_result("describe_gpu", {"gpu": gpu, "patches": GPU_PATCHES, "rows": rows})


def gpu_row(model: Descriptor, pairs: list[torch.Tensor], many: torch.Tensor) -> dict[str, Any]:
    """Patches per second of both engines, and the loss of the faster one."""
    engines = {name: open_engine(model, name, size=SIDE, device=many.device) for name in ("torch", "cuda-half")}
    host = many.cpu().numpy()
    target = np.zeros((len(host), model.config.D), np.float32)  # its pages exist before the clock starts
    jobs: dict[str, Callable[[], object]] = {}
    for name, engine in engines.items():
        describe = partial(matchkernel.describe, model=model, engine=engine)
        jobs[f"{name}, CUDA bytes"] = partial(finished, partial(describe, many))
        jobs[f"{name}, host array"] = partial(finished, partial(describe, host))
        jobs[f"{name}, host array, out="] = partial(finished, partial(describe, host, out=target))
    rates = {job: len(many) / seconds for job, seconds in interleaved_medians(jobs, 5).items()}
    exact, half = ([matchkernel.describe(part, model, engine=engine) for part in pairs] for engine in engines.values())
    cosines = torch.cat([(e.double() * h.double()).sum(1) for e, h in zip(exact, half, strict=True)])
    return {
        "patches_per_s": rates,
        "ratio": {kind: rates[f"cuda-half, {kind}"] / rates[f"torch, {kind}"] for kind in ("CUDA bytes", "host array")},
        "cosine": {"mean": float(cosines.mean()), "least": float(cosines.min())},
        "map": {"torch": matching_map(*exact), "cuda-half": matching_map(*half)},
    }


def finished(job: Callable[[], object]) -> None:
    """Do a job on the GPU and wait until it is done."""
    job()
    torch.cuda.synchronize()


def patches_of_points() -> list[torch.Tensor]:
    """Two patches of each point, (K, SIDE, SIDE) uint8 each; a point with a constant patch is left out."""
    random, found = np.random.default_rng(0), []
    for _ in range(TEXTURES):
        count = POINTS // TEXTURES
        texture = random_texture(TEXTURE, random).astype(np.uint8)
        centers, half = random.uniform(80, TEXTURE - 80, (count, 2)), random.uniform(12, 40, count)
        base = Frames.turned_squares(centers, half, random.uniform(-np.pi, np.pi, count))
        found.append([extract_patches(texture, jittered(base, JITTER, random), SIDE) for _ in range(2)])
    both = [np.concatenate(part) for part in zip(*found, strict=True)]
    kept = np.logical_and(*(patches.min((1, 2)) < patches.max((1, 2)) for patches in both))
    return [torch.from_numpy(patches[kept]) for patches in both]


def matching_map(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean reciprocal rank of each row's own match among all rows of the other list, in percent."""
    similar = a @ b.T
    rank = 1 + (similar > similar.diagonal()[:, None]).sum(1)
    return float((100 / rank).mean())


if __name__ == "__main__":
    main()
