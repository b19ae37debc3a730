"""What a stage writes down for the next one, and for a run that goes on: small JSON files, written whole."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.files import read_small_text


def read_json(path: Path, keys: Iterable[str] = ()) -> dict[str, Any] | None:
    """The content of a file that has these keys; None if there is no file."""
    if not path.exists():
        return None
    try:
        content = dict(json.loads(read_small_text(path)))
    except (ValueError, TypeError, RecursionError):
        content = None
    if content is None or any(key not in content for key in keys):
        raise FileError(f"{path}: cannot be read; remove it, and this stage is done again")
    return content
