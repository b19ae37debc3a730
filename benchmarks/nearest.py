"""Exact nearest neighbours on a CPU: seconds with numpy, the default, and with torch, which GPUs use."""

from functools import partial

import numpy as np
import torch  # noqa: F401 - loaded before anything is measured
from timing import interleaved_medians, write_result

from matchkernel.photos.nearest import find_nearest


def main() -> None:
    """Measure, print, write."""
    random, found = np.random.default_rng(0), {}
    for count in (2000, 8000):
        rows = [random.normal(size=(count, 128)).astype(np.float32) for _ in range(2)]
        a, b = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in rows)
        jobs = {"numpy": partial(find_nearest, a, b), "torch": partial(find_nearest, a, b, device="cpu:0")}
        seconds = interleaved_medians(jobs)
        found[str(count)] = {**{name: round(value, 4) for name, value in seconds.items()}}
        found[str(count)]["share"] = round(seconds["numpy"] / seconds["torch"], 3)
        print(count, found[str(count)])
    write_result("nearest", {"seconds": found})


if __name__ == "__main__":
    main()
