"""Documents that cannot rot: their code runs, their links lead somewhere, their map of the code is true."""

import ast
import re
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from commands import good
from helpers import write_sequence
from made_networks import write_networks
from PIL import Image

from matchkernel.data import sample_pair
from matchkernel.data.phototourism import write_mosaics, write_tables
from matchkernel.runtime.overview import overview, table_1

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "commands.md"})]
MAP = ROOT / "docs" / "paper_map.md"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def write_files(folder, text, request):
    """Write those of the files the pages speak of that a text names."""
    generator = np.random.default_rng(0)
    if "patches.npy" in text:
        np.save(folder / "patches.npy", generator.integers(0, 256, (5, 32, 32), dtype=np.uint8))
    if "ref.png" in text:
        Image.fromarray(generator.integers(0, 256, (5 * 65, 65), dtype=np.uint8)).save(folder / "ref.png")
    if " liberty " in text:
        (folder / "liberty").mkdir()
        write_mosaics(folder / "liberty", generator.integers(0, 256, (300, 64, 64), dtype=np.uint8))
        write_tables(folder / "liberty", np.repeat(np.arange(100), 3), np.zeros((300, 5)), {})
    if " sequences " in text and "sequences/" not in text:
        write_sequence(folder / "sequences" / "v_texture", side=200)
    for place in (folder, folder / "out" / "demo"):
        place.mkdir(parents=True, exist_ok=True)
        for photo in (sample_pair.FOLDER / "left.png", sample_pair.FOLDER / "right.png"):
            shutil.copy(photo, place)
    if "AffNet.pth" in text:
        write_networks(folder)
    if " scene/" in text:
        shutil.copytree(request.getfixturevalue("rendered"), folder / "scene")


def smaller_sample(folder):
    """The photos of the demo at a fifth of the side."""
    folder.mkdir()
    shutil.copy(sample_pair.FOLDER / "disparity.png", folder)
    for name in ("left.png", "right.png"):
        with Image.open(sample_pair.FOLDER / name) as image:
            image.reduce(5).save(folder / name)
    return folder


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.name, marks=[pytest.mark.slow] if page.name in ("evaluation.md", "training.md") else []
        )
        for page in PAGES
        if blocks(page, "python") or blocks(page, "console")
    ],
)
def test_code_blocks_run_as_pasted(page, tmp_path, monkeypatch, request):
    """In this process, as each new one would import torch again, and on photos of a fifth of the size."""
    code, commands = "\n".join(blocks(page, "python")), "".join(blocks(page, "console"))
    monkeypatch.setattr(sample_pair, "FOLDER", smaller_sample(tmp_path / "sample"))
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, code + commands, request)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
        for line in commands.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            if Path(program).name != "matchkernel":
                assert program in ("make", "pip"), f"{page.name}: nothing runs {line!r}"
            elif not {"from-photos", "colmap"} & set(arguments) or shutil.which(
                "colmap"
            ):  # else its own tests say they are skipped
                good(*arguments)


def anchors(page):
    """What links to the headings of a page end with, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = [title.lower() for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return [re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles]


def test_links_lead_somewhere():
    for page in (*PAGES, *(ROOT / "experiments").rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            file, _, anchor = target.partition("#")
            place = page.parent / file if file else page
            assert place.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(place), f"{page.name}: {target}"


def test_the_gallery_shows_every_picture():
    shown = set(re.findall(r"\]\(images/([^)]+)\)", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")))
    assert shown == {path.name for path in (ROOT / "docs" / "images").iterdir()}


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


def test_counts_of_parameters_are_those_of_the_models():
    page = (ROOT / "docs" / "start_paper.md").read_text(encoding="utf-8")
    counts = [row.total for row in table_1()] + [row.parameters for row in overview()]
    assert all(f"{count:,}" in page for count in counts)
