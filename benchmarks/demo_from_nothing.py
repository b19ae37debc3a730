"""`make demo` in a fresh clone without `.venv`, from the public package index: seconds, and megabytes of `.venv`."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import write_result

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from public_index import public_environment  # noqa: E402 - after its folder is known


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        start = time.perf_counter()
        subprocess.run(["make", "demo"], cwd=clone, env=public_environment(), check=True)
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in (clone / ".venv").rglob("*") if path.is_file()) / 1e6
    print(f"{seconds:.1f} s, .venv {size:.0f} MB")
    write_result("demo_from_nothing", {"seconds": round(seconds, 1), "megabytes": round(size)})


if __name__ == "__main__":
    main()
