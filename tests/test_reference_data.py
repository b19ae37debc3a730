"""Published files that are too large for this repository, or not free: the few checks that only they allow.

All else is tested on made files of the same layout, which the first test compares with the published ones.
"""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import projection_errors
from made_baselines import FILES, rank_1
from PIL import Image

from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies
from matchkernel.data.hpatches import open_hpatches
from matchkernel.data.patch_set import open_patch_set
from matchkernel.data.phototourism import pack_phototourism
from matchkernel.data.summary import verify
from matchkernel.evaluation.methods import baseline
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import extract_patches

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAPER, MAP = DATA.parent / "paper.tex", Path(__file__).parents[1] / "docs" / "paper_map.md"
STRIPS = ("e1", "h1", "t1", "e5", "h5", "t5")
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(),
    reason="large reference data (photos of scenes, patches, baselines' weights) is not beside the checkout",
)


@pytest.fixture(scope="module")
def strips():
    """One sequence of HPatches, 400 patches."""
    patches = open_hpatches(DATA / "hpatches_sample")
    assert patches.counts == {"i_contruction": 400}
    return {name: patches.read("i_contruction", name) for name in ("ref", *STRIPS)}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def layout(content):
    if isinstance(content, dict):
        return type(content), {key: layout(value) for key, value in content.items()}
    return (content.shape, content.dtype) if isinstance(content, torch.Tensor) else content


@pytest.mark.parametrize("name", [*sorted({*FILES.values()}), "AffNet.pth"])
def test_the_made_weights_have_the_layout_of_the_published_ones(name, baseline_weights):
    files = [folder / name for folder in (DATA / "weights", baseline_weights)]
    real, made = (layout(torch.load(file, weights_only=True, map_location="cpu")) for file in files)
    assert real == made
    assert files[0].read_bytes()[:16] == files[1].read_bytes()[:16]
    assert len({b"cuda:0" in file.read_bytes() for file in files}) == 1


def test_rootsift_gives_the_recorded_rank_1_on_a_real_sequence(strips):
    """The six figures of the data's README, to their three digits."""
    expected = [0.958, 0.668, 0.412, 0.605, 0.340, 0.225]
    assert rank_1(baseline("rootsift"), strips, STRIPS) == pytest.approx(expected, abs=0.0006)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("sift", 0.625), ("orb", 0.427), ("brief", 0.45), ("tfeat", 0.757),
        slow("hardtfeat", 0.80), slow("mkd-liberty", 0.76),
    ],
)  # fmt: skip
def test_rank_1_on_a_real_sequence(name, seen, strips):
    """What the plain calls of the libraries gave on h1; chance is 0.0025. Two patches of 400 may go either way."""
    method = baseline(name, weights=DATA / "weights" / FILES[name] if name in FILES else None)
    assert rank_1(method, strips, ["h1"]) == pytest.approx([seen], abs=0.006)
    assert method.describe(strips["t5"]).any(1).all()


def test_phototourism_mosaics_pack_to_2560_patches_of_197_points(tmp_path):
    sample = DATA / "phototourism_sample"
    pack_phototourism(sample, tmp_path / "set")
    verify(tmp_path / "set")
    read = open_patch_set(tmp_path / "set")
    assert read.manifest["counts"] == {"patches": 2560, "points": 197}
    assert read.patches.shape == (2560, 64, 64)
    assert len(read.groups().sizes) == 197
    with Image.open(sample / "patches0009.png") as image:
        assert np.array_equal(read.patches[9 * 256 + 17], np.asarray(image.convert("L"))[64:128, 64:128])
    lines = (sample / "info.txt").read_text().split("\n")
    assert read.labels.tolist() == [int(line.split()[0]) for line in lines if line]


@pytest.mark.parametrize("scene", ["sceaux", "fox"])
def test_a_reconstruction_projects_onto_its_keypoints(scene):
    """0.6 pixels are what bundle adjustment leaves."""
    assert np.median(projection_errors(DATA / "scenes" / scene)) < 0.6


@pytest.mark.slow
def test_patches_of_a_scene(tmp_path):
    scene, target = DATA / "scenes" / "sceaux", tmp_path / "set"
    settings = CutSettings(pairs=1000)
    built = build_from_colmap(scene / "images", scene / "sparse", scene / "database.db", target, settings)
    assert built.manifest["selection"]["from tracks"] > 20_000
    assert built.manifest["selection"]["from geometry"] > 2_000


@pytest.mark.slow
def test_patches_of_a_sequence_of_photos(tmp_path):
    settings = HomographySettings(most=60, verification=200)
    manifest = build_from_homographies(DATA / "homography", tmp_path / "set", settings, sequences=["oxford_graf"])
    assert manifest["sequences"]["oxford_graf"]["patches"] == 60


@pytest.fixture(scope="module")
def door():
    """A part of a photo of a church portal."""
    path = sorted((DATA / "scenes" / "lund_door" / "images").iterdir())[0]
    return np.asarray(Image.open(path).convert("L"))[100:420, 200:600]


def warped(photo, A):
    """A photo under a 2 x 2 map about its middle, and the map of its pixels."""
    middle = (np.array(photo.shape[::-1]) - 1) / 2
    H = np.column_stack([A, middle - A @ middle])
    return cv2.warpAffine(cv2.GaussianBlur(photo, (0, 0), 0.6), H, photo.shape[::-1], flags=cv2.INTER_CUBIC), H


def partners(a, b, H):
    """Indices of keypoints that are the same under a map: (K,) of a and (K,) of b."""
    distances = np.linalg.norm((a.centers @ H[:, :2].T + H[:, 2])[:, None] - b.centers, axis=2)
    ratios = b.half_widths / a.half_widths[:, None] / np.sqrt(np.linalg.det(H[:, :2]))
    distances[np.abs(np.log(ratios)) > 0.3] = np.inf
    found = np.flatnonzero(distances.min(1) < 1.5)
    return found, distances.argmin(1)[found]


NETWORK_FILES = {"keynet": "keynet.pth", "affnet": "AffNet.pth", "orinet": "OriNet.pth"}


def detected(photo, *names, **options):
    networks = {name: DATA / "weights" / NETWORK_FILES[name] for name in names}
    chosen = {"keypoints": 300, "contrast": 0.01, "choice": "strongest", "orientations": "one", **options}
    return Detector(**networks, **chosen).detect(photo).frames


def test_orinet_turns_with_the_photo(door):
    angle = np.deg2rad(30)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    copy, H = warped(door, turn)
    a, b = detected(door, "orinet"), detected(copy, "orinet")
    i, j = partners(a, b, H)
    turned = np.rad2deg((b.angles[j] - a.angles[i] + np.pi) % (2 * np.pi) - np.pi)
    assert len(i) > 40
    assert np.median(np.abs(turned - 30)) < 5
    assert (np.abs(turned - 30) < 15).mean() > 0.75


def test_affnet_makes_patches_of_a_sheared_photo_more_alike(door):
    copy, H = warped(door, np.array([[0.6, 0.0], [0.3, 1.0]]))
    alike = {}
    for name in ("", "affnet"):
        a, b = (detected(photo, *([name] if name else [])) for photo in (door, copy))
        i, j = partners(a, b, H)
        patches = [extract_patches(*cut, 32).reshape(len(i), -1) for cut in ((door, a[i]), (copy, b[j]))]
        alike[name] = np.median([np.corrcoef(p, q)[0, 1] for p, q in zip(*patches, strict=True)])
    assert len(i) > 40
    assert alike["affnet"] > alike[""] + 0.05


@pytest.mark.slow
def test_keynet_finds_the_same_places_in_a_turned_and_smaller_photo(door):
    copy, H = warped(door, 0.8 * np.array([[0.8, -0.6], [0.6, 0.8]]))
    a, b = detected(door, "keynet", upright=True), detected(copy, "keynet", upright=True)
    i, j = partners(a, b, H)
    assert len(i) > 40  # about 5 by chance
    assert np.median(np.linalg.norm(a.centers[i] @ H[:, :2].T + H[:, 2] - b.centers[j], axis=1)) < 1


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's source is not beside the checkout")
def test_every_equation_figure_and_table_of_the_paper_has_a_row_in_the_map():
    labels = re.findall(r"\\label\{((?:equ|fig|tab):[^}]*)\}", PAPER.read_text(encoding="utf-8"))
    rows = re.findall(r"^\| .+? \| (\S+) \| .+? \| .+? \|$", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"`{label}`" for label in labels} <= set(rows)
