"""What the benchmarks share: fair repeats in one run, measured commands, and results as JSON with their machine."""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matchkernel.storage.files import replacing

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("torch", "kornia", "onnxruntime", "numpy")


def interleaved_medians(
    jobs: Mapping[str, Callable[[], object]], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each job. The jobs take turns, so that a slow moment of the machine affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # warm-up
    for _ in range(repeats):
        for name, job in jobs.items():
            start = clock()
            job()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def run_command(command: Sequence[str], checkout: Path = ROOT, folder: Path | None = None) -> dict[str, Any]:
    """Seconds, megabytes at most and standard output of a Python command with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        whole = [sys.executable, *map(str, command)]
        process = subprocess.Popen(whole, stdout=out, stderr=errors, env=environment, cwd=folder or checkout)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(whole)}: exit code {process.returncode}\n{errors.read().decode()}")
        return {"seconds": seconds, "megabytes": usage.ru_maxrss / 1024, "output": out.read().decode()}


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Torch computes with this number of threads inside the block."""
    import torch

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
    int8 = [name for name in ("avx512_vnni", "avx_vnni", "asimddp", "i8mm") if features and name in features[0].split()]
    return f"{' '.join([platform.machine(), *names[:1], *int8])}, {os.cpu_count()} cores"


def versions() -> str:
    """Versions of the packages that compute."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def print_kernels(work: Callable[[], object], repeats: int = 1, limit: int = 30) -> None:
    """Where the time of work on a GPU goes, kernel by kernel."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    work()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    rows = sorted(record.key_averages(), key=lambda row: -row.device_time_total)
    total = sum(row.device_time_total for row in rows) / repeats
    print(f"    kernels {total / 1e3:.3f} ms, {sum(row.count for row in rows) // repeats} launches")
    for row in rows[:limit]:
        print(f"    {row.device_time_total / repeats:9.1f} us x{row.count // repeats:4d} {row.key[:110]}")


def read_result(name: str) -> dict[str, Any]:
    """The contents of benchmarks/results/<name>.json; empty if it does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_result(name: str, result: Mapping[str, Any]) -> None:
    """Write benchmarks/results/<name>.json."""
    machine = {"processor": processor(), "versions": versions(), "python": platform.python_version()}
    RESULTS.mkdir(exist_ok=True)
    with replacing(RESULTS / f"{name}.json") as part:
        text = json.dumps({"machine": machine, **result}, indent=2, ensure_ascii=False)
        part.write_text(f"{text}\n", encoding="utf-8")
