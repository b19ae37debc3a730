"""Run time in seconds of commands that do almost nothing, next to Python's own start-up time."""

import subprocess
import sys
from functools import partial

from timing import interleaved_medians, write_result

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    'python -c "import torch"': ["-c", "import torch"],
    "matchkernel --help": ["-m", "matchkernel", "--help"],
    "matchkernel --version": ["-m", "matchkernel", "--version"],
    "matchkernel info": ["-m", "matchkernel", "info"],
    "matchkernel --hepl": ["-m", "matchkernel", "--hepl"],
    "matchkernel match --help": ["-m", "matchkernel", "match", "--help"],
    "matchkernel train --hepl": ["-m", "matchkernel", "train", "--hepl"],
}


def main() -> None:
    """Measure, print, write."""
    run = partial(subprocess.run, capture_output=True, check=False)
    jobs = {name: partial(run, [sys.executable, *arguments]) for name, arguments in COMMANDS.items()}
    seconds = {name: round(median, 3) for name, median in interleaved_medians(jobs).items()}
    for name, median in seconds.items():
        print(f"{median:6.2f} s  {name}")
    write_result("start_up", {"seconds": seconds})


if __name__ == "__main__":
    main()
