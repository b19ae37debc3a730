import subprocess
import sys
from pathlib import Path

import pytest

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.files import file_hash
from matchkernel.storage.folders import building

SETTINGS = {"size": 3, "name": "ü\nx"}
STEPS = [f"step {k}" for k in range(3)]


def work(target, settings=SETTINGS, stop_before=None):
    """Write a file a step; returns the steps that were done now."""
    done = []
    with building(target, settings) as build:
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


def test_a_target_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("kept")
    (tmp_path / "file").write_text("kept")
    for name in ("set", "file"):
        with pytest.raises(FileError, match=rf"{name}: exists already; remove it or choose another place$"):
            work(tmp_path / name)
    assert tree(tmp_path) == {"set/mine": b"kept", "file": b"kept"}


def test_missing_folders_on_the_way_are_made(tmp_path):
    work(tmp_path / "not" / "yet" / "set")
    assert (tmp_path / "not" / "yet" / "set").is_dir()


def test_an_error_of_the_work_is_passed_on_as_it_is(tmp_path):
    for error in (FileError("mosaic: broken"), ValueError("x")):
        with pytest.raises(type(error)) as caught, building(tmp_path / "set", {}):
            raise error
        assert caught.value is error
    assert not (tmp_path / "set").exists()


def test_a_file_in_the_way_of_the_build_is_refused(tmp_path):
    (tmp_path / "set.part").write_text("in the way")
    with pytest.raises(FileError, match=r"set\.part: is in the way"):
        work(tmp_path / "set")
    assert (tmp_path / "set.part").read_text() == "in the way"


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_build_is_refused_while_another_process_holds_the_lock(tmp_path, whole):
    part = stopped(tmp_path / "set")
    before = tree(part)
    command = [sys.executable, "-S", "-c", HOLDER, str(part / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        for settings in (SETTINGS, {"other": 1}):
            with pytest.raises(FileError, match=r"set: is being built by another process right now$"):
                work(tmp_path / "set", settings)
        assert tree(part) == before
        holder.kill()
    assert work(tmp_path / "set") == ["step 2"]
    assert tree(tmp_path / "set") == whole


def test_no_second_build_begins_while_the_first_is_renamed(tmp_path, monkeypatch, whole):
    rename = Path.replace

    def met_by_another(self, target):
        monkeypatch.setattr(Path, "replace", rename)
        (self / "manifest.json").touch()  # what is written last tells a build without its lock file
        with pytest.raises(FileError, match=r"set: is being built by another process right now$"):
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
        with building(mount / "set", {}) as build:
            assert build.done == {"small"}
            (build.folder / "large").write_bytes(b"x" * 100_000)
        assert {name: len(content) for name, content in tree(mount / "set").items()} == {"small": 9, "large": 100_000}
    finally:
        subprocess.run(["umount", mount], check=True)


def fill(target):
    with building(target, {}) as build:
        (build.folder / "small").write_text("a few one")
        build.mark("small")
        (build.folder / "large").write_bytes(b"x" * 100_000)


def test_file_hash_is_sha256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_hash(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_build_that_fails_before_it_made_anything_leaves_nothing(tmp_path):
    def fail(name):
        with building(tmp_path / "set", SETTINGS) as build:
            if name:
                (build.folder / name).write_text("half")
            raise FileError("no photo can be read")

    with pytest.raises(FileError, match="no photo"):
        fail("")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileError, match="no photo"):
        fail("made")
    assert (tmp_path / "set.part" / "made").exists()  # to go on from
