"""Files of Torch 7: what is in them comes out, and whatever is wrong with them is one line."""

import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import torch
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_paper_baselines import torch7_bytes

from experiments.baselines.torch7 import TorchObject, read_torch7
from matchkernel.errors import FileError, WeightsError

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.dictionaries(st.text(max_size=4) | st.floats(allow_nan=False), inner, max_size=4),
    max_leaves=12,
)
LONG = struct.Struct("<q")


@given(content=VALUES, bad=st.binary(max_size=200), dtype=st.sampled_from([torch.float32, torch.float64, torch.int64]))
def test_what_was_written_is_read_and_other_bytes_are_read_or_refused(content, bad, dtype, tmp_path):
    path, tensor = tmp_path / "file", torch.arange(24).reshape(2, 3, 4).to(dtype)
    path.write_bytes(
        torch7_bytes({"values": content, "t": tensor, "none": tensor[:0, 0, 0], "o": ("nn.Tanh", {"a": 1.0})})
    )
    found = read_torch7(path)
    assert found["values"] == content
    assert found["t"].dtype == dtype
    assert torch.equal(found["t"], tensor)
    assert found["none"].shape == (0,)
    assert found["o"] == TorchObject("nn.Tanh", {"a": 1.0})
    path.write_bytes(bad)
    with suppress(WeightsError):
        read_torch7(path)


def test_tensors_that_share_a_storage_and_objects_named_twice(tmp_path):
    """A view by offset and strides into the storage of another, and a table that contains itself."""
    storage = struct.pack("<iii", 4, 3, 3) + b"V 1" + struct.pack("<i", 18) + b"torch.FloatStorage"
    storage += LONG.pack(6) + torch.arange(6.0).numpy().tobytes()

    def tensor(reference, size, stride, offset, behind):
        head = struct.pack("<iii", 4, reference, 3) + b"V 1" + struct.pack("<i", 17) + b"torch.FloatTensor"
        return head + struct.pack("<iqqqqq", 2, *size, *stride, offset) + behind

    again = struct.pack("<ii", 4, 3)
    whole = [tensor(2, (2, 3), (3, 1), 1, storage), tensor(4, (2, 2), (1, 3), 2, again)]
    entries = [struct.pack("<id", 1, float(k)) + part for k, part in enumerate(whole, 1)]
    itself = struct.pack("<id", 1, 3.0) + struct.pack("<ii", 3, 1)
    (tmp_path / "file").write_bytes(struct.pack("<iii", 3, 1, 3) + b"".join(entries) + itself)
    found = read_torch7(tmp_path / "file")
    assert found[1.0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found[2.0].tolist() == [[1, 4], [2, 5]]
    assert found[3.0] is found


def test_claims_that_the_file_cannot_hold_are_refused_before_memory_is_taken(tmp_path):
    storage = struct.pack("<iii", 4, 1, 18) + b"torch.FloatStorage"
    # A step of zero would make a huge tensor of one number.
    tensor = struct.pack("<iii", 4, 2, 17) + b"torch.FloatTensor" + struct.pack("<iqqq", 1, 2**40, 0, 1)
    claims = {
        "a long text": struct.pack("<ii", 2, 2**31 - 1),
        "many pairs": struct.pack("<iii", 3, 1, 2**31 - 1),
        "a negative length": struct.pack("<ii", 2, -5),
        "a large storage": storage + LONG.pack(2**40),
        "a large tensor": tensor + storage + LONG.pack(1) + b"\0" * 4,
        "a function": struct.pack("<i", 6) + b"\0" * 40,
        "deep tables": b"".join(struct.pack("<iii", 3, k, 1) + torch7_bytes("x") for k in range(1, 2000)),
        "a table as a key": struct.pack("<iii", 3, 1, 1) + struct.pack("<iii", 3, 2, 0) + struct.pack("<i", 0),
        "bytes after the end": torch7_bytes(1.0) + b"x",
    }
    tracemalloc.start()
    for content in claims.values():
        (tmp_path / "file").write_bytes(content)
        with refuses(WeightsError):
            read_torch7(tmp_path / "file")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    for path, error in ((tmp_path, WeightsError), (tmp_path / "missing", WeightsError), (Path("/dev/zero"), FileError)):
        with refuses(error):
            read_torch7(path)
