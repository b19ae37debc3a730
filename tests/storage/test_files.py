import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.storage.files import (
    check_folder,
    check_free_space,
    check_new_folder,
    check_output,
    check_regular,
    file_hash,
    read_small_text,
    replacing,
    resolved,
)


def test_the_target_appears_only_at_the_end(tmp_path):
    target = tmp_path / "a.npy"
    with replacing(target) as part:
        part.write_text("new")
        assert part.parent == tmp_path
        assert part.suffix == ".npy"
        assert not target.exists()
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path, error):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_half():
        with replacing(target) as part:
            part.write_text("ne")
            raise error

    with pytest.raises(error):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def write_to(target, text="x"):
    with replacing(target) as part:
        part.write_text(text)


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for target, message in {
        tmp_path: "is a folder",
        tmp_path / "pipe": "is not a regular file",
        tmp_path / "file" / "a.txt": "file is not a folder",
        tmp_path / "file" / "b" / "a.txt": "file is not a folder",
        tmp_path / ("a" * 256): "could not be written (File name too long)",
        tmp_path / ("b" * 256) / "a.txt": "could not be written (File name too long)",
    }.items():
        with pytest.raises((FileError, WriteError)) as caught:
            write_to(target)
        assert str(caught.value).startswith(f"{target}: "), target
        assert message in str(caught.value), target
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_may_not_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # root may write everywhere
    for target in (tmp_path / "a.txt", tmp_path / "new" / "a.txt"):
        with pytest.raises(FileError, match="no permission to write in"):
            check_output(target)


@pytest.mark.parametrize("name", ["a" * 255, "a" * 251 + ".txt", "ψ" * 127, "ψ" * 125 + ".txt"], ids=range(4))
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    write_to(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_folders_are_made_and_removed_again_if_the_work_fails(tmp_path):
    write_to(tmp_path / "not" / "yet" / "a.txt")
    assert (tmp_path / "not" / "yet" / "a.txt").read_text() == "x"
    with pytest.raises(RuntimeError), replacing(tmp_path / "not" / "even" / "now" / "a.txt"):
        raise RuntimeError
    assert [path.name for path in (tmp_path / "not").iterdir()] == ["yet"]


def test_a_deleted_working_directory_is_told(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for attempt in (write_to, check_output, check_new_folder, resolved):
        with pytest.raises(FileError, match=r"^a\.txt: cannot be found \(the working directory was deleted\)$"):
            attempt(Path("a.txt"))


def test_file_hash_is_sha256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_hash(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_free_space_is_checked(tmp_path):
    check_free_space(tmp_path / "new" / "a.npy", 1000)
    with pytest.raises(WriteError, match=r"a\.npy: needs 1,000,000,000\.0 GB of disk, but only [\d.,]+ GB are free$"):
        check_free_space(tmp_path / "new" / "a.npy", 10**18)


def test_two_threads_may_write_the_same_file(tmp_path):
    target, both = tmp_path / "a.txt", Barrier(2)

    def write(text):
        with replacing(target) as part:
            part.write_text(text)
            both.wait(timeout=10)  # both are writing now

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("one", "two")))
    assert target.read_text() in ("one", "two")
    assert list(tmp_path.iterdir()) == [target]


def test_inputs_are_not_written_over(tmp_path):
    folder, source = tmp_path / "set", tmp_path / "patches.png"
    source.write_text("old")
    (folder / "deep").mkdir(parents=True)
    (folder / "patches.npy").write_text("old")
    (tmp_path / "link.png").symlink_to(source)
    (tmp_path / "way").symlink_to(folder)
    inputs = [tmp_path / "absent", source, folder]
    for target, message in {
        source: "is one of the inputs",
        tmp_path / "link.png": "is one of the inputs",
        tmp_path / "." / "deep" / ".." / "patches.png": "is one of the inputs",
        folder / "patches.npy": "is inside the input",
        folder / "new.png": "is inside the input",
        folder / "deep" / "new" / "new.png": "is inside the input",
        tmp_path / "way" / "new.png": "is inside the input",
    }.items():
        with pytest.raises(ArgumentError, match=message):
            check_output(target, *inputs)
    with pytest.raises(ArgumentError, match="is inside the input"):
        check_new_folder(folder / "new", *inputs)
    with pytest.raises(FileError, match="already exists"):
        check_new_folder(folder / "deep")
    check_output(tmp_path / "new.npy", *inputs)
    check_output(tmp_path / "set.png", *inputs)
    check_output(tmp_path / "new" / "new.PNG", source, suffixes=(".npy", ".png"))
    with pytest.raises(ArgumentError, match=r"must end in \.npy or \.png"):
        check_output(tmp_path / "new.jpg", source, suffixes=(".npy", ".png"))
    assert not (tmp_path / "new").exists()


def test_folders_to_write_into_are_checked(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "set").mkdir()
    for target, message in {
        "file": "cannot be written .*file is not a folder",
        "file/new": "cannot be written .*file is not a folder",
        "set": "is one of the inputs",
        "set/new": "is inside the input",
    }.items():
        with pytest.raises((FileError, ArgumentError), match=message):
            check_folder(tmp_path / target, tmp_path / "set")
    check_folder(tmp_path / "set")
    check_folder(tmp_path / "new" / "deep", tmp_path / "set")
    assert not (tmp_path / "new").exists()


def test_devices_and_pipes_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileError, match=f"{path}: cannot be read .not a regular file"):
            check_regular(path)
    for path in (tmp_path, tmp_path / "absent"):  # others say more about these
        check_regular(path)


def test_small_text_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("ψ\r\nb\rc\n".encode())
    assert read_small_text(path) == read_small_text(str(path), 8) == path.read_text(encoding="utf-8") == "ψ\nb\nc\n"
    with pytest.raises(FileError, match=r"a\.txt: not a list \(larger than 7 bytes\)$"):
        read_small_text(path, 7, what="a list")
    with pytest.raises(FileError, match=r"a\.txt: not a list \(its bytes are not ASCII\)$"):
        read_small_text(path, what="a list", encoding="ascii")
    assert read_small_text(path, encoding="ascii", errors="replace").endswith("\nb\nc\n")


def test_what_is_no_small_text_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)  # sparse
    for path, message in {
        "/dev/zero": "cannot be read (not a regular file)",
        tmp_path / "pipe": "cannot be read (not a regular file)",
        tmp_path / "huge": "not a text file (larger than 16,777,216 bytes)",
        tmp_path: "cannot be read (Is a directory)",
        tmp_path / "absent": "cannot be read (No such file or directory)",
        tmp_path / "nul\0": "embedded null",
    }.items():
        start = time.perf_counter()
        with pytest.raises(FileError) as caught:
            read_small_text(path)
        assert message in str(caught.value), path
        assert time.perf_counter() - start < 2


@given(st.binary(max_size=40), st.integers(0, 50))
def test_any_bytes_give_the_text_or_a_file_error(tmp_path_factory, content, limit):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    is_text = content.decode("utf-8", "replace").encode() == content
    if len(content) <= limit and is_text:
        assert read_small_text(path, limit) == path.read_text(encoding="utf-8-sig")
        return
    with pytest.raises(FileError, match=r"^[^\n]*any\.txt: not a text file \([^\n]*\)$"):
        read_small_text(path, limit)
