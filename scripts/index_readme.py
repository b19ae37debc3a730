"""The README as a package index shows it: there, a path of this repository leads nowhere.

Hatchling calls this when it builds. With a `Repository` in [project.urls] paths become addresses there; without one,
pictures are left out and links become plain words. Code blocks stay as they are.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"^```.*?^```$|(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)", re.MULTILINE | re.DOTALL)


def for_index(text: str, repository: str | None) -> str:
    """A page of Markdown whose links and pictures work anywhere."""

    def replaced(match: re.Match[str]) -> str:
        is_picture, words, path = match.groups()
        if path is None:
            return match[0]  # a block of code
        if repository is None:
            return "" if is_picture else words
        return f"{is_picture}[{words}]({repository}/{'raw' if is_picture else 'blob'}/HEAD/{path})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(replaced, text))


class ReadmeHook(MetadataHookInterface):
    """Fills the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text to the metadata of the project."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        shown = for_index(text, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
