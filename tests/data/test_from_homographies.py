"""Sets in the HPatches layout cut from sequences with known homographies."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import HOMOGRAPHIES, refuses, tree, write_sequence

from matchkernel.data.from_homographies import HomographySettings, build_from_homographies, read_homography
from matchkernel.data.hpatches import IMAGES, open_hpatches, read_retrieval, read_verification, sequence_numbers
from matchkernel.data.summary import one_line
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.jitter import LEVELS, jittered, overlaps

QUICK = HomographySettings(most=60, verification=200)
FEW = HomographySettings(most=8, verification=50)


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


def test_it_is_an_hpatches_set(built):
    target, manifest = built
    patches = open_hpatches(target)
    assert list(patches.counts) == ["v_one", "v_two"]
    for name, count in patches.counts.items():
        entry = manifest["sequences"][name]
        assert count == entry["patches"] == 60
        assert entry["overlap"] == pytest.approx({"e": 0.85, "h": 0.72, "t": 0.60}, abs=0.04)  # of 300 patches each
        assert all(patches.read(name, image).shape == (60, 65, 65) for image in IMAGES)


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


def test_task_lists_come_with_it(built):
    target, _ = built
    counts = open_hpatches(target).counts
    lists = read_verification(target / "tasks", "full")
    assert len(lists) == 200
    for patches in (lists.first, lists.positives, lists.intra, lists.inter, *read_retrieval(target / "tasks", "full")):
        sequence_numbers(patches, counts, "list")
    assert json.loads((target / "tasks" / "splits" / "splits.json").read_text())["full"]["test"] == ["v_one", "v_two"]


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


def test_a_sequence_that_cannot_be_used_is_dropped_and_told(tmp_path):
    write_sequence(tmp_path / "source" / "v_good")
    singular = np.array([[1, 2, 3], [2, 4, 6], [0, 0, 1]], float)
    write_sequence(tmp_path / "source" / "v_flat", [singular, *HOMOGRAPHIES[1:]])
    far = np.array([[1, 0, 5000], [0, 1, 0], [0, 0, 1]], float)
    write_sequence(tmp_path / "source" / "v_far", [far, *HOMOGRAPHIES[1:]])
    manifest = build_from_homographies(tmp_path / "source", tmp_path / "set", FEW)
    assert list(open_hpatches(tmp_path / "set").counts) == ["v_good"]
    assert "singular" in manifest["sequences"]["v_flat"]["why"]
    assert "fewer than two" in manifest["sequences"]["v_far"]["why"]
    assert manifest["sequences"]["v_far"]["dropped"]["leaves image 2"] > 10
    assert one_line(tmp_path / "set").startswith("1 sequence, 8 patches per strip in total")
    with refuses(FileError):  # asked for by name
        build_from_homographies(tmp_path / "source", tmp_path / "named", FEW, sequences=["v_good", "v_flat"])
    assert not (tmp_path / "named").exists()
    write_sequence(tmp_path / "source" / "more" / "v_good")
    with refuses(ArgumentError):
        build_from_homographies(tmp_path / "source", tmp_path / "twice", FEW, sequences=["v_good", "more/v_good"])


def test_points_behind_the_plane_are_dropped(tmp_path):
    """A horizon through the image: what lies beyond it cannot be seen."""
    horizon = np.array([[1, 0, 0], [0, 1, 0], [-1 / 200, 0, 1]], float)
    write_sequence(tmp_path / "source" / "v_horizon", [horizon, *[np.eye(3)] * 4])
    write_sequence(tmp_path / "source" / "v_good")
    manifest = build_from_homographies(tmp_path / "source", tmp_path / "set", FEW)
    assert manifest["sequences"]["v_horizon"]["dropped"]["behind the plane"] > 0


def test_folders_that_are_refused(source, tmp_path):
    broken = [Path(shutil.copytree(source / "v_one", tmp_path / name / "v_one")) for name in ("short", "lacking")]
    (broken[0] / "H_1_3").write_text("1 0 0 0 1 0 0 0")
    (broken[1] / "H_1_3").unlink()
    shutil.copytree(source / "v_one", tmp_path / "latin" / os.fsdecode(b"v_caf\xe9"))  # lists are written in UTF-8
    for folder, names in (
        (source / "absent", None),
        (source / "pair", None),
        (source / "v_one", None),
        (source, ["pair"]),
        (tmp_path / "short", None),
        (tmp_path / "lacking", None),
        (tmp_path / "latin", None),
    ):
        with refuses(FileError):
            build_from_homographies(folder, tmp_path / "set", sequences=names)
    assert not list(tmp_path.glob("set*"))


@pytest.mark.parametrize("text", ["", "a b c", "1 2 3 4 5 6 7 8 nan", "1 0 0 0 1 0 0 0 1 0"])
def test_homography_files_that_are_refused(text, tmp_path):
    (tmp_path / "H").write_text(text)
    with refuses(FileError):
        read_homography(tmp_path / "H")


def test_regions_of_too_few_pixels_are_left_out(source, tmp_path):
    manifest, whole = (
        build_from_homographies(source, tmp_path / str(least), replace(FEW, least_side=least)) for least in (20.0, 0.0)
    )
    for name, entry in manifest["sequences"].items():
        assert entry["dropped"]["smaller than the least side"] > 0
        assert 2 <= entry["patches"] <= whole["sequences"][name]["patches"]
        assert "smaller than the least side" not in whole["sequences"][name]["dropped"]
