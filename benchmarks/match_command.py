"""`matchkernel match a b` as a command: seconds and memory, next to the same command with torch imported.

python benchmarks/match_command.py                    # torch is imported before the command line, as 0.1 did
python benchmarks/match_command.py --before CHECKOUT  # the command line of another checkout instead
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import write_result

from matchkernel.data.sample_pair import FOLDER

REPEATS = 5
KEYPOINTS = 2000
NOW = "matchkernel match"
RUN = "from matchkernel.cli.entry import main; main()"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="checkout of an older version")
    before = parser.parse_args().before
    commands = {NOW: (RUN, os.getcwd())}  # noqa: PTH109
    if before is None:
        commands["the same, torch imported"] = (f"import torch; {RUN}", commands[NOW][1])
    else:
        commands["version 0.1"] = (RUN, str(before.resolve()))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for model in ("light-wide", "tiny"):
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(REPEATS + 1):  # the first fills the caches of the disk
            for name, (code, checkout) in commands.items():
                runs[name].append(measure(code, checkout, model))
        found[model] = {
            name: {key: round(statistics.median(run[key] for run in own[1:]), 3) for key in own[0]}
            for name, own in runs.items()
        }
        ours, other = found[model][NOW], next(found[model][name] for name in commands if name != NOW)
        for name, numbers in found[model].items():
            told = ", ".join(f"{key} {value:g}" for key, value in numbers.items())
            print(f"{model:10}  {name:26}  {told}")
        for key in ("seconds", "megabytes"):
            found[model][NOW][f"share_of_{key}"] = round(ours[key] / other[key], 3)
            print(f"{model:10}  share of {key}: {ours[key] / other[key]:.3f}")
    write_result("match_command", {"keypoints": KEYPOINTS, "repeats": REPEATS, "found": found})


def table(found: dict[str, dict[str, dict[str, float]]], demo: dict[str, float]) -> str:
    """The measurements as Markdown, for docs/install.md."""
    lines = ["| | seconds | of them before and after the work | MB of memory |", "|---|---|---|---|"]
    for model, commands in found.items():
        for name, numbers in commands.items():
            values = f"{numbers['seconds']:.1f} | {numbers['above_work']:.2f} | {numbers['megabytes']:.0f}"
            lines.append(f"| `match --model {model}`, {'this version' if name == NOW else name} | {values} |")
        ours = commands[NOW]
        shares = f"{ours['share_of_seconds']:.2f} | | {ours['share_of_megabytes']:.2f}"
        lines.append(f"| the same, as a share | {shares} |")
    return "\n".join([*lines, f"| `make demo` from nothing | {demo['seconds']:.0f} | | |", ""])


def measure(code: str, checkout: str, model: str) -> dict[str, float]:
    """Seconds of a process, those of its own work, and its largest memory, for two photos of 741 x 500 pixels."""
    photos = [str(FOLDER / f"{side}.png") for side in ("left", "right")]
    arguments = ["match", *photos, "--model", model, "--keypoints", str(KEYPOINTS), "--json"]
    environment = {**os.environ, "PYTHONPATH": checkout}
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=out,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=checkout,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, f"exit code {process.returncode}"
        out.seek(0)
        work = sum(json.loads(out.read())["seconds"].values())
    return {"seconds": seconds, "work": work, "above_work": seconds - work, "megabytes": usage.ru_maxrss / 1024}


if __name__ == "__main__":
    main()
