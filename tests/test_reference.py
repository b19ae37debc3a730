"""The Python reference: every public function is on a page of docs/api, with an example that runs by itself."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import matchkernel

PAGES = sorted((Path(__file__).parents[1] / "docs" / "api").glob("*.md"))


def listed():
    """The functions and classes that the pages name, by their whole names."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        yield from re.findall(r"auto(?:function|class):: ([\w.]+)", text)
        for module, members in re.findall(r"automodule:: ([\w.]+)\n +:members: (.+)", text):
            yield from (f"{module}.{name.strip()}" for name in members.split(","))


def found(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


NAMES = list(listed())
FUNCTIONS = [name for name in NAMES if not isinstance(found(name), type)]


def test_every_name_of_the_package_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in matchkernel.__all__ if f"matchkernel.{name}" not in pages]
    assert missing == ["VARIANTS", "MatchKernelError"]  # a table of names; in errors.md, as a member


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = found(name)
    if other := re.search(r"Example: see (\w+)\.", function.__doc__):
        assert f"{name.rpartition('.')[0]}.{other[1]}" in FUNCTIONS
        return
    examples = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
    assert sum(len(example.examples) for example in examples) > 0, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for example in examples:
        assert runner.run(example).failed == 0
