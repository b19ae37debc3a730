"""The page about installing has the sizes that were measured, of every extra that weighs anything."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_table_of_sizes_is_the_measured_one(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from install_size import PURPOSES, table
    from timing import read_result

    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert table(read_result("install_size")["megabytes"]) in page
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"core", *(name for name, needs in extras.items() if needs)} - {"demo", "docs"} == set(PURPOSES)
