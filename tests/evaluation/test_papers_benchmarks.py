"""The commands of docs/evaluation.md that reproduce Table 2 and Figures 3 and 4, run whole on made archives."""

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import good
from made_archives import PROTOCOL, write_archive
from PIL import Image

from matchkernel.data.hpatches import IMAGES, PatchList, draw_verification, write_tasks

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"
RECORD = """#!/bin/bash
printf '%q ' "$@" >> commands.txt; echo >> commands.txt
[ "$1" != train ] || { mkdir -p "$4"; touch "$4/final.safetensors"; }
[ "$1 $2" != "data pack" ] || mkdir -p "$5"
"""
TINY = '[sampling]\nsteps = 2\npairs = 16\n[loop]\nprecision = "fp32"\n'
WHOLE = {' "mkd --training-set sets/liberty"': ""}  # whose whitening needs more patches than made archives have
SMALL = {
    '"liberty notredame yosemite"': '"liberty notredame"',
    '"0 1 2"': '"0"',
    "cartesian polar combined": "polar",
    'train liberty $seed fc "" 64; train liberty $seed dual 2 64': ":",
    'brief orb sift rootsift "mkd --training-set sets/liberty"': "sift",
}


def the_block():
    text = PAGE.read_text(encoding="utf-8").split("## The paper's benchmarks")[1]
    return re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def expanded(block, folder):
    """The commands that bash makes of a block, by a program of that name that writes them down."""
    (folder / "bin").mkdir()
    (folder / "bin" / "matchkernel").write_text(RECORD)
    (folder / "bin" / "matchkernel").chmod(0o755)
    path = f"{folder / 'bin'}:/usr/bin:/bin"
    subprocess.run(["bash", "-e", "-c", block], cwd=folder, env={"PATH": path}, check=True)
    shutil.rmtree(folder / "runs")
    shutil.rmtree(folder / "sets")
    return [shlex.split(line) for line in (folder / "commands.txt").read_text().splitlines()]


def write_benchmarks(folder, sets):
    for seed, name in enumerate(sets):
        write_archive(folder / name, seed, (500, 100_000))
    random, count, names = np.random.default_rng(0), 20, ("i_one", "v_two")
    for name in names:
        base = random.integers(0, 256, (count * 13, 13), np.uint8).repeat(5, 0).repeat(5, 1).astype(int)
        (folder / "hpatches-release" / name).mkdir(parents=True)
        for image in IMAGES:
            noisy = (base + random.normal(0, 40, base.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / "hpatches-release" / name / f"{image}.png")
    tasks = folder / "hpatches-benchmark" / "tasks"
    tasks.mkdir(parents=True)
    counts = dict.fromkeys(names, count)
    for split in "abc":
        queries = PatchList(np.repeat(names, count), np.zeros(2 * count, int), np.tile(np.arange(count), 2))
        write_tasks(tasks, split, draw_verification(counts, names, 60), queries, queries)
    splits = {split: {"test": list(names), "train": []} for split in "abc"}
    (tasks / "splits.json").write_text(json.dumps(splits))
    (folder / "configs").mkdir()
    (folder / "configs" / "paper.toml").write_text((PAGE.parents[1] / "configs" / "paper.toml").read_text() + TINY)


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_block_gives_table_2_and_the_figures(is_whole, tmp_path, monkeypatch):
    block = the_block()
    for long, short in WHOLE.items() if is_whole else SMALL.items():
        assert long in block
        block = block.replace(long, short)
    sets, seeds = ("liberty", "notredame", "yosemite")[: 3 if is_whole else 2], 3 if is_whole else 1
    write_benchmarks(tmp_path, sets)
    monkeypatch.chdir(tmp_path)
    for command in expanded(block, tmp_path):
        good(*command)
    report = json.loads(Path("page/report.json").read_text())
    first, other = report["sections"][:2]
    assert (first["title"], other["title"]) == ("Patch pairs, m50", "Patch pairs, m50_500_500_0")
    assert PROTOCOL in first["note"]
    grid = first["blocks"][0]
    pairs = [f"{train} → {test}" for train in sets for test in sets if train != test]
    assert grid["columns"] == ["mean", *pairs]
    rows = {row["name"]: row for row in grid["rows"]}
    assert rows.keys() == {"fc-n32", "dual-s1-n32", "dual-s2-n32"}
    assert all(len(row["scores"][column]["runs"]) == seeds for row in rows.values() for column in grid["columns"])
    scored = [json.loads(path.read_text()) for path in Path("results").glob("hpatches-*.json")]
    ours = Counter((result["configuration"], result["split"]) for result in scored if "configuration" in result)
    assert set(ours.values()) == {seeds}
    assert len(ours) == 3 * (13 if is_whole else 7)  # splits, and models trained on liberty
    assert len(scored) - ours.total() == 3 * (4 if is_whole else 1)  # baselines
    assert Path("figure_3.png").stat().st_size < Path("figure_4.png").stat().st_size
