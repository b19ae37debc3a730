"""Sets in the HPatches layout cut from sequences with known homographies."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import HOMOGRAPHIES, refuses, tree, write_sequence

from matchkernel.data.from_homographies import HomographySettings, build_from_homographies
from matchkernel.data.hpatches import IMAGES, open_hpatches, read_tasks
from matchkernel.data.summary import one_line
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.jitter import LEVELS, jittered, overlaps

QUICK = HomographySettings(most=60, verification=200)
FEW = HomographySettings(most=8, verification=50)
SINGULAR = np.array([[1, 2, 3], [2, 4, 6], [0, 0, 1]], float)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("homographies")
    write_sequence(folder / "v_one")
    write_sequence(folder / "v_two", seed=1)
    (folder / "pair").mkdir()  # not a sequence of six
    shutil.copy(folder / "v_one" / "1.png", folder / "pair" / "1.png")
    return folder


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    target = tmp_path_factory.mktemp("set") / "set"
    manifest = build_from_homographies(source, target, QUICK)
    return target, manifest


@pytest.fixture(scope="module")
def few(source, tmp_path_factory):
    """The bytes of a set of few patches, built without a stop."""
    target = tmp_path_factory.mktemp("few") / "set"
    build_from_homographies(source, target, FEW)
    return tree(target)


def correlations(a, b):
    a, b = (values.reshape(len(values), -1).astype(float) for values in (a, b))
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def test_it_is_an_hpatches_set_with_task_lists(built):
    target, manifest = built
    patches = open_hpatches(target)
    assert list(patches.counts) == ["v_one", "v_two"]
    for name, count in patches.counts.items():
        entry = manifest["sequences"][name]
        assert count == entry["patches"] == 60
        assert entry["overlap"] == pytest.approx({"e": 0.85, "h": 0.72, "t": 0.60}, abs=0.04)  # of 300 patches each
        assert all(patches.read(name, image).shape == (60, 65, 65) for image in IMAGES)
    tasks = read_tasks(target / "tasks", "full", patches.counts)
    assert tasks.test == ["v_one", "v_two"]
    assert tasks.lists == {"verification": "read", "retrieval": "read"}
    assert len(tasks.verification) == 200


def test_patches_show_the_same_spot_more_alike_the_weaker_the_jitter(built):
    patches = open_hpatches(built[0])
    reference = patches.read("v_one")
    medians = {
        noise: np.median([correlations(reference, patches.read("v_one", f"{noise}{k}")) for k in range(1, 6)])
        for noise in "eht"
    }
    assert medians["e"] > medians["h"] > medians["t"] > 0.1
    assert medians["e"] > 0.6
    shares = []  # of reference patches whose most similar easy patch is their own, among all of the sequence
    for k in range(1, 6):
        easy = patches.read("v_one", f"e{k}")
        every = np.array([correlations(np.broadcast_to(patch, easy.shape), easy) for patch in reference])
        shares.append((every.argmax(1) == np.arange(len(reference))).mean())
    assert np.mean(shares) > 0.8  # chance is 1 / 60


def test_without_jitter_the_patches_are_the_same(source, tmp_path, monkeypatch):
    """So the homographies, their direction and the half pixel are right."""
    from matchkernel.data import from_homographies

    monkeypatch.setattr(from_homographies, "LEVELS", {noise: level.times(0) for noise, level in LEVELS.items()})
    build_from_homographies(source, tmp_path / "set", FEW)
    patches = open_hpatches(tmp_path / "set")
    for k in range(1, 6):
        assert np.median(correlations(patches.read("v_one"), patches.read("v_one", f"e{k}"))) > 0.97


@pytest.mark.parametrize(("noise", "wanted"), [("e", 0.85), ("h", 0.72), ("t", 0.60)])
def test_levels_have_the_overlaps_hpatches_reports(noise, wanted):
    frames = Frames.turned_squares(np.zeros((3000, 2)), np.full(3000, 20.0), np.linspace(0, 6, 3000))
    moved = jittered(frames, LEVELS[noise], np.random.default_rng(5))
    assert np.median(overlaps(frames, moved)) == pytest.approx(wanted, abs=0.015)


def test_same_seed_same_bytes_other_seed_other_bytes(source, few, tmp_path):
    build_from_homographies(source, tmp_path / "again", FEW)
    assert tree(tmp_path / "again") == few
    build_from_homographies(source, tmp_path / "other", replace(FEW, seed=1))
    assert tree(tmp_path / "other")["v_one/t1.png"] != few["v_one/t1.png"]


KILLED = """
import os, signal, sys
from matchkernel.data import from_homographies
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies

def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

for moment in sys.argv[2:]:
    child = os.fork()
    if not child:
        if moment != "progress":  # killed right after this function
            function = getattr(from_homographies, moment)
            setattr(from_homographies, moment, lambda *given, **options: (function(*given, **options), kill()))
        settings = HomographySettings(most=8, verification=50)
        build_from_homographies(sys.argv[1], moment, settings, progress=kill if moment == "progress" else None)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, moment
"""


def test_killed_and_run_again_gives_the_same_bytes(source, few, tmp_path):
    """After the first of two sequences, and at four moments of finishing."""
    moments = ["progress", "draw_verification", "write_tasks", "write_manifest", "open_hpatches"]
    subprocess.run([sys.executable, "-c", KILLED, source, *moments], cwd=tmp_path, check=True)
    for moment in moments:
        assert not (tmp_path / moment).exists()
        if moment == "write_tasks":  # as a kill inside a writer leaves it
            (tmp_path / f"{moment}.part" / "v_one" / ".t1.4711.4711.part.png").write_bytes(b"half")
        build_from_homographies(source, tmp_path / moment, FEW)
        assert tree(tmp_path / moment) == few, moment


def test_sequences_that_cannot_be_used_are_dropped_and_reported(tmp_path):
    far = np.array([[1, 0, 5000], [0, 1, 0], [0, 0, 1]], float)
    horizon = np.array([[1, 0, 0], [0, 1, 0], [-1 / 200, 0, 1]], float)  # what lies beyond it cannot be seen
    first = {"v_good": HOMOGRAPHIES[0], "v_flat": SINGULAR, "v_far": far, "v_horizon": horizon}
    for name, H in first.items():
        write_sequence(tmp_path / "source" / name, [H, *HOMOGRAPHIES[1:]])
    entries = build_from_homographies(tmp_path / "source", tmp_path / "set", FEW)["sequences"]
    assert list(open_hpatches(tmp_path / "set").counts) == ["v_good", "v_horizon"]
    assert entries["v_flat"]["why"]
    assert entries["v_far"]["why"]
    assert entries["v_far"]["dropped"]["leaves image 2"] > 10
    assert entries["v_horizon"]["dropped"]["behind the plane"] > 0
    assert one_line(tmp_path / "set").startswith("2 sequences, ")


def folder_with(name, change=lambda folder: None):
    """A source of one sequence that was changed."""

    def make(source, tmp_path):
        change(Path(shutil.copytree(source / "v_one", tmp_path / "changed" / name)))
        return tmp_path / "changed"

    return make


def homography(text):
    return folder_with("v_one", lambda folder: (folder / "H_1_3").write_text(text))


def two_folders(source, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(source / "v_one", tmp_path / name / "v_one")
    return tmp_path


TEXTS = ("", "a b c", "1 0 0 0 1 0 0 0", "1 2 3 4 5 6 7 8 nan", "1 0 0 0 1 0 0 0 1 0")
REFUSED = {
    "no such folder": (lambda source, _: source / "absent", None, FileError),
    "no sequences": (lambda source, _: source / "pair", None, FileError),
    "one sequence": (lambda source, _: source / "v_one", None, FileError),
    "too few images": (lambda source, _: source, ["pair"], FileError),
    "no homography": (folder_with("v_one", lambda folder: (folder / "H_1_3").unlink()), None, FileError),
    **{f"homography {text!r}": (homography(text), None, FileError) for text in TEXTS},
    "singular": (homography(" ".join(map(str, SINGULAR.ravel()))), ["v_one"], FileError),
    "a name that is not UTF-8": (folder_with(os.fsdecode(b"v_caf\xe9")), None, FileError),
    "two of one name": (two_folders, ["a/v_one", "b/v_one"], ArgumentError),
}


@pytest.mark.parametrize(("place", "names", "error"), REFUSED.values(), ids=REFUSED)
def test_folders_that_are_refused(place, names, error, source, tmp_path):
    folder = place(source, tmp_path)
    with refuses(error):
        build_from_homographies(folder, tmp_path / "set", FEW, sequences=names)
    assert not (tmp_path / "set").exists()


def test_regions_of_too_few_pixels_are_left_out(source, tmp_path):
    manifest, whole = (
        build_from_homographies(source, tmp_path / str(least), replace(FEW, least_side=least)) for least in (20.0, 0.0)
    )
    for name, entry in manifest["sequences"].items():
        assert entry["dropped"]["smaller than the least side"] > 0
        assert 2 <= entry["patches"] <= whole["sequences"][name]["patches"]
        assert "smaller than the least side" not in whole["sequences"][name]["dropped"]
