"""The speeds in docs/describe.md are those of the stored benchmarks."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "describe.md").read_text(encoding="utf-8")
ENGINES = ("torch", "onnx", "onnx-int8")


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def cells(line):
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_patches_per_second_and_ratios():
    rows = stored("describe_speed")["rows"]
    shown = re.findall(r"^\| `([\w-]+)` \|(.*×\)) \|$", PAGE, re.MULTILINE)
    assert {name for name, _ in shown} == {key.split(",")[0] for key in rows if key.endswith(", torch")}
    for name, line in shown:
        wanted = [rows[f"{name}, {engine}"]["1"] for engine in ENGINES]
        text = [f"{row['patches_per_second']:,} ({row['times_hardnet_at_its_best']:.2f} ×)" for row in wanted]
        assert cells(line) == text, name
    for threads in ("1", "2"):
        best = max(row[threads]["patches_per_second"] for key, row in rows.items() if "HardNet" in key)
        assert f"{best:,} patches" in PAGE
    for name in ("tiny", "light", "dual"):
        both = rows[f"{name}, onnx-int8"]["2"]
        assert f"{both['patches_per_second']:,} ({both['times_hardnet_at_its_best']:.2f} ×)" in PAGE


def test_a_pair_of_photos():
    seconds = {row["method"]: row["seconds"] for row in stored("photo_pair")["rows"]}
    said = (
        "takes {:.2f} s with the defaults, {:.2f} s with `--engine torch` and {:.2f} s with RootSIFT,"
        " {:.2f} s with `--model tiny`"
    )
    methods = ("light-wide, onnx-int8", "light-wide, torch", "rootsift", "tiny, onnx-int8")
    assert said.format(*(seconds[method] for method in methods)) in " ".join(PAGE.split())


@pytest.mark.parametrize(("line", "way"), [
    ("engine `torch`, from bytes on the GPU", "torch, CUDA bytes"),
    ("engine `cuda-half`, from bytes on the GPU", "cuda-half, CUDA bytes"),
    ("engine `cuda-half`, from a numpy array", "cuda-half, host array"),
    ("engine `cuda-half`, from a numpy array with `out=`", "cuda-half, host array, out="),
])  # fmt: skip
def test_speed_on_a_gpu(line, way):
    rows = stored("describe_gpu")["rows"]
    speeds = [f"{rows[name]['patches_per_s'][way]:,}" for name in ("light", "dual", "tiny")]
    assert f"| {line} | {' | '.join(speeds)} |" in PAGE
