"""Random reads from a memory-mapped set, in batches of 1024, in patches per second."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from timing import interleaved_medians, write_result

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic

BATCH, BATCHES = 1024, 100


def read(patches: np.ndarray, batches: list[np.ndarray]) -> None:
    """Gather batch after batch."""
    for rows in batches:
        patches[rows]


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        build_synthetic(target, SyntheticSettings(points=10_000, patches=4, light=0))
        patches = open_patch_set(target).patches
        random = np.random.default_rng(0)
        batches = [random.integers(len(patches), size=BATCH) for _ in range(BATCHES)]
        seconds = interleaved_medians({"random": partial(read, patches, batches)})["random"]
    rate = round(BATCH * BATCHES / seconds)
    print(f"{len(patches):,} patches of 64 x 64, batches of {BATCH}: {rate:,} random patches/s")
    write_result("random_reads", {"patches": len(patches), "batch": BATCH, "patches_per_second": rate})


if __name__ == "__main__":
    main()
