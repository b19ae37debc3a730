"""Lists of pairs under their documented name; see photos/files.py."""

from matchkernel.photos.files import read_pairs, write_pairs

__all__ = ["read_pairs", "write_pairs"]
