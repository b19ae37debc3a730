"""One process at a time, whoever removes the lock and whenever.

A lock belongs to an open file, not to a process: two open files of one process meet as those of two do.
"""

import fcntl
import shutil

import pytest

from matchkernel.errors import FileError
from matchkernel.storage.exclusive import alone_in
from matchkernel.storage.folders import building
from matchkernel.storage.locks import has_lock, is_at
from matchkernel.training.loop import _claimed

USERS = {
    "a run": lambda place: _claimed(place, resume=True),
    "a build": lambda place: building(place, {}),
    "an extraction": lambda place: alone_in(place, place / "features"),
}


def test_only_one_of_two_has_the_lock(tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second:
        assert has_lock(first.fileno(), path)
        assert not has_lock(second.fileno(), path)
        first.close()
        assert has_lock(second.fileno(), path)


def test_a_lock_on_what_is_gone_or_replaced_is_none(tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as late:
        assert is_at(late.fileno(), path)
        path.unlink()
        assert not has_lock(late.fileno(), path)
        with path.open("w") as other:
            assert not has_lock(late.fileno(), path)
            assert has_lock(other.fileno(), path)


def test_a_folder_can_be_locked(tmp_path):
    with USERS["an extraction"](tmp_path), pytest.raises(FileError, match="another process"):
        USERS["an extraction"](tmp_path).__enter__()


@pytest.mark.parametrize(
    ("user", "existed"),
    [("a run", False), ("a run", True), ("a build", False), ("an extraction", False), ("an extraction", True)],
)
def test_who_waits_while_one_leaves_and_another_enters_stays_out(tmp_path, monkeypatch, user, existed):
    """B opens the lock, A leaves and removes it, C enters; only then does B lock what it opened."""
    place = tmp_path / "place"
    if existed:
        place.mkdir()
    a, b, c = (USERS[user](place) for _ in range(3))
    a.__enter__()
    flock = fcntl.flock

    def held_up(lock, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        a.__exit__(None, None, None)
        if user == "a build":
            shutil.rmtree(place)  # else C would find it built
        c.__enter__()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", held_up)
    with pytest.raises(FileError, match=r"another (run|process)"):
        b.__enter__()
    with pytest.raises(FileError, match=r"another (run|process)"):
        USERS[user](place).__enter__()  # C still keeps others out
    c.__exit__(None, None, None)
