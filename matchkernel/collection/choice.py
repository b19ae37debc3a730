"""Which pairs of images a user asks for, such as "top:20+sequential:5"."""

import re
from dataclasses import dataclass
from pathlib import Path

from matchkernel.errors import ArgumentError

TOP = 20  # most similar images of each
NEIGHBOURS = 10  # following images in name order
ALL_UP_TO = 120  # maximum number of images of which "auto" matches all pairs
CHOICE = "all, top:20, sequential:10, a file of pairs, or several joined by +"


@dataclass(frozen=True)
class PairChoice:
    """Which pairs to match: the union of what is set.

    Attributes:
        exhaustive: all pairs.
        top: each image with this many most similar ones; 0 for none.
        sequential: each image with this many following ones in name order; 0 for none.
        files: files of pairs.
    """

    exhaustive: bool = False
    top: int = 0
    sequential: int = 0
    files: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The choice as parse_choice reads it, with "auto" resolved."""
        parts = ["all"] * self.exhaustive
        parts += [f"{kind}:{number}" for kind in ("top", "sequential") if (number := getattr(self, kind))]
        return "+".join([*parts, *map(str, self.files)])


def parse_choice(text: str, images: int) -> PairChoice:
    """The choice that a string such as "top:20+sequential:5" stands for.

    Example:
        >>> parse_choice("top:5+sequential", images=1000)
        PairChoice(exhaustive=False, top=5, sequential=10, files=())

    Args:
        text: see CHOICE; "auto" is all pairs of up to 120 images, and top:20 of more.
        images: number of images.
    """
    if text == "auto":
        return PairChoice(exhaustive=True) if images <= ALL_UP_TO else PairChoice(top=TOP)
    numbers, files = {"top": 0, "sequential": 0}, []
    parts = text.split("+") if not Path(text).is_file() else [text]
    for part in parts:
        counted = re.fullmatch(r"(top|sequential)(?::(\d{1,9}))?", part)
        if counted:
            number = int(counted[2] or {"top": TOP, "sequential": NEIGHBOURS}[counted[1]])
            if not number:
                raise ArgumentError(f"pairs {part!r}: the number must be at least 1")
            numbers[counted[1]] = max(numbers[counted[1]], number)
        elif part != "all":
            if not Path(part).is_file():
                raise ArgumentError(f"pairs must be {CHOICE}; got {text!r}, and there is no file {part!r}")
            files.append(Path(part))
    return PairChoice("all" in parts, numbers["top"], numbers["sequential"], tuple(files))
