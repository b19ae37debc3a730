"""Packings that were killed, or stopped by a broken file or a full disk, give the same bytes when they run again."""

import gc
import shutil
import signal
import subprocess
import sys

import pytest
from helpers import refuses, tree
from made_phototourism import PATCHES, refused, same_set

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import pack_phototourism, write_mosaics
from matchkernel.errors import FileError, WriteError


@pytest.fixture(scope="module")
def whole(written, tmp_path_factory):
    """The bytes an uninterrupted packing gives."""
    target = tmp_path_factory.mktemp("whole") / "set"
    pack_phototourism(written, target)
    return tree(target)


def test_what_a_killed_writer_left_is_not_a_mosaic(source, target):
    shutil.copy(source / "patches0001.png", source / ".patches0001.4711.part.png")
    pack_phototourism(source, target)
    same_set(open_patch_set(target))


@pytest.mark.parametrize("name", ["patches0000.png", "patches0001.png"])
def test_a_truncated_mosaic_is_refused_and_once_mended_the_packing_goes_on(name, source, target, whole):
    content = (source / name).read_bytes()
    (source / name).write_bytes(content[: len(content) // 2])
    refused(source, target)
    (source / name).write_bytes(content)
    told = []
    pack_phototourism(source, target, lambda done, total: told.append(done))
    assert told == ([256, 300] if name == "patches0000.png" else [300])  # what was done is not done again
    assert tree(target) == whole


def test_a_packing_with_other_tables_starts_anew(source, target, whole):
    pairs = (source / "m50_2_2_0.txt").read_bytes()
    (source / "m50_2_2_0.txt").unlink()
    stopped(source, target, "patches0001.png")
    (source / "m50_2_2_0.txt").write_bytes(pairs)
    told = []
    pack_phototourism(source, target, lambda done, total: told.append(done))
    assert told == [256, 300]
    assert tree(target) == whole


def test_a_mosaic_that_changed_since_the_stop_is_packed_again(source, target):
    stopped(source, target, "patches0001.png")
    write_mosaics(source, 255 - PATCHES)
    pack_phototourism(source, target)
    same_set(open_patch_set(target), 255 - PATCHES)


KILLED = """
import os, signal, sys
from pathlib import Path
from matchkernel.data.phototourism import pack_phototourism

source, folder = sys.argv[1], Path(sys.argv[2])

def kill_at(moment):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in ("open", "os.mkdir", "os.remove", "os.rename") and str(folder.parent) in str(arguments[0]):
            seen += 1
            if seen > moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def pack(target, moment):
    child = os.fork()
    if not child:
        try:
            kill_at(moment)
            pack_phototourism(source, target)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

pack_phototourism(source, folder / "first")  # what is imported late is imported here
moment = 0
while (ended := pack(folder / str(moment), moment)) == -signal.SIGKILL:
    assert not (folder / str(moment)).exists(), moment
    pack_phototourism(source, folder / str(moment))
    moment += 1
assert ended == 0, (moment, ended)
print(moment)
"""


def test_a_kill_at_any_file_the_packing_touches_and_running_again_gives_the_same_bytes(source, whole, tmp_path):
    """Every file opened, made, removed or renamed is a moment; a real process gets SIGKILL at each in turn."""
    targets = tmp_path / "targets"
    targets.mkdir()
    command = [sys.executable, "-c", KILLED, str(source), str(targets)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    moments = int(ran.stdout)
    assert moments >= 20
    assert len(list(targets.iterdir())) == moments + 2
    for folder in targets.iterdir():
        assert tree(folder) == whole, folder.name


SLOW = """
import sys, time
from matchkernel.data.phototourism import pack_phototourism

def slow(done, total):
    print(done, flush=True)
    time.sleep(600)

pack_phototourism(sys.argv[1], sys.argv[2], slow)
"""


def test_two_packings_at_once_and_a_kill_in_the_middle(source, target, whole):
    with subprocess.Popen([sys.executable, "-c", SLOW, str(source), str(target)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"256\n"
            refused(source, target)
            with refuses(FileError):
                open_patch_set(target)
        finally:
            process.send_signal(signal.SIGKILL)
    assert not target.exists()
    pack_phototourism(source, target)
    assert tree(target) == whole


def stopped(source, target, name):
    """Pack as far as the mosaic `name`, which is found broken; then it is mended. Returns the unfinished folder."""
    content = (source / name).read_bytes()
    (source / name).write_bytes(b"")
    refused(source, target)
    (source / name).write_bytes(content)
    return target.with_name("set.part")


@pytest.fixture
def small(tmp_path):
    """A function that gives a folder with so much room, or changes it."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = []

    def sized(size):
        options = f"remount,size={size}" if mounted else f"size={size}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", mount]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small tmpfs here")
        mounted.append(mount)
        return mount

    yield sized
    gc.collect()  # the caught error's frames map the patches, and what is mapped cannot be unmounted
    if mounted:
        subprocess.run(["umount", mount], check=True)


# The patches take 1200 KiB; 20,000 more pairs take 469.
@pytest.mark.parametrize("size", ["512k", "1400k"])
def test_a_full_disk_leaves_no_target_and_with_more_room_it_works(size, source, target, small):
    (source / "m50_9_9_0.txt").write_text("0 5 0 2 5 0 0\n" * 20_000)
    mount = small(size)
    refused(source, mount / "set", WriteError)
    small("4m")
    pack_phototourism(source, mount / "set")
    pack_phototourism(source, target)
    assert tree(mount / "set") == tree(target)
    assert [path.name for path in mount.iterdir()] == ["set"]
