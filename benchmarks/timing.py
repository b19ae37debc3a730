"""What the benchmarks share: fair repeats in one run, and results as JSON with the machine they came from."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matchkernel.storage.files import replacing
from matchkernel.storage.system import cores

RESULTS = Path(__file__).parent / "results"


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


def read_result(name: str) -> dict[str, Any]:
    """The contents of benchmarks/results/<name>.json; empty if it does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_result(name: str, result: Mapping[str, Any]) -> None:
    """Write benchmarks/results/<name>.json."""
    machine = {"cores": os.cpu_count(), "architecture": platform.machine(), "python": platform.python_version()}
    RESULTS.mkdir(exist_ok=True)
    torch = sys.modules.get("torch")
    threads = {"torch": torch.__version__, "threads": torch.get_num_threads()} if torch else {"threads": cores()}
    content = {"machine": {**machine, **threads}, **result}
    with replacing(RESULTS / f"{name}.json") as part:
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
