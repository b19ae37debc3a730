"""Documents that cannot rot: their code runs, their links lead somewhere, their map of the code is true."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import write_sequence
from PIL import Image

from matchkernel.data.phototourism import write_mosaics, write_tables
from matchkernel.model.overview import overview
from matchkernel.model.table_1 import table_1

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MAP = ROOT / "docs" / "paper_map.md"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder_of_a_user(tmp_path, rendered):
    """A folder with the files the pages speak of."""
    generator = np.random.default_rng(0)
    np.save(tmp_path / "patches.npy", generator.integers(0, 256, (5, 32, 32), dtype=np.uint8))
    Image.fromarray(generator.integers(0, 256, (5 * 65, 65), dtype=np.uint8)).save(tmp_path / "ref.png")
    (tmp_path / "liberty").mkdir()
    write_mosaics(tmp_path / "liberty", generator.integers(0, 256, (300, 64, 64), dtype=np.uint8))
    write_tables(tmp_path / "liberty", np.repeat(np.arange(100), 3), np.zeros((300, 5)), {})
    write_sequence(tmp_path / "sequences" / "v_texture")
    shutil.copytree(rendered, tmp_path / "scene")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run_as_pasted(page, folder_of_a_user):
    code = "\n".join(blocks(page, "python"))
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder_of_a_user, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    for line in "".join(blocks(page, "console")).splitlines():
        command = shlex.split(line.removeprefix("$ "))
        if command[0] != "matchkernel":
            assert command[0] in ("make", "pip"), f"{page.name}: nothing runs {line!r}"
            continue
        if "from-photos" in command and shutil.which("colmap") is None:
            continue  # its own tests say that they are skipped
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder_of_a_user, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_named_in_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def definitions(path):
    """Functions, classes and methods of a file, methods as Class.method."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def test_every_place_in_the_map_is_there():
    places = re.findall(r"`([\w/]+\.py): ([\w.]+)`", MAP.read_text(encoding="utf-8"))
    assert len(places) > 30
    for file, name in places:
        assert name in definitions(ROOT / file), f"{file}: {name}"


def test_every_label_in_the_code_is_in_the_map_and_cited():
    known = set(re.findall(r"^\| \[(M\d+)\]", MAP.read_text(encoding="utf-8"), re.MULTILINE))
    cited = set()
    for path in (ROOT / "matchkernel").rglob("*.py"):
        for group in re.findall(r"\[(M\d+[^\]]*)\]", path.read_text()):
            cited |= set(re.findall(r"M\d+", group))
    assert cited == known


def test_counts_in_the_readme_are_the_models():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    counts = [row.total for row in table_1()] + [row.parameters for row in overview()]
    assert all(f"{count:,}" in readme for count in counts)
