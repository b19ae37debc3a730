"""Damaged and malicious files for tests of readers."""

import os

from hypothesis import strategies as st


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """The content, cut short or not, with up to four bytes changed."""
    changed = bytearray(content)
    if data.draw(st.booleans()):
        changed = changed[: data.draw(st.integers(0, len(changed)))]
    for _ in range(data.draw(st.integers(0, 4)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed)


class Evil:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)
