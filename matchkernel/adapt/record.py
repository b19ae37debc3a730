"""What an adaptation has done so far, so that a later run goes on: one JSON file, rewritten whole after each stage."""

import json
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.files import read_small_text, write_json

RECORD = "adapt.json"


class Record(dict[str, Any]):
    """The results of finished stages by name, as JSON values.

    Args:
        folder: its adapt.json is read if it is there.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / RECORD
        if self.path.exists():
            try:
                self.update(json.loads(read_small_text(self.path)))
            except (ValueError, TypeError, RecursionError):
                raise FileError(f"{self.path}: is not a valid JSON object; choose another --out") from None

    def finish(self, stage: str, result: Any) -> None:
        """Keep the result of a stage."""
        self[stage] = result
        write_json(self.path, self)
