import errno
import os
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.folders import exclusive, new_folder, recover, resumable_build

fcntl = pytest.importorskip("fcntl", reason="locks of POSIX; test_without_posix.py tests the others")
SETTINGS = {"size": 3, "name": "ü\nx"}
STEPS = [f"step {k}" for k in range(3)]


def work(target, settings=SETTINGS, stop_before=None):
    """Write a file a step; returns the steps that were done now."""
    done = []
    with resumable_build(target, settings) as build:
        for step in STEPS:
            if step not in build.done:
                if step == stop_before:
                    raise KeyboardInterrupt
                (build.folder / step).write_text(f"{step} of {settings}")
                build.mark(step)
                done.append(step)
    return done


def stopped(target, settings=SETTINGS, before="step 2"):
    with pytest.raises(KeyboardInterrupt):
        work(target, settings, before)
    return target.with_name(target.name + ".part")


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def whole(tmp_path):
    """What an uninterrupted build leaves."""
    (tmp_path / "reference").mkdir()
    assert work(tmp_path / "reference" / "set") == STEPS
    return tree(tmp_path / "reference" / "set")


def test_a_build_leaves_its_files_and_nothing_else(tmp_path):
    work(str(tmp_path / "set"))
    assert tree(tmp_path / "set") == {step: f"{step} of {SETTINGS}".encode() for step in STEPS}
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_stopped_build_is_not_the_target_and_goes_on_where_it_was(tmp_path, whole):
    stopped(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    assert work(tmp_path / "set") == ["step 2"]
    assert tree(tmp_path / "set") == whole


def test_a_build_with_other_settings_starts_anew(tmp_path):
    part = stopped(tmp_path / "set", {"size": 4})
    (part / "folder").mkdir()
    (part / "folder" / "file").touch()
    assert work(tmp_path / "set") == STEPS
    assert tree(tmp_path / "set") == {step: f"{step} of {SETTINGS}".encode() for step in STEPS}


def test_the_order_of_settings_does_not_matter(tmp_path):
    stopped(tmp_path / "set", {"a": 1, "b": 2})
    assert work(tmp_path / "set", {"b": 2, "a": 1}) == ["step 2"]


def test_a_journal_cut_at_any_byte_or_damaged_leads_to_the_same_files(tmp_path, whole):
    journal = stopped(tmp_path / "set") / "journal"
    content = journal.read_bytes()
    assert content.endswith(b"\nstep 0\nstep 1\n")
    damaged = [content[:length] for length in range(len(content))]
    damaged += [b"\xff\xfe" + content, content + b"\xff\n", content.replace(b"\n", b"\r\n"), b"\0" * len(content)]
    for number, written in enumerate(damaged):
        target = tmp_path / str(number)
        part = stopped(target)
        (part / "journal").write_bytes(written)
        work(target)
        assert tree(target) == whole


def test_a_twice_stopped_build_with_a_cut_journal_leads_to_the_same_files(tmp_path, whole):
    part = stopped(tmp_path / "set", before="step 1")
    for cut in (1, 3):
        (part / "journal").write_bytes((part / "journal").read_bytes()[:-cut])
        stopped(tmp_path / "set")
    work(tmp_path / "set")
    assert tree(tmp_path / "set") == whole


def test_steps_that_are_forgotten_are_done_again_after_an_interruption(tmp_path, whole):
    part = stopped(tmp_path / "set")
    with suppress(KeyboardInterrupt), resumable_build(tmp_path / "set", SETTINGS) as build:
        build.forget()
        assert build.done == set()
        build.mark("step 1")
        raise KeyboardInterrupt
    assert (part / "step 0").exists()  # the settings are the same: nothing is removed
    assert work(tmp_path / "set") == ["step 0", "step 2"]
    assert tree(tmp_path / "set") == whole


def test_a_discarded_build_leaves_the_target_as_it_was(tmp_path, whole):
    work(tmp_path / "set")
    with resumable_build(tmp_path / "set", SETTINGS, replaces=True) as build:
        (build.folder / "step 0").write_text("other")
        build.discard()
    assert tree(tmp_path / "set") == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reference", "set"]


def test_a_target_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("kept")
    (tmp_path / "file").write_text("kept")
    for name in ("set", "file"):
        with pytest.raises(FileError, match=rf"{name}: already exists; remove it or choose another place$"):
            work(tmp_path / name)
    assert tree(tmp_path) == {"set/mine": b"kept", "file": b"kept"}


def test_a_folder_is_replaced_when_the_new_one_is_done(tmp_path):
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("old")
    with resumable_build(target, SETTINGS, replaces=True) as build:
        (build.folder / "new").write_text("new")
        assert (target / "old").exists()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path, monkeypatch):
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("old")

    replace = Path.replace

    def killed(path, to):
        if path.suffix == ".part":
            raise KeyboardInterrupt
        return replace(path, to)

    def build_again():
        with resumable_build(target, SETTINGS, replaces=True) as build:
            (build.folder / "photos.json").write_text("new")  # what a build writes last

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        build_again()
    monkeypatch.undo()
    assert not target.exists()
    recover(target)
    assert [path.name for path in target.iterdir()] == ["old"]
    recover(target)
    build_again()
    assert [path.name for path in target.iterdir()] == ["photos.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_missing_folders_on_the_way_are_made(tmp_path):
    work(tmp_path / "not" / "yet" / "set")
    assert (tmp_path / "not" / "yet" / "set").is_dir()


def test_an_error_of_the_work_is_passed_on_as_it_is(tmp_path):
    for error in (FileError("mosaic: broken"), ValueError("x")):
        with pytest.raises(type(error)) as caught, resumable_build(tmp_path / "set", {}):
            raise error
        assert caught.value is error
    assert not (tmp_path / "set").exists()


def test_a_file_in_the_way_of_the_build_is_refused(tmp_path):
    (tmp_path / "set.part").write_text("in the way")
    with pytest.raises(FileError, match=r"set\.part: is in the way"):
        work(tmp_path / "set")
    assert (tmp_path / "set.part").read_text() == "in the way"


def test_a_second_build_is_refused_while_another_process_holds_the_lock(tmp_path, whole):
    part = stopped(tmp_path / "set")
    before = tree(part)
    with exclusive(part, "of another process: a lock belongs to an open file"):
        for settings in (SETTINGS, {"other": 1}):
            with pytest.raises(FileError, match=r"set: is being built by another process$"):
                work(tmp_path / "set", settings)
        assert tree(part) == before
    assert work(tmp_path / "set") == ["step 2"]
    assert tree(tmp_path / "set") == whole


def test_a_child_process_keeps_the_lock_of_a_killed_one(tmp_path):
    with exclusive(tmp_path, "first") as lock:
        child = subprocess.Popen(["sleep", "60"], pass_fds=lock)
    try:
        with pytest.raises(FileError, match="second"), exclusive(tmp_path, "second"):
            pass
    finally:
        child.kill()
        child.wait()
    with exclusive(tmp_path, "third"):
        pass


def test_no_second_build_begins_while_the_first_is_renamed(tmp_path, monkeypatch, whole):
    rename = Path.replace

    def met_by_another(self, target):
        monkeypatch.setattr(Path, "replace", rename)
        (self / "manifest.json").touch()  # what is written last tells a build without its lock file
        with pytest.raises(FileError, match=r"set: is being built by another process$"):
            work(tmp_path / "set", {"other": 1})
        (self / "manifest.json").unlink()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", met_by_another)
    work(tmp_path / "set")
    assert tree(tmp_path / "set") == whole


def test_a_full_disk_is_a_write_error_and_what_is_done_is_kept(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small tmpfs here")
    try:
        with pytest.raises(
            WriteError, match=r"set: could not be written \(No space left on device\); what is done is kept"
        ):
            fill(mount / "set")
        assert not (mount / "set").exists()
        subprocess.run(["mount", "-o", "remount,size=1m", mount], check=True)
        with resumable_build(mount / "set", {}) as build:
            assert build.done == {"small"}
            (build.folder / "large").write_bytes(b"x" * 100_000)
        assert {name: len(content) for name, content in tree(mount / "set").items()} == {"small": 9, "large": 100_000}
    finally:
        subprocess.run(["umount", mount], check=True)


def fill(target):
    with resumable_build(target, {}) as build:
        (build.folder / "small").write_text("a few one")
        build.mark("small")
        (build.folder / "large").write_bytes(b"x" * 100_000)


def test_a_build_that_fails_before_it_made_anything_leaves_nothing(tmp_path):
    def fail(name):
        with resumable_build(tmp_path / "set", SETTINGS) as build:
            if name:
                (build.folder / name).write_text("half")
            raise FileError("no photo can be read")

    with pytest.raises(FileError, match="no photo"):
        fail("")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileError, match="no photo"):
        fail("made")
    assert (tmp_path / "set.part" / "made").exists()  # to go on from


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    part = stopped(tmp_path / "set")
    (part / "deep").mkdir()
    for name in (".a.12.34.part.npz", "deep/.b.c.1.2.part", ".x.part.txt", ".notes.partial", "a.12.34.part"):
        (part / name).touch()
    with exclusive(part, "free"):
        pass
    assert {name for name in tree(part) if "part" in name} == {".x.part.txt", ".notes.partial", "a.12.34.part"}


LOCKED = {
    "a folder": lambda place: exclusive(place, "another has it"),
    "a build": lambda place: resumable_build(place, {}),
}


@pytest.mark.parametrize("locks_folders", [True, False])
@pytest.mark.parametrize(("user", "existed"), [("a folder", False), ("a folder", True), ("a build", False)])
def test_who_waits_while_one_leaves_and_another_enters_stays_out(tmp_path, monkeypatch, user, existed, locks_folders):
    """B opens the lock, A leaves and removes it, C enters; only then does B lock what it opened."""
    place = tmp_path / "place"
    if existed:
        place.mkdir()
    flock = fcntl.flock if locks_folders else files_only(fcntl.flock)
    monkeypatch.setattr(fcntl, "flock", flock)
    a, b, c = (LOCKED[user](place) for _ in range(3))
    a.__enter__()

    def held_up(lock, how):
        if not locks_folders and stat.S_ISDIR(os.fstat(lock).st_mode):
            raise OSError(errno.ENOLCK, "No locks available")
        monkeypatch.setattr(fcntl, "flock", flock)
        a.__exit__(None, None, None)
        if user == "a build":
            shutil.rmtree(place)  # else C would find it built
        c.__enter__()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", held_up)
    with pytest.raises(FileError, match="another"):
        b.__enter__()
    with pytest.raises(FileError, match="another"):
        LOCKED[user](place).__enter__()  # C still keeps others out
    c.__exit__(None, None, None)
    left = {"a folder": ["place"] if existed else [], "a build": ["place"]}[user]
    assert [path.name for path in tmp_path.rglob("*")] == left


def files_only(flock):
    """What a file system does that locks no folders."""

    def lock_file(lock, how):
        if stat.S_ISDIR(os.fstat(lock).st_mode):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(lock, how)

    return lock_file


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    with new_folder(tmp_path / "not" / "yet") as part:
        (part / "a").write_text("x")
        assert not (tmp_path / "not" / "yet").exists()
    assert tree(tmp_path) == {"not/yet/a": b"x"}
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "other" / "set") as part:
        (part / "a").write_text("x" * (1 // 0))
    with pytest.raises(FileError, match="yet: already exists"), new_folder(tmp_path / "not" / "yet"):
        pass
    with (
        pytest.raises(WriteError, match=r"set: could not be written \(Is a directory\)$"),
        new_folder(tmp_path / "set") as part,
    ):
        part.write_text("x")
    assert tree(tmp_path) == {"not/yet/a": b"x"}
    assert [path.name for path in tmp_path.iterdir()] == ["not"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file: cannot be created or written"), exclusive(tmp_path / "file", ""):
        pass
