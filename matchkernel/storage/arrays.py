"""Arrays from .npy files, mapped into memory and never unpickled."""

from pathlib import Path

import numpy as np

from matchkernel.errors import FileError


def map_npy(path: str | Path) -> np.ndarray:
    """Memory-map a .npy file; whatever is wrong with it is a FileError of one line."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy's header parser lets tokenize and struct errors through
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise FileError(f"{path}: not a whole .npy array ({reason})") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise FileError(f"{path}: an .npz archive, not a .npy array")
    return array
