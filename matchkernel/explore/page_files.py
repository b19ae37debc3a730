"""The files of the page, from a fixed list, and arrays as page/source.js reads them."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from safetensors.numpy import save

# In the order in which save.py joins the scripts: a script imports only from those before it.
SCRIPTS = (
    "words.js",
    "source.js",
    "filter.js",
    "viewport.js",
    "drawing.js",
    "maps.js",
    "downloads.js",
    "details.js",
    "panel.js",
    "curve.js",
    "film.js",
    "inside.js",
    "chooser.js",
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


def pack(facts: Any, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays of unsigned integers and floats of at most 32 bits, and facts, which are JSON values, as safetensors.

    The library sorts arrays by the size of their type, so that each begins at a multiple of it, as typed arrays must.
    """
    return save(dict(arrays), metadata={"facts": json.dumps(facts, allow_nan=False)})
