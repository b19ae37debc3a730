"""The files of hloc under their documented name; see feature_files.py and match_files.py."""

from matchkernel.photos.feature_files import append_features, image_names, read_features, write_features
from matchkernel.photos.match_files import PairMatches, read_matches, write_matches

__all__ = [
    "PairMatches",
    "append_features",
    "image_names",
    "read_features",
    "read_matches",
    "write_features",
    "write_matches",
]
