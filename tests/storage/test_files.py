"""Files appear whole or not at all, inputs are never written over, and small text files are read with a limit."""

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from helpers import attempt, refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError
from matchkernel.storage.files import (
    check_folder,
    check_free_space,
    check_new_folder,
    check_output,
    check_regular,
    file_hash,
    json_digest,
    link_or_copy,
    read_small_text,
    replacing,
    resolved,
)


def test_the_target_appears_only_at_the_end(tmp_path):
    target = tmp_path / "a.npy"
    with replacing(target) as part:
        part.write_text("new")
        assert (part.parent, part.suffix) == (tmp_path, ".npy")
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
    for name, error in {
        "": FileError,
        "pipe": FileError,
        "file/a.txt": FileError,
        "file/b/a.txt": FileError,
        "a" * 256: WriteError,
        f"{'b' * 256}/a.txt": WriteError,
        "no name on this file system \ud800": FileError,
    }.items():
        with refuses(error):
            write_to(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_without_permission_to_write_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # root may write everywhere
    for target in (tmp_path / "a.txt", tmp_path / "new" / "a.txt"):
        with refuses(FileError):
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


def test_a_deleted_working_directory_is_reported(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for attempted in (write_to, check_output, check_new_folder, resolved):
        with refuses(FileError):
            attempted(Path("a.txt"))


def test_digests(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_hash(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert json_digest({"b": [1, "ü"], "a": None}) == json_digest({"a": None, "b": (1, "ü")})
    assert json_digest([1]) == "080a9ed428559ef602668b4c00f114f1a11c3f6b02a435f0bdc154578e4d7f22"


def test_free_space_is_checked(tmp_path):
    check_free_space(tmp_path / "new" / "a.npy", 1000)
    with refuses(WriteError):
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
    (tmp_path / "file").touch()
    (tmp_path / "link.png").symlink_to(source)
    (tmp_path / "way").symlink_to(folder)
    inputs = [tmp_path / "absent", source, folder]
    for check, name, error in [
        *((check_output, name, ArgumentError) for name in ("patches.png", "link.png", "./set/../patches.png")),
        *((check_output, name, ArgumentError) for name in ("set/patches.npy", "set/new.png", "set/deep/new/new.png")),
        (check_output, "way/new.png", ArgumentError),
        (check_new_folder, "set/new", ArgumentError),
        (check_new_folder, "set/deep", FileError),
        *((check_folder, name, FileError) for name in ("file", "file/new")),
        *((check_folder, name, ArgumentError) for name in ("set", "set/new")),
    ]:
        with refuses(error):
            check(tmp_path / name, *inputs)
    check_output(tmp_path / "new.npy", *inputs)
    check_output(tmp_path / "set.png", *inputs)
    check_output(tmp_path / "new" / "new.PNG", source, suffixes=(".npy", ".png"))
    with refuses(ArgumentError):
        check_output(tmp_path / "new.jpg", source, suffixes=(".npy", ".png"))
    check_folder(tmp_path / "set")
    check_folder(tmp_path / "new" / "deep", *inputs)
    assert not (tmp_path / "new").exists()


def test_small_text_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("ψ\r\nb\rc\n".encode())
    assert read_small_text(path) == read_small_text(str(path), 8) == path.read_text(encoding="utf-8") == "ψ\nb\nc\n"
    with refuses(FileError):
        read_small_text(path, 7)
    with refuses(FileError):
        read_small_text(path, encoding="ascii")
    assert read_small_text(path, encoding="ascii", errors="replace").endswith("\nb\nc\n")


def test_devices_pipes_and_huge_files_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)  # sparse
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path / "huge", tmp_path, tmp_path / "absent", tmp_path / "nul\0"):
        start = time.perf_counter()
        with refuses(FileError):
            read_small_text(path)
        assert time.perf_counter() - start < 2
    for path in ("/dev/zero", tmp_path / "pipe"):
        with refuses(FileError):
            check_regular(path)
    for path in (tmp_path, tmp_path / "absent"):  # whoever reads them reports these
        check_regular(path)


@given(st.binary(max_size=40), st.integers(0, 50))
def test_any_bytes_give_the_text_or_a_file_error(tmp_path_factory, content, limit):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    is_text = content.decode("utf-8", "replace").encode() == content
    text, error = attempt(read_small_text, path, limit, expected=MatchKernelError)
    assert (text is not None) == (len(content) <= limit and is_text)
    assert text is None or text == path.read_text(encoding="utf-8-sig")
    assert "\n" not in error


def test_a_link_stays_one_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    for name, target in {"link": "there/file", "chain": "link", "new": "there/not_yet"}.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "there" / "file").write_text("old")
    for name in ("chain", "new"):
        with replacing(tmp_path / name) as part:
            part.write_text(name)
    assert [(tmp_path / name).is_symlink() for name in ("link", "chain", "new")] == [True] * 3
    assert {path.name: path.read_text() for path in (tmp_path / "there").iterdir()} == {
        "file": "chain",
        "not_yet": "new",
    }


@pytest.mark.parametrize("has_links", [True, False])
def test_a_link_that_leads_nowhere_is_replaced_and_not_followed(tmp_path, monkeypatch, has_links):
    def another_disk(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not has_links:
        monkeypatch.setattr(os, "link", another_disk)
    (tmp_path / "source").write_text("x")
    (tmp_path / "target").symlink_to(tmp_path / "gone" / "source")
    link_or_copy(tmp_path / "source", tmp_path / "target")
    assert not (tmp_path / "target").is_symlink()
    assert (tmp_path / "target").read_text() == "x"
    assert not (tmp_path / "gone").exists()
