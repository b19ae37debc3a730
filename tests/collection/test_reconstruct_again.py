"""Runs that are interrupted, repeated, or given other photos; photos and pairs that cannot be used."""

import dataclasses
import json
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
from helpers import on_each_colmap, refuses
from hypothesis import given
from hypothesis import strategies as st
from made_collection import SETTINGS
from made_poison import WorkersThatAPairKills
from PIL import Image

from matchkernel.collection.extract import extract_images
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.collection.workspace import read_finished
from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import read_reconstruction
from matchkernel.colmap.program import model_folders
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.match_files import read_matches
from matchkernel.photos.pair_lists import read_pairs
from matchkernel.storage.pool import LocalWorkers
from matchkernel.storage.settings import describe_differences

BEFORE = Path(__file__).parents[1] / "written_before" / "workspace"  # by version 0.1


def matches_in(database):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT * FROM matches ORDER BY pair_id").fetchall()


@on_each_colmap
@pytest.mark.parametrize("missing", [("matches.h5", "database.db"), ("database.db",), ()], ids=" ".join)
def test_a_run_that_an_earlier_version_began_goes_on(missing, tmp_path, photos_cc0, each_colmap):
    """Killed before matching, before the import, before mapping."""
    part = shutil.copytree(BEFORE, tmp_path / "ws.part")
    settings = json.loads((part / "summary.json").read_text())["settings"]
    if f"OpenCV {cv2.__version__} " not in settings["detector"]["detector"]:
        pytest.skip("made with another OpenCV")
    (part / "journal").write_text(f"{json.dumps(settings, sort_keys=True)}\nimport 8ff62ead\n")
    shutil.rmtree(part / "sparse")
    for name in ("summary.json", "photos.json", *missing):
        (part / name).unlink()
    said, how = [], ReconstructSettings(dataclasses.replace(COLMAP_LIKE, keypoints=200), store="bytes")
    summary = reconstruct(photos_cc0 / "images", tmp_path / "ws", "tiny", how, say=said.append)
    assert said[0].endswith("(0 of 3 images)")
    assert (summary.registered, summary.pairs, summary.skipped) == (3, 3, {})
    assert summary.points == pytest.approx({"program": 62, "pycolmap": 41}[each_colmap], abs=6)
    for path in BEFORE.glob("features/*"):
        assert (tmp_path / "ws" / path.relative_to(BEFORE)).read_bytes() == path.read_bytes()
    for pair in read_pairs(BEFORE / "pairs.txt"):
        now, then = (read_matches(folder / "matches.h5", *pair) for folder in (tmp_path / "ws", BEFORE))
        assert now.indices.tolist() == then.indices.tolist()


@on_each_colmap
def test_a_broken_image_is_skipped_by_name_and_names_may_have_folders(scene, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(scene, images / "left")
    (images / "left" / "003b.png").write_bytes(b"not an image")
    (images / "left" / "004b.png").symlink_to("/proc/self/mem")  # reading it is an I/O error, for root too
    said = []
    summary = reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append)
    assert sorted(summary.skipped) == ["left/003b.png", "left/004b.png"]
    assert "Input/output error" in summary.skipped["left/004b.png"]
    assert (summary.images, summary.registered) == (8, 6)
    for name in summary.skipped:
        assert sum(name in line for line in said) == 1
    written = (tmp_path / "ws" / "summary.json").stat().st_mtime_ns
    assert reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append) == summary
    assert said[-1] == f"{tmp_path / 'ws'}: stays as it was; what was skipped then (2) still cannot be used"
    assert (tmp_path / "ws" / "summary.json").stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "ws"]


@on_each_colmap
def test_features_that_break_before_they_are_matched_cost_their_pairs_only(scene, tmp_path):
    """A bit flips on disk after the extraction: the photo is named once, and the other photos are reconstructed."""
    path, said = tmp_path / "ws.part" / "features" / "005.png.npz", []

    def say(line):
        said.append(line)
        if line.startswith("matching"):
            content = bytearray(path.read_bytes())
            content[1000] ^= 1
            path.write_bytes(content)

    summary = reconstruct(scene, tmp_path / "ws", "rootsift", SETTINGS, say=say)
    assert list(summary.skipped) == ["005.png"]
    assert (summary.images, summary.registered, summary.pairs) == (6, 5, 10)
    assert sum("005.png" in line for line in said) == 1


@on_each_colmap
@pytest.mark.slow
def test_a_pair_that_kills_its_worker_is_named_once_and_left_out(scene, tmp_path):
    pair, said = ("001.png", "004.png"), []
    workers = WorkersThatAPairKills(LocalWorkers(1), pair)
    summary = reconstruct(scene, tmp_path / "ws", "rootsift", SETTINGS, workers=workers, say=said.append)
    assert list(summary.skipped) == ["001.png 004.png"]
    assert "SIGSEGV" in summary.skipped["001.png 004.png"]
    assert (summary.registered, summary.pairs) == (6, 14)
    assert sum("001.png 004.png" in line for line in said) == 1
    with refuses(FileError):
        read_matches(tmp_path / "ws" / "matches.h5", *pair)


@on_each_colmap
def test_an_interrupted_run_goes_on_with_other_photos_and_pairs(workspace, scene, tmp_path):
    """Stopped before the mapper; a photo is then changed, one added, one removed: the result is that of a new run."""
    images, target = tmp_path / "images", tmp_path / "ws"
    shutil.copytree(scene, images)
    (images / "005.png").rename(images / "004.png")  # until it is changed
    shutil.copy(scene / "004.png", images / "gone.png")

    def stop(line):
        if line == "colmap mapper":
            raise KeyboardInterrupt

    before = ReconstructSettings(SETTINGS.detector, pairs="sequential:2")
    with pytest.raises(KeyboardInterrupt):
        reconstruct(images, target, "rootsift", before, say=stop)
    same = [f"features/{number:03}.png.npz" for number in range(4)]
    written = {name: (tmp_path / "ws.part" / name).stat().st_mtime_ns for name in same}
    (images / "gone.png").unlink()
    for name in ("004.png", "005.png"):
        shutil.copy(scene / name, images)
    summary = reconstruct(images, target, "rootsift", SETTINGS)
    assert (summary.images, summary.registered, summary.pairs, summary.skipped) == (6, 6, 15, {})
    assert {name: (target / name).stat().st_mtime_ns for name in same} == written
    made, expected = (matches_in(folder / "database.db") for folder in (target, workspace[0]))
    assert made == expected
    for kind in ("features/*", "*.txt"):
        made, expected = ({path.name: path.read_bytes() for path in at.glob(kind)} for at in (target, workspace[0]))
        assert made == expected


@on_each_colmap
def test_names_with_spaces_and_photos_added_to_a_finished_workspace(scene, tmp_path):
    """Five photos first, then the sixth and a film beside it: nothing known is computed again."""
    images, workspace = tmp_path / "my photos", tmp_path / "ws"
    images.mkdir()
    for number in range(5):
        shutil.copy(scene / f"{number:03}.png", images / f"IMG ({number}) #1 %20.png")
    said = []
    first = reconstruct(images, workspace, "rootsift", SETTINGS, say=said.append)
    assert (first.images, first.registered, first.pairs, first.models) == (5, 5, 10, [5])
    model = read_reconstruction(workspace / "sparse")
    names = {path.name for path in images.iterdir()}
    assert {image.name for image in model.images.values()} == set(read_database_keypoints(workspace / "database.db"))
    assert {image.name for image in model.images.values()} == names
    assert reconstruct(images, workspace, "rootsift", SETTINGS, say=said.append) == first
    assert said[-1] == f"{workspace}: all 5 photos are in it already"

    def features():
        return {path.name: path.stat().st_mtime_ns for path in (workspace / "features").iterdir()}

    known = features()
    shutil.copy(scene / "005.png", images / "new one.png")
    (images / "film.mov").touch()
    said.clear()
    second = reconstruct(images, workspace, "rootsift", SETTINGS, say=said.append)
    assert (second.images, second.registered, second.pairs, second.ignored) == (6, 6, 15, {".mov": 1})
    assert said[:2] == ["ignored 1 file (1 .mov)", "taking in 1 new or changed photos, 5 are known, 0 are gone"]
    assert {name: time for name, time in features().items() if name in known} == known
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my photos", "ws"]
    with refuses(FileError):
        reconstruct(images, workspace, "rootsift", ReconstructSettings(SETTINGS.detector, "none"))
    fewer = dataclasses.replace(SETTINGS, detector=Detector(keypoints=400))
    with refuses(FileError):
        reconstruct(images, workspace, "rootsift", fewer)


@on_each_colmap
def test_two_scenes_in_one_folder_stay_two_models(scene, tmp_path):
    """The most similar photos are of the same scene; known intrinsics are kept; features may come from elsewhere."""
    images = tmp_path / "images"
    images.mkdir()
    pixels = {}
    for number in range(6):
        with Image.open(scene / f"{number:03}.png") as image:
            pixels[number] = np.asarray(image)
    for number in range(6):
        Image.fromarray(pixels[number]).save(images / f"{number}a.png")
        Image.fromarray(pixels[number][:, ::-1]).save(images / f"{number}b.webp", lossless=True)  # a scene in a mirror
    params = "400,200,150,0"
    settings = ReconstructSettings(SETTINGS.detector, pairs="top:5", camera_params=params)
    describer = open_describer("rootsift")
    extract_images({"0a.png": images / "0a.png"}, tmp_path / "before", describer, SETTINGS.detector)
    said = []
    other = dataclasses.replace(settings, detector=Detector(keypoints=400))
    with refuses(ArgumentError):
        reconstruct(images, tmp_path / "ws", describer, other, features=tmp_path / "before")
    assert not (tmp_path / "ws.part").exists()
    summary = reconstruct(images, tmp_path / "ws", describer, settings, features=tmp_path / "before", say=said.append)
    assert f"taking features of 1 of 12 photos from {tmp_path / 'before'}" in said
    assert "extracting rootsift features (11 of 12 images)" in said
    assert (tmp_path / "ws/features/0a.png.npz").samefile(tmp_path / "before/0a.png.npz")
    assert summary.models == [6, 6]
    extract_images({"0a.png": images / "0a.png"}, tmp_path / "fewer", describer, other.detector)
    more = dataclasses.replace(settings, pairs="sequential:2")
    with refuses(ArgumentError):
        reconstruct(images, tmp_path / "ws", describer, more, features=tmp_path / "fewer")
    assert not (tmp_path / "ws.part").exists()  # beside a finished one, too
    for folder in model_folders(tmp_path / "ws"):
        model = read_reconstruction(folder)
        assert len({image.name[1] for image in model.images.values()}) == 1
        assert all(camera.parameters.tolist() == [400, 200, 150, 0] for camera in model.cameras.values())


@on_each_colmap
def test_heic_photos_are_given_to_colmap_as_jpeg_once_their_extra_is_there(scene, tmp_path, monkeypatch):
    """Without it they are skipped; the same command takes them in when it has been installed."""
    pillow_heif = pytest.importorskip("pillow_heif")
    images = tmp_path / "images"
    shutil.copytree(scene, images)
    for number in range(3):
        with Image.open(images / f"00{number}.png") as image:
            pillow_heif.from_pillow(image.convert("RGB")).save(images / f"{number}.HEIC", quality=95)
        (images / f"00{number}.png").unlink()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pillow_heif", None)
        summary = reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS)
    assert (sorted(summary.skipped), summary.registered) == (["0.HEIC", "1.HEIC", "2.HEIC"], 3)
    said = []
    summary = reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append)
    assert "trying again what was skipped (3)" in said
    assert (summary.skipped, summary.registered) == ({}, 6)
    names = {image.name for image in read_reconstruction(tmp_path / "ws" / "sparse").images.values()}
    assert {"0.HEIC.jpg", "003.png"} < names
    with Image.open(tmp_path / "ws" / "photos" / "0.HEIC.jpg") as image:
        assert image.format == "JPEG"
    assert (tmp_path / "ws" / "photos" / "003.png").samefile(images / "003.png")


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from(["settings", "inputs", "photos", "images"]), inner, max_size=4),
    ).map(lambda made: json.dumps(made).encode())
)
def test_a_folder_with_any_summary_is_a_workspace_or_refused(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "fuzzed workspace"
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_bytes(content)
    with suppress(FileError):
        assert isinstance(describe_differences(read_finished(folder).settings, {}), str)


@on_each_colmap
def test_damage_inside_a_finished_workspace_is_said_and_made_again(workspace, scene, tmp_path):
    ws, images, said = shutil.copytree(workspace[0], tmp_path / "ws"), shutil.copytree(scene, tmp_path / "images"), []
    (images / "005.png").unlink()  # something to do
    for path in (ws / "features" / "001.png.npz", ws / "matches.h5"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 64] = b"damaged!" * 8
        path.write_bytes(content)
    summary = reconstruct(images, ws, "rootsift", SETTINGS, say=said.append)
    assert (summary.registered, summary.pairs, summary.skipped) == (5, 10, {})
    told = [line for line in said if line.startswith("made again")]
    assert len(told) == 2
    assert all(str(ws) in line and ".part" not in line for line in told)
    assert "extracting rootsift features (1 of 5 images)" in said


@on_each_colmap
def test_what_the_user_has_put_into_a_workspace_stays(workspace, scene, tmp_path, monkeypatch):
    """Also in one that is the working directory; files of the old model do not stay."""
    ws, images = shutil.copytree(workspace[0], tmp_path / "ws"), shutil.copytree(scene, tmp_path / "images")
    (images / "005.png").unlink()  # something to do
    record = json.loads((ws / "summary.json").read_text()) | {"models": [6, 3]}
    del record["written"], record["reasons"]  # version 0.1 recorded neither
    (ws / "summary.json").write_text(json.dumps(record))
    mine = {"notes.txt": "n", "georeferenced/cameras.bin": "c", "dense/0/fused.ply": "f"}
    for name, content in {**mine, "models/1/cameras.bin": "", "keypoints/001.png.txt": ""}.items():
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text(content)
    monkeypatch.chdir(ws)
    summary = reconstruct("../images", ".", "rootsift", SETTINGS)
    assert (summary.registered, len(read_reconstruction("sparse").images)) == (5, 5)
    assert {name: Path(name).read_text() for name in mine} == mine
    assert not Path("models").exists()
    assert not Path("keypoints").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "ws"]
    images.rename(ws / "photos")
    with refuses(ArgumentError):  # it would be replaced
        reconstruct("photos", ".", "rootsift", SETTINGS)


@on_each_colmap
@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_colmap_did_not_write_stays_even_under_its_names(is_recorded, workspace, scene, tmp_path):
    """Names that only other runs write stay; a folder with files of others, or a file in the way, is renamed."""
    ws, images, said = shutil.copytree(workspace[0], tmp_path / "ws"), shutil.copytree(scene, tmp_path / "images"), []
    (images / "005.png").unlink()  # something to do
    if not is_recorded:  # of an earlier version
        record = json.loads((ws / "summary.json").read_text())
        del record["written"]
        (ws / "summary.json").write_text(json.dumps(record))
    stay = ("matches.txt", "keypoints/n.txt", "models/splat.ply", *(("gps.txt",) if is_recorded else ()))
    for name in (*stay, "features/mine.h5"):
        (ws / name).parent.mkdir(exist_ok=True)
        (ws / name).write_text("mine")
    reconstruct(images, ws, "rootsift", SETTINGS, say=said.append)
    assert {(ws / name).read_text() for name in (*stay, "features.old1/mine.h5")} == {"mine"}
    assert not list((ws / "features").glob("mine*"))
    assert [line for line in said if str(ws / "features.old1") in line]
    with Image.open(scene / "005.png") as image:  # pycolmap cannot read it: the workspace gets a folder of photos
        image.save(images / "005.webp", lossless=True)
    (ws / "photos").mkdir(exist_ok=True)
    (ws / "photos" / "raw.dng").write_text("mine")
    (ws / "features" / ".DS_Store").write_text("")  # of a program that shows folders
    reconstruct(images, ws, "rootsift", SETTINGS, say=said.append)
    assert [path.read_text() for path in ws.glob("photos*/raw.dng")] == ["mine"]
    assert not (ws / "features.old2").exists()


@on_each_colmap
def test_a_finished_workspace_needs_no_pairs_and_takes_a_summary_of_a_newer_version(workspace, scene, tmp_path):
    ws = shutil.copytree(workspace[0], tmp_path / "ws")
    (ws / "pairs.txt").unlink()
    record = json.loads((ws / "summary.json").read_text())
    (ws / "summary.json").write_text(json.dumps(record | {"weather": "sunny"}))
    assert reconstruct(scene, ws, "rootsift", SETTINGS) == workspace[1]
    for change in ({"models": None}, {"reasons": []}, {"error": "none"}):
        (ws / "summary.json").write_text(json.dumps(record | change))
        with refuses(FileError):
            reconstruct(scene, ws, "rootsift", SETTINGS)


@on_each_colmap
def test_a_model_that_was_deleted_is_made_again(workspace, scene, tmp_path):
    ws, said = shutil.copytree(workspace[0], tmp_path / "ws"), []
    shutil.rmtree(ws / "sparse")
    assert reconstruct(scene, ws, "rootsift", SETTINGS, say=said.append).registered == 6
    assert any(line.startswith(f"made again: {ws}") for line in said)
    assert len(read_reconstruction(ws / "sparse").images) == 6


@on_each_colmap
def test_a_workspace_made_with_masks_is_not_replaced_by_one_without(workspace, scene, tmp_path):
    ws = shutil.copytree(workspace[0], tmp_path / "ws")
    record = json.loads((ws / "summary.json").read_text())
    record["inputs"]["photos"]["001.png"] += f" with mask {'0' * 64}"
    (ws / "summary.json").write_text(json.dumps(record))
    with refuses(FileError):
        reconstruct(scene, ws, "rootsift", SETTINGS)
