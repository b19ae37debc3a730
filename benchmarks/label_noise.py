"""The accuracy of geometric positives on rendered scenes with known ground truth."""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from timing import write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_scene import measure_label_noise, render_scene


def main() -> None:
    """Measure, print, write."""
    rows = []
    for seed in range(3):
        with tempfile.TemporaryDirectory() as folder:
            render_scene(Path(folder), seed=seed)
            noise = measure_label_noise(folder)
        rows.append({"seed": seed, **asdict(noise)})
        print(
            f"scene {seed}: {noise.found} geometric positives, {100 * noise.wrong_share:.2f} % wrong, "
            f"median offset {noise.median_offset:.3f} half widths, {100 * noise.recall:.0f} % of the missed found"
        )
    write_result("label_noise", {"scenes": rows})


if __name__ == "__main__":
    main()
