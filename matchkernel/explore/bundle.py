"""Facts and arrays in one piece of bytes, which the page reads without copying (page/bundle.js).

Layout: the length of the header as 4 bytes, little endian; the header, JSON with `facts` and, for each array, its
type, shape and place; zeros up to a multiple of 8; the arrays, each at a multiple of 8 bytes.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

TYPES = {"u1": "<u1", "i1": "<i1", "u2": "<u2", "u4": "<u4", "f4": "<f4"}
ALIGNED = 8


def pack(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Bytes that hold the facts (JSON values) and the arrays; types other than those of TYPES are a KeyError."""
    pieces, table, start = [], {}, 0
    for name, array in arrays.items():
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        data = np.ascontiguousarray(array).astype(TYPES[kind], copy=False).tobytes()
        table[name] = {"type": kind, "shape": list(array.shape), "start": start}
        pieces += [data, bytes(-len(data) % ALIGNED)]
        start += len(data) + -len(data) % ALIGNED
    header = json.dumps({"facts": facts, "arrays": table}, allow_nan=False).encode()
    header += b" " * (-(len(header) + 4) % ALIGNED)
    return b"".join([len(header).to_bytes(4, "little"), header, *pieces])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of `pack`."""
    end = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:end])
    arrays = {}
    for name, entry in header["arrays"].items():
        count = int(np.prod(entry["shape"]))
        found = np.frombuffer(data, TYPES[entry["type"]], count, end + entry["start"])
        arrays[name] = found.reshape(entry["shape"])
    return header["facts"], arrays
