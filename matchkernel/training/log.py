"""The log of a run: one JSON object a line, and TensorBoard events where asked for."""

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from matchkernel.errors import FileError, MissingExtraError, WriteError
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing

LOG = "log.jsonl"


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """The entries of a log; a last line cut by a kill is left out, anything else that is no entry is refused."""
    path = Path(path)
    lines = read_small_text(path, LONG_TEXT, what="a training log", errors="replace").split("\n")
    entries = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise FileError(f"{path}, line {number}: not an entry of a training log; remove that line to go on")
        entries.append(entry)
    return entries


class Log:
    """Append entries to <folder>/log.jsonl, each written out at once; entries after `step` of a run resumed go."""

    def __init__(self, folder: Path, step: int, *, tensorboard: bool = False) -> None:
        self.path = folder / LOG
        kept = [entry for entry in read_log(self.path) if entry["step"] <= step] if self.path.exists() and step else []
        with replacing(self.path) as part:
            part.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        self.board = _board(folder, step) if tensorboard else None

    def write(self, step: int, event: str, **values: Any) -> None:
        """Add an entry."""
        try:
            self.file.write(json.dumps({"step": step, "event": event, **values}) + "\n")
            self.file.flush()
        except OSError as error:
            raise WriteError(f"{self.path}: could not be written ({error.strerror}); resume with --resume") from None
        for name, value in values.items():
            if self.board is not None and isinstance(value, float):
                self.board.add_scalar(f"{event}/{name}", value, step)

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a full disk was told by write
            self.file.close()
        if self.board is not None:
            self.board.close()


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("loop.tensorboard needs tensorboard: pip install 'matchkernel[tensorboard]'") from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step)
