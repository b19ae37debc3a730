"""The files of the page, from a fixed list; nothing else in the folder can be asked for."""

from functools import cache
from importlib.resources import files

# In the order in which save.py joins the scripts: a script imports only from those before it.
SCRIPTS = (
    "maps.js",
    "source.js",
    "filter.js",
    "viewport.js",
    "drawing.js",
    "downloads.js",
    "details.js",
    "panel.js",
    "curve.js",
    "inside.js",
    "main.js",
)
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    **dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8"),
}


@cache
def page_file(name: str) -> str:
    """The text of one of the files of TYPES; another name is a KeyError."""
    _ = TYPES[name]
    return files("matchkernel.explore").joinpath("page", name).read_text(encoding="utf-8")
