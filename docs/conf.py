"""The documentation site: `make docs` builds it into out/site, offline, and a warning is an error."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

import matchkernel
from matchkernel.cli.app import VERBS, app, load_verb

ROOT = Path(__file__).parents[1]

project = "matchkernel"
author = "The matchkernel maintainers"
copyright = "2026, the matchkernel maintainers"  # noqa: A001
version = release = matchkernel.__version__

# The root of the repository is the source, so that links work here as they do in a checkout.
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "experiments/README.md",
    "experiments/reports/**",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
nitpicky = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"matchkernel {release}"
html_extra_path = ["site_root"]  # index.html, which leads to docs/index.html
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["tables.css"]


def write_commands() -> None:
    """Write docs/commands.md from the command line's own help; each verb is loaded first."""
    group = get_command(app)
    group.commands = {name: load_verb(name) for name in VERBS}
    for name, verb in group.commands.items():
        verb.name = name
        for command in getattr(verb, "commands", {}).values():  # otherwise summaries are cut at 45 characters
            command.short_help = (command.help or "").partition("\n\n")[0].replace("\n", " ")
    text = get_docs_for_click(obj=group, ctx=typer.Context(group), name="matchkernel")
    text = re.sub(r"^# `matchkernel`", "# Commands", text)
    for name, line in VERBS.items():  # the list of verbs has whole sentences
        text = re.sub(
            rf"^\* `{name}`: .*$", f"* [`{name}`](#matchkernel-{name}): {line}", text, count=1, flags=re.MULTILINE
        )
    path = ROOT / "docs" / "commands.md"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def explain_settings(_app: Any, kind: str, _name: str, found: Any, _options: Any, lines: list[str]) -> None:
    """Explain the fields of a dataclass of settings by the help of the options that are derived from them."""
    if kind == "class" and dataclasses.is_dataclass(found):
        helped = {field.name: field.metadata.get("help") for field in dataclasses.fields(found)}
        lines += [f"* ``{name}``: {text}" for name, text in helped.items() if text]


def setup(sphinx: Any) -> None:
    """Called by Sphinx."""
    sphinx.connect("autodoc-process-docstring", explain_settings)


write_commands()
