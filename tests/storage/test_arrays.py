import io
import os
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matchkernel.errors import FileError
from matchkernel.storage.arrays import map_npy, read_npz

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


def test_what_is_no_array_is_refused_on_one_line(tmp_path):
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
    mapped = {
        "absent": "cannot be read (No such file",
        "empty": "not a whole .npy array (",
        "bomb.npy": "not a whole .npy array (",
        "pickle.npy": "not a whole .npy array (",
        "text": "not a whole .npy array (it begins unlike one, or holds objects)",
        "b.npz": "an .npz archive, not a .npy array",
        ".": "cannot be read (Is a directory)",
        "pipe": "cannot be read (not a regular file)",
        "zeros": "cannot be read (not a regular file)",
    }
    zipped = {
        "absent": "cannot be read (No such file",
        "empty": "not a test (File is not a zip file)",
        "text": "not a test (File is not a zip file)",
        "bomb.npz": "not a test (a claims the shape (1000000000, 1000000000), more than its 132 bytes hold)",
        "pickle.npz": "not a test (it begins unlike one, or holds objects)",
        "b.npz": "no item named 'a.npy'",
        "packed.npz": "not a test (a is compressed; write it with numpy.savez)",
        ".": "cannot be read (Is a directory)",
        "pipe": "cannot be read (not a regular file)",
        "zeros": "cannot be read (not a regular file)",
    }
    cases = [(map_npy, name, message) for name, message in mapped.items()]
    cases += [(lambda path: read_npz(path, ["a"], "a test"), name, message) for name, message in zipped.items()]
    for read, name, message in cases:
        with pytest.raises(FileError) as caught:
            read(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: "), name
        assert message in str(caught.value), name
        assert "\n" not in str(caught.value), name


def test_too_little_memory_is_told_as_that(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np.lib.format, "read_array", fail)
    with pytest.raises(FileError, match=r"a\.npz: not enough memory to read it$"):
        read_npz(npz(tmp_path / "a.npz", a=STACK), ["a"], "a test")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_an_array_or_our_error(tmp_path, data):
    np.save(tmp_path / "a.npy", STACK)
    npz(tmp_path / "a.npz", a=STACK)
    for name, read in {"a.npy": map_npy, "a.npz": lambda path: read_npz(path, ["a"], "a test")}.items():
        content = bytearray((tmp_path / name).read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        (tmp_path / name).write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            read(tmp_path / name)
        except FileError:
            continue
