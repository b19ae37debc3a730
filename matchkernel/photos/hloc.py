"""The files of hloc under their documented name; see files.py."""

from matchkernel.photos.files import (
    PairMatches,
    append_features,
    image_names,
    read_features,
    read_matches,
    write_features,
    write_matches,
)

__all__ = [
    "PairMatches",
    "append_features",
    "image_names",
    "read_features",
    "read_matches",
    "write_features",
    "write_matches",
]
