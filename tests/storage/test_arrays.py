import io
import os
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from damage import damaged
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import FileError
from matchkernel.storage.arrays import map_npy, read_npz, unit_rows

STACK = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def npz(path, save=np.savez, **arrays):
    with path.open("wb") as file:
        save(file, **arrays)
    return path


def test_arrays_are_read(tmp_path):
    np.save(tmp_path / "a.npy", STACK)
    assert np.array_equal(map_npy(tmp_path / "a.npy"), STACK)
    assert isinstance(map_npy(str(tmp_path / "a.npy")), np.memmap)
    found = read_npz(npz(tmp_path / "a.npz", a=STACK, b=np.array("text"), c=STACK), ["a", "b"], "a test")
    assert found.keys() == {"a", "b"}
    assert np.array_equal(found["a"], STACK)
    assert str(found["b"]) == "text"


def header_claiming(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + b"1234"


def test_files_that_are_not_arrays_are_refused(tmp_path):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "text").write_text("two\nlines")
    (tmp_path / "bomb.npy").write_bytes(header_claiming((10**9, 10**9)))
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as file:
        file.writestr("a.npy", header_claiming((10**9, 10**9)))
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    npz(tmp_path / "pickle.npz", a=np.array([{}], object))
    npz(tmp_path / "b.npz", b=STACK)
    npz(tmp_path / "packed.npz", np.savez_compressed, a=STACK)
    npy = ("absent", "empty", "bomb.npy", "pickle.npy", "text", "b.npz", ".", "pipe", "zeros")
    zipped = ("absent", "empty", "text", "bomb.npz", "pickle.npz", "b.npz", "packed.npz", ".", "pipe", "zeros")
    for read, name in [*((map_npy, name) for name in npy), *((read_a, name) for name in zipped)]:
        with refuses(FileError):
            read(tmp_path / name)


def read_a(path):
    return read_npz(path, ["a"], "a test")


def test_too_little_memory_is_reported(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np.lib.format, "read_array", fail)
    with pytest.raises(FileError, match="memory"):
        read_a(npz(tmp_path / "a.npz", a=STACK))


def test_unit_rows_keep_zeros_and_the_type():
    rows = unit_rows(np.array([[3, 4], [0, 0]], np.float32))
    assert rows.dtype == np.float32
    assert rows.tolist() == [[np.float32(0.6), np.float32(0.8)], [0, 0]]


@given(data=st.data())
def test_damaged_files_give_an_array_or_our_error(tmp_path, data):
    np.save(tmp_path / "a.npy", STACK)
    npz(tmp_path / "a.npz", a=STACK)
    for name, read in {"a.npy": map_npy, "a.npz": read_a}.items():
        (tmp_path / name).write_bytes(damaged(data, (tmp_path / name).read_bytes()))
        with suppress(FileError):
            read(tmp_path / name)
