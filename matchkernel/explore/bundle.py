"""Arrays and facts for the page as one piece of bytes in safetensors' format, which page/source.js reads.

The library sorts arrays by the size of their type, so that each begins at a multiple of it, as typed arrays must.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import save


def pack(facts: Any, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays of unsigned integers and floats of at most 32 bits, and facts, which are JSON values."""
    return save(dict(arrays), metadata={"facts": json.dumps(facts, allow_nan=False)})
