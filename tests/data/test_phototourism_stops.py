"""Packings that were killed, or stopped by a broken file or a full disk, give the same bytes when they run again."""

import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from helpers import tree
from made_phototourism import PATCHES, refused, same_set

from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import pack_phototourism, write_mosaics
from matchkernel.errors import WriteError


@pytest.fixture(scope="module")
def whole(written, tmp_path_factory):
    """The bytes an uninterrupted packing gives."""
    target = tmp_path_factory.mktemp("whole") / "set"
    pack_phototourism(written, target)
    return tree(target)


@contextmanager
def damaged(path):
    """The block is run with half of the file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    yield
    path.write_bytes(content)


def packed_again(source, target):
    """The numbers of patches done after each step of a packing."""
    counts = []
    pack_phototourism(source, target, lambda done, total: counts.append(done))
    return counts


def test_a_stopped_packing_goes_on_but_starts_again_with_other_tables_and_repeats_a_changed_mosaic(
    source, target, whole
):
    shutil.copy(source / "patches0001.png", source / ".patches0001.4711.part.png")  # of a killed writer
    with damaged(source / "patches0001.png"):
        refused(source, target)
    assert packed_again(source, target) == [300]
    assert tree(target) == whole
    shutil.rmtree(target)
    with damaged(source / "patches0001.png"):
        refused(source, target)
    (source / "m50_2_2_0.txt").rename(source.parent / "pairs")
    with damaged(source / "patches0001.png"):
        refused(source, target)
    (source.parent / "pairs").rename(source / "m50_2_2_0.txt")
    assert packed_again(source, target) == [256, 300]
    shutil.rmtree(target)
    with damaged(source / "patches0001.png"):
        refused(source, target)
    write_mosaics(source, 255 - PATCHES)
    pack_phototourism(source, target)
    same_set(open_patch_set(target), 255 - PATCHES)


KILLED = """
import os, signal, sys
from pathlib import Path
from matchkernel.data.phototourism import pack_phototourism
from matchkernel.errors import FileError

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
    is_there = (folder / str(moment)).exists()  # killed after the last rename: running again removes the mark
    try:
        pack_phototourism(source, folder / str(moment))
        assert not is_there, moment
    except FileError:
        assert is_there, moment
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


# The patches take 1200 KiB; 20,000 more pairs take 469.
@pytest.mark.parametrize("size", ["512k", "1400k"])
def test_a_full_disk_leaves_no_target_and_with_more_room_it_works(size, source, target, small_disk):
    (source / "m50_9_9_0.txt").write_text("0 5 0 2 5 0 0\n" * 20_000)
    mount = small_disk(size)
    refused(source, mount / "set", WriteError)
    small_disk("4m")
    pack_phototourism(source, mount / "set")
    pack_phototourism(source, target)
    assert tree(mount / "set") == tree(target)
    assert [path.name for path in mount.iterdir()] == ["set"]
