"""Lists of pairs under their documented name; see photos/pair_lists.py."""

from matchkernel.photos.pair_lists import read_pairs, write_pairs

__all__ = ["read_pairs", "write_pairs"]
