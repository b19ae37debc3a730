from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.storage.files import check_output, check_picture, replacing


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
    with pytest.raises(FileError, match="folder does not exist"):
        write_to(tmp_path / "nowhere" / "a.txt")
    with pytest.raises(FileError, match="is a folder"):
        write_to(tmp_path)
    with pytest.raises(WriteError, match="could not be written"):
        write_to(tmp_path / ("a" * 250))  # the name beside it is too long for the file system


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
    source = tmp_path / "patches.png"
    source.write_text("old")
    (tmp_path / "link.png").symlink_to(source)
    for target in (source, tmp_path / "link.png", tmp_path / "." / "patches.png"):
        for check in (check_output, check_picture):
            with pytest.raises(ArgumentError, match="is one of the inputs"):
                check(target, tmp_path / "absent", source)
    check_output(tmp_path / "new.npy", source)
    with pytest.raises(ArgumentError, match=r"must end in \.png"):
        check_picture(tmp_path / "new.npy", source)
