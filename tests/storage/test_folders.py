"""Folders appear whole, builds resume after an interruption, and one process at a time uses a folder."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import refuses, tree

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.folders import (
    begun_with,
    exclusive,
    new_folder,
    recover,
    resumable_build,
    shards_of,
    work_folder_of,
)

fcntl = pytest.importorskip("fcntl", reason="locks of POSIX; test_without_posix.py tests the others")
SETTINGS = {"size": 3, "name": "ü\nx"}
STEPS = [f"step {k}" for k in range(3)]
WHOLE = {step: f"{step} of {SETTINGS}".encode() for step in STEPS}


def work(target, settings=SETTINGS, stop_before=None):
    """Write a file in every step; returns the steps that were done now."""
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


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_build_leaves_its_files_and_nothing_else(tmp_path):
    assert work(str(tmp_path / "not" / "yet" / "set")) == STEPS
    assert tree(tmp_path / "not" / "yet" / "set") == WHOLE
    assert names(tmp_path / "not" / "yet") == ["set"]


def test_a_stopped_build_resumes_whatever_the_order_of_its_settings(tmp_path):
    stopped(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    assert work(tmp_path / "set", dict(reversed(SETTINGS.items()))) == ["step 2"]


def test_a_build_with_other_settings_starts_again(tmp_path):
    part = stopped(tmp_path / "set", {"size": 4})
    (part / "folder").mkdir()
    (part / "folder" / "file").touch()
    assert work(tmp_path / "set") == STEPS
    assert tree(tmp_path / "set") == WHOLE


def test_a_journal_cut_at_any_byte_or_damaged_leads_to_the_same_files(tmp_path):
    content = (stopped(tmp_path / "set") / "journal").read_bytes()
    assert content.endswith(b"\nstep 0\nstep 1\n")
    damaged = [content[:length] for length in range(len(content))]
    damaged += [b"\xff\xfe" + content, content + b"\xff\n", content.replace(b"\n", b"\r\n"), b"\0" * len(content)]
    for number, written in enumerate(damaged):
        target = tmp_path / str(number)
        (stopped(target) / "journal").write_bytes(written)
        work(target)
        assert tree(target) == WHOLE


def test_a_build_stopped_twice_with_a_cut_journal_leads_to_the_same_files(tmp_path):
    part = stopped(tmp_path / "set", before="step 1")
    for cut in (1, 3):
        (part / "journal").write_bytes((part / "journal").read_bytes()[:-cut])
        stopped(tmp_path / "set")
    work(tmp_path / "set")
    assert tree(tmp_path / "set") == WHOLE


def test_a_discarded_build_leaves_the_target_as_it_was(tmp_path):
    work(tmp_path / "set")
    with resumable_build(tmp_path / "set", SETTINGS, replaces=STEPS) as build:
        (build.folder / "step 0").write_text("other")
        build.is_discarded = True
    assert tree(tmp_path / "set") == WHOLE
    assert names(tmp_path) == ["set"]


def test_what_is_in_the_way_of_a_build_is_refused_and_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("set/mine", "file", "other.part"):
        (tmp_path / name).write_text("kept")
    for name in ("set", "file", "other"):
        with refuses(FileError):
            work(tmp_path / name)
    assert tree(tmp_path) == {"set/mine": b"kept", "file": b"kept", "other.part": b"kept"}


def test_a_build_takes_the_place_of_the_one_before_and_nothing_else_is_touched(tmp_path):
    target, mine = tmp_path / "set", {"mine/deep/notes.txt": b"mine", "mine.txt": b"mine"}
    for name in ("old", "both/old", *mine):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text("mine" if name in mine else "old")
    (target / "link").symlink_to("nowhere")
    before = target.stat()
    with resumable_build(target, SETTINGS, replaces={"old", "both", "never made"}) as build:
        (build.folder / "both").mkdir()
        (build.folder / "both" / "new").write_text("new")
        assert {"old", "both/old"} < tree(target).keys()
    assert tree(target) == {"both/new": b"new", **mine}
    assert (target / "link").is_symlink()
    assert os.path.samestat(target.stat(), before)  # a shell in it stays there
    assert (names(tmp_path), names(target)) == (["set"], ["both", "link", "mine", "mine.txt"])


@pytest.mark.parametrize("named", ["link", "."])
def test_a_target_may_be_a_link_or_the_working_directory(named, tmp_path, monkeypatch):
    place = tmp_path / "disk" / "set"
    place.mkdir(parents=True)
    (tmp_path / "link").symlink_to(place)
    monkeypatch.chdir(place if named == "." else tmp_path)
    for number in ("first", "second"):
        for interrupted in (True, False):
            assert begun_with(Path(named)) == ({} if interrupted else SETTINGS)
            with suppress(KeyboardInterrupt), resumable_build(named, SETTINGS, replaces=["new"]) as build:
                (build.folder / "new").write_text(number)
                if interrupted:
                    raise KeyboardInterrupt
        assert tree(place) == {"new": number.encode()}
    assert {path.name for path in tmp_path.rglob("*")} == {"disk", "set", "new", "link"}
    assert (tmp_path / "link").is_symlink()
    assert Path.cwd().samefile(place if named == "." else tmp_path)


def test_what_an_earlier_version_renamed_before_it_was_killed_is_found_again(tmp_path):
    (tmp_path / ".set.old").mkdir()
    (tmp_path / ".set.old" / ".matchkernel-build").touch()
    (tmp_path / ".set.old" / "old").touch()
    recover(tmp_path / "set")
    assert tree(tmp_path) == {"set/old": b""}


def test_folders_of_the_user_with_names_of_ours_are_refused_and_left_alone(tmp_path):
    for name in ("a.part/manifest.json", "a.part/photos.json", ".b.old/photos.json", "b.part/mine", "b/old"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = tree(tmp_path)
    recover(tmp_path / "c")
    with refuses(FileError):
        work(tmp_path / "a")
    with refuses(FileError), resumable_build(tmp_path / "b", SETTINGS, replaces=["old"]):
        pass
    shutil.move(tmp_path / "b", tmp_path / "elsewhere")
    recover(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    shutil.move(tmp_path / "elsewhere", tmp_path / "b")
    assert tree(tmp_path) == before


def test_a_build_killed_before_any_step_of_its_end_is_found_whole(tmp_path):
    """The process is killed before its n-th rename or removal; the next one ends as if there had been no kill."""
    killed = """
import os, sys
from pathlib import Path
from matchkernel.storage.folders import resumable_build
left = int(sys.argv[2])
def hook(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree") and "ending" in globals():
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(hook)
with resumable_build(sys.argv[1], {"size": 4}, replaces=sys.argv[3:]) as build:
    for name in ("new", "step 1"):
        (build.folder / name).write_text("new")
    ending = True
"""
    mine, new, ends = {"mine/notes.txt": b"mine"}, {"new": b"new", "step 1": b"new"}, []
    while 0 not in ends:
        target = tmp_path / str(len(ends)) / "set"
        work(target)
        (target / "mine").mkdir()
        (target / "mine" / "notes.txt").write_bytes(mine["mine/notes.txt"])
        done = subprocess.run([sys.executable, "-c", killed, target, str(len(ends)), *STEPS], check=False)
        ends.append(done.returncode)
        assert tree(target).items() >= mine.items()
        recover(target)
        assert tree(target) in (new | mine, WHOLE | mine)
        with resumable_build(target, {"size": 4}, replaces=[*STEPS, "new"]) as build:
            for name in new:
                (build.folder / name).write_text("new")
        assert tree(target) == new | mine
        assert names(target.parent) == ["set"]
    assert len(ends) > 10
    assert set(ends) == {0, -9}


@pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"made": 3}', '{"made": ["new"]}', '{"made": [], "gone": 3}'])
def test_a_damaged_list_of_moves_is_one_line_and_nothing_is_moved(text, tmp_path):
    for name, content in {
        "set/.matchkernel-build": "",
        "set.part/.matchkernel-moves": text,
        "set.part/new": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with refuses(FileError):
        recover(tmp_path / "set")
    assert tree(tmp_path).keys() == {"set/.matchkernel-build", "set.part/.matchkernel-moves", "set.part/new"}


@pytest.mark.parametrize("removals", [0, 1])
def test_a_build_killed_while_it_clears_the_folder_of_another_starts_again(removals, tmp_path, monkeypatch):
    """With the new settings in the journal, what is left of the other build would be taken for its own."""
    part, calls, unlink = stopped(tmp_path / "set", {"size": 4}), [], Path.unlink

    def killed(path, *, missing_ok=False):
        if len(calls) == removals:
            raise KeyboardInterrupt
        calls.append(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path / "set")
    monkeypatch.undo()
    with resumable_build(tmp_path / "set", SETTINGS) as build:
        assert tree(part).keys() == {"journal"}
        assert build.done == set()


def test_outputs_are_locked_together_and_only_folders_of_ours_are_used(tmp_path):
    first, second, third = (tmp_path / name for name in ("a.h5", "b.txt", "c.h5"))
    key = "0123456789" * 4
    with shards_of([second, first], "{} is taken") as parts:
        assert parts == tmp_path / "b.txt.parts"
        (parts / f"{key}.npz").touch()
        for outputs, taken in (([third, first], "a.h5"), ([second], "b.txt"), ([first, second], "a.h5")):
            with pytest.raises(FileError, match=f"{taken} is taken"), shards_of(outputs, "{} is taken"):
                pass
        with shards_of([third], "{} is taken"):
            pass
    assert names(tmp_path) == []
    parts.mkdir()
    for name in ("notes.txt", f"{key}.npz", "deep.npz"):
        (parts / name).write_text("mine")
    before = tree(tmp_path)
    with refuses(FileError), shards_of([second], "{} is taken"):
        pass
    assert tree(tmp_path) == before
    (tmp_path / "link.txt").symlink_to(second)
    (tmp_path / "other").mkdir()
    shutil.rmtree(parts)
    with shards_of([tmp_path / "link.txt"], "{} is taken"), refuses(FileError), shards_of([second], "taken"):
        pass


def test_the_folder_of_work_on_an_output_is_removed_after_success_and_kept_for_the_next_run(tmp_path):
    (tmp_path / "a.work").mkdir()
    (tmp_path / "a.work" / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with refuses(FileError), work_folder_of(tmp_path / "a"):
        pass
    with suppress(KeyboardInterrupt), work_folder_of(tmp_path / "new" / "b"):
        raise KeyboardInterrupt  # before anything was done
    assert tree(tmp_path) == before
    shutil.rmtree(tmp_path / "a.work")
    with suppress(KeyboardInterrupt), work_folder_of(tmp_path / "a") as folder:
        (folder / "features").touch()
        raise KeyboardInterrupt
    with work_folder_of(tmp_path / "a") as folder:
        assert (folder / "features").exists()
    assert names(tmp_path) == []


def test_an_error_of_the_work_is_passed_on_and_a_build_without_files_leaves_nothing(tmp_path):
    def fail(error, name=""):
        with resumable_build(tmp_path / "set", SETTINGS) as build:
            if name:
                (build.folder / name).write_text("half")
            raise error

    for error in (FileError("mosaic: broken"), ValueError("x")):
        with pytest.raises(type(error)) as caught:
            fail(error)
        assert caught.value is error
        assert names(tmp_path) == []
    with refuses(FileError):
        fail(FileError("no photo"), "made")
    assert (tmp_path / "set.part" / "made").exists()  # to resume from


def test_a_second_build_is_refused_while_another_process_holds_the_lock(tmp_path):
    part = stopped(tmp_path / "set")
    before = tree(part)
    with exclusive(part, "of another process: a lock belongs to an open file"):
        for settings in (SETTINGS, {"other": 1}):
            with refuses(FileError):
                work(tmp_path / "set", settings)
        assert tree(part) == before
    assert work(tmp_path / "set") == ["step 2"]


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


def test_no_second_build_begins_while_the_first_is_renamed(tmp_path, monkeypatch):
    rename = Path.replace

    def met_by_another(self, target):
        monkeypatch.setattr(Path, "replace", rename)
        with refuses(FileError):
            work(tmp_path / "set", {"other": 1})
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", met_by_another)
    work(tmp_path / "set")
    assert tree(tmp_path / "set") == WHOLE


def test_a_full_disk_is_a_write_error_and_finished_steps_are_kept(small_disk):
    def fill(target):
        with resumable_build(target, {}) as build:
            (build.folder / "small").write_text("a few one")
            build.mark("small")
            (build.folder / "large").write_bytes(b"x" * 100_000)

    mount = small_disk("64k")
    with refuses(WriteError):
        fill(mount / "set")
    assert not (mount / "set").exists()
    small_disk("1m")
    with resumable_build(mount / "set", {}) as build:
        assert build.done == {"small"}
        (build.folder / "large").write_bytes(b"x" * 100_000)
    assert {name: len(content) for name, content in tree(mount / "set").items()} == {"small": 9, "large": 100_000}


def test_unfinished_files_of_killed_processes_are_removed_and_nothing_else(tmp_path):
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
    system_flock = fcntl.flock

    def flock(lock, how):
        if not locks_folders and stat.S_ISDIR(os.fstat(lock).st_mode):
            raise OSError(errno.ENOLCK, "No locks available")
        system_flock(lock, how)

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
    with refuses(FileError):
        b.__enter__()
    with refuses(FileError):
        LOCKED[user](place).__enter__()  # C still keeps others out
    c.__exit__(None, None, None)
    left = {"a folder": ["place"] if existed else [], "a build": ["place"]}[user]
    assert [path.name for path in tmp_path.rglob("*")] == left


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    with new_folder(tmp_path / "not" / "yet") as part:
        (part / "a").write_text("x")
        assert not (tmp_path / "not" / "yet").exists()
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "other" / "set") as part:
        (part / "a").write_text("x" * (1 // 0))
    with refuses(FileError), new_folder(tmp_path / "not" / "yet"):
        pass
    with refuses(WriteError), new_folder(tmp_path / "set") as part:
        part.write_text("x")
    with refuses(WriteError), exclusive(tmp_path / "not" / "yet" / "a", ""):  # it is a file
        pass
    assert tree(tmp_path) == {"not/yet/a": b"x"}
    assert names(tmp_path) == ["not"]


def test_what_a_killed_process_left_of_a_new_folder_is_removed(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    killed, running = (tmp_path / f".set.1.{process}.part" for process in (int(ended.stdout), os.getpid()))
    for part in (killed, running):
        (part / "images").mkdir(parents=True)
    with new_folder(tmp_path / "set"):
        pass
    assert names(tmp_path) == [running.name, "set"]
