import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_poison import WorkersThatAPairKills
from PIL import Image

from matchkernel.collection.batch_extract import extract_images
from matchkernel.collection.local_workers import LocalWorkers
from matchkernel.collection.reconstruct import ReconstructSettings, analyze, model_folders, reconstruct
from matchkernel.collection.workspace import read_finished
from matchkernel.colmap.database import count_matches, read_database_keypoints
from matchkernel.colmap.model import read_reconstruction
from matchkernel.colmap.program import find_colmap, on_cpu
from matchkernel.colmap.text_files import listed_name, read_keypoints, write_keypoints, write_match_list
from matchkernel.errors import ArgumentError, FileError, MissingExtraError, WorkError
from matchkernel.geometry.conventions import frames_from_colmap
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import extract
from matchkernel.photos.filters import Filter

needs_colmap = pytest.mark.skipif(
    shutil.which("colmap") is None, reason="COLMAP is not installed (apt-get install colmap)"
)
SETTINGS = ReconstructSettings(Detector(keypoints=500))


@pytest.fixture(scope="module")
def scene(rendered):
    """Six rendered photos of textured planes, 400 x 300."""
    return rendered / "images"


@pytest.fixture(scope="module")
def workspace(scene, tmp_path_factory):
    folder = tmp_path_factory.mktemp("colmap") / "workspace"
    return folder, reconstruct(scene, folder, "rootsift", SETTINGS)


def colmap(stage, **options):
    words = [word for name, value in options.items() for word in (f"--{name.replace('__', '.')}", str(value))]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = [find_colmap(), stage, *words, *on_cpu(find_colmap(), stage)]
    subprocess.run(command, check=True, capture_output=True, env=environment)


@needs_colmap
def test_a_rendered_scene_is_reconstructed_from_our_features(workspace, scene):
    """Every image registers; the error is that of rendered photos (0.145 px measured), not half a pixel."""
    folder, summary = workspace
    assert summary.images == summary.registered == 6
    assert summary.points > 200
    assert summary.track_length > 2.5
    assert summary.error < 0.4
    assert summary.skipped == {}
    model = read_reconstruction(folder / "sparse")
    assert {image.name for image in model.images.values()} == {path.name for path in scene.iterdir()}
    observations = sum(int((image.points != -1).sum()) for image in model.images.values())
    assert (len(model.points), observations) == (summary.points, summary.observations)
    assert summary.track_length == pytest.approx(observations / len(model.points), abs=1e-4)
    written = json.loads((folder / "summary.json").read_text())
    assert written["points"] == summary.points
    assert written["settings"]["filter"] == "ratio"
    assert written["settings"]["match_ratio"] == 0.9  # RootSIFT's, though none was given
    assert not (folder.parent / "workspace.part").exists()


def test_a_scene_is_filtered_by_ratio_unless_told_otherwise():
    assert str(ReconstructSettings().filter) == "ratio"
    assert ReconstructSettings(filter="either:0.9,0.7").filter == Filter("either", 0.9, 0.7)
    for wrong in ("ratio:0", "ratio:1.1", "wide", None):
        with pytest.raises(ArgumentError, match=r"(ratio|filter) must be"):
            ReconstructSettings(filter=wrong)


@needs_colmap
def test_the_database_holds_our_keypoints(workspace, scene):
    """COLMAP's importer writes six columns: our frames come back, places to float32."""
    folder, _ = workspace
    stored = read_database_keypoints(folder / "database.db")
    assert sorted(stored) == sorted(path.name for path in scene.iterdir())
    for name, rows in stored.items():
        features = extract(scene / name, "rootsift", keypoints=500)
        back = frames_from_colmap(rows)
        assert np.abs(back.centers - features.keypoints).max() < 1e-4
        assert np.abs(back.shapes - features.frames.shapes).max() < 1e-3


@needs_colmap
def test_the_database_holds_our_matches(workspace):
    """The raw matches of a pair, column for column, in the order smaller id, larger id."""
    folder, _ = workspace
    with closing(sqlite3.connect(folder / "database.db")) as connection:
        ids = dict(connection.execute("SELECT name, image_id FROM images"))
        pair_id = 2147483647 * min(ids["000.png"], ids["001.png"]) + max(ids["000.png"], ids["001.png"])
        rows, data = connection.execute("SELECT rows, data FROM matches WHERE pair_id = ?", (pair_id,)).fetchone()
    stored = np.frombuffer(data, np.uint32).reshape(rows, 2)
    stored = stored if ids["000.png"] < ids["001.png"] else stored[:, ::-1]
    listed = (folder / "matches.txt").read_text().split("\n\n")[0].splitlines()
    assert listed[0] == "000.png 001.png"
    assert stored.tolist() == [[int(word) for word in line.split()] for line in listed[1:]]


@needs_colmap
def test_a_blob_is_where_it_was_drawn_in_text_and_database(tmp_path):
    """Drawn at (70, 52); COLMAP says (70.5, 52.5) for the same place (0.01 px), and its own SIFT agrees."""
    y, x = np.mgrid[:100, :140]
    pixels = np.round(30 + 200 * np.exp(-((x - 70) ** 2 + (y - 52) ** 2) / 50)).astype(np.uint8)
    for part in ("images", "text"):
        (tmp_path / part).mkdir()
    Image.fromarray(pixels).save(tmp_path / "images" / "blob.png")
    text, database = tmp_path / "text" / "blob.png.txt", tmp_path / "ours.db"
    write_keypoints(text, extract(pixels, "rootsift", keypoints=1).frames)
    assert [float(word) for word in text.read_text().split()[2:4]] == pytest.approx([70.5, 52.5], abs=0.01)
    assert read_keypoints(text).centers[0].tolist() == pytest.approx([70, 52], abs=0.01)
    images = tmp_path / "images"
    colmap("feature_importer", database_path=database, image_path=images, import_path=tmp_path / "text")
    ours = read_database_keypoints(database)["blob.png"]
    assert ours[0, :2].tolist() == pytest.approx([70.5, 52.5], abs=0.01)
    own = tmp_path / "own.db"
    colmap("feature_extractor", database_path=own, image_path=images)
    theirs = read_database_keypoints(own)["blob.png"]
    nearest = theirs[np.abs(theirs[:, :2] - ours[0, :2]).sum(1).argmin()]
    assert nearest[:2].tolist() == pytest.approx([70.5, 52.5], abs=0.05)
    assert np.hypot(nearest[2], nearest[4]) == pytest.approx(np.hypot(ours[0, 2], ours[0, 4]), rel=0.05)


@needs_colmap
def test_colmaps_matcher_finds_nothing_in_our_dummy_descriptors(workspace, tmp_path):
    """Should somebody run it on the database: zeros match nothing, rather than everything."""
    database = Path(shutil.copy(workspace[0] / "database.db", tmp_path))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM matches")
        connection.execute("DELETE FROM two_view_geometries")
    colmap("exhaustive_matcher", database_path=database)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT SUM(rows) FROM matches").fetchone()[0] in (0, None)


NEWER = """
import json, sys, pycolmap
database, images, out = sys.argv[1:]
found = {}
with pycolmap.Database.open(database) as opened:
    for image in opened.read_all_images():
        stored = opened.read_descriptors(image.image_id)
        found[image.name] = [len(opened.read_keypoints(image.image_id)), stored.type.name, *stored.data.shape]
    pairs = opened.num_matched_image_pairs(), opened.num_verified_image_pairs()
models = {}
for name, run in (("incremental", pycolmap.incremental_mapping), ("global", pycolmap.global_mapping)):
    mapped = run(database, images, f"{out}/{name}")
    models[name] = [[one.num_reg_images(), one.compute_mean_reprojection_error()] for one in mapped.values()]
print(json.dumps([found, pairs, models]))
"""


@needs_colmap
def test_colmap_4_takes_the_database(workspace, scene, tmp_path):
    """Of the installed COLMAP, 3.8 in Debian: read, with the type of the descriptors, and mapped in both ways."""
    if importlib.util.find_spec("pycolmap") is None:
        pytest.skip("pycolmap is not installed")
    database = Path(shutil.copy(workspace[0] / "database.db", tmp_path))
    for name in ("incremental", "global"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", NEWER, str(database), str(scene), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found, pairs, models = json.loads(done.stdout.splitlines()[-1])
    stored = read_database_keypoints(workspace[0] / "database.db")
    assert found == {name: [len(rows), "SIFT", len(rows), 128] for name, rows in stored.items()}
    counts = count_matches(workspace[0] / "database.db")
    assert pairs == [counts.pairs, counts.verified]
    for (images, error), *others in models.values():
        assert not others
        assert images == 6
        assert error < 0.4


@needs_colmap
@pytest.mark.slow
def test_a_stopped_run_goes_on(scene, tmp_path):
    """kill -9 after a few images; the second run does not extract them again and ends as an unstopped one."""
    code = (
        "import sys; from matchkernel.collection.reconstruct import *;"
        "reconstruct(sys.argv[1], sys.argv[2], 'rootsift', ReconstructSettings(Detector(keypoints=500)))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(scene), str(tmp_path / "ws")])
    features = tmp_path / "ws.part" / "features"
    for _ in range(3000):
        if features.is_dir() and len(list(features.glob("0*.npz"))) >= 2:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "ws").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in features.glob("0*.npz")}
    summary = reconstruct(scene, tmp_path / "ws", "rootsift", SETTINGS)
    assert summary.registered == 6
    assert kept
    assert all((tmp_path / "ws" / "features" / name).stat().st_mtime_ns == before for name, before in kept.items())


@needs_colmap
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
    written = (tmp_path / "ws" / "summary.json").stat()
    assert reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append) == summary
    assert said[-1] == f"{tmp_path / 'ws'}: stays as it was; what was skipped then (2) still cannot be used"
    assert (tmp_path / "ws" / "summary.json").stat() == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "ws"]


@needs_colmap
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


@needs_colmap
@pytest.mark.slow
def test_a_pair_that_kills_its_worker_is_named_once_and_left_out(scene, tmp_path):
    pair, said = ("001.png", "004.png"), []
    workers = WorkersThatAPairKills(LocalWorkers(1), pair)
    summary = reconstruct(scene, tmp_path / "ws", "rootsift", SETTINGS, workers=workers, say=said.append)
    assert list(summary.skipped) == ["001.png 004.png"]
    assert "SIGSEGV" in summary.skipped["001.png 004.png"]
    assert (summary.registered, summary.pairs) == (6, 14)
    assert sum("001.png 004.png" in line for line in said) == 1
    assert "001.png 004.png\n" not in (tmp_path / "ws" / "matches.txt").read_text()


@needs_colmap
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
    for kind in ("features/*", "keypoints/*", "*.txt"):
        made, expected = ({path.name: path.read_bytes() for path in at.glob(kind)} for at in (target, workspace[0]))
        assert made == expected


@needs_colmap
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
    with pytest.raises(FileError, match="already exists, made with filter 'ratio', now 'none'"):
        reconstruct(images, workspace, "rootsift", ReconstructSettings(SETTINGS.detector, "none"))


@needs_colmap
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
    with pytest.raises(ArgumentError, match=r"before: features of 0a\.png were made with .*500, now .*400"):
        reconstruct(images, tmp_path / "ws", describer, other, features=tmp_path / "before")
    assert not (tmp_path / "ws.part").exists()
    summary = reconstruct(images, tmp_path / "ws", describer, settings, features=tmp_path / "before", say=said.append)
    assert f"taking features of 1 of 12 photos from {tmp_path / 'before'}" in said
    assert (tmp_path / "ws/features/0a.png.npz").samefile(tmp_path / "before/0a.png.npz")
    assert summary.models == [6, 6]
    for folder in model_folders(tmp_path / "ws"):
        model = read_reconstruction(folder)
        assert len({image.name[1] for image in model.images.values()}) == 1
        assert all(camera.parameters.tolist() == [400, 200, 150, 0] for camera in model.cameras.values())


@needs_colmap
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
    assert {"0.HEIC", "003.png"} < names
    with Image.open(tmp_path / "ws" / "photos" / "0.HEIC") as image:
        assert image.format == "JPEG"
    assert (tmp_path / "ws" / "photos" / "003.png").samefile(images / "003.png")


def test_camera_models_and_mappers_that_are_refused():
    for wrong, message in (
        ({"camera_model": "PINHOL"}, "camera_model must be one of SIMPLE_PINHOLE"),
        ({"camera_params": "1,2,3"}, "SIMPLE_RADIAL must be 4 numbers"),
        ({"camera_params": "1,2,3,x"}, "must be 4 numbers"),
        ({"camera_params": "1,2,3,nan"}, "must be 4 numbers"),
        ({"mapper": "best"}, "mapper must be"),
    ):
        with pytest.raises(ArgumentError, match=message):
            ReconstructSettings(**wrong)


@needs_colmap
def test_the_global_mapper_needs_a_newer_colmap(scene, tmp_path):
    if "global_mapper" in subprocess.run([find_colmap(), "help"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this COLMAP has it")
    with pytest.raises(MissingExtraError, match=r"the global mapper needs COLMAP 4 \(this one is 3\.\d"):
        reconstruct(scene, tmp_path / "ws", "rootsift", ReconstructSettings(mapper="global"))
    assert not list(tmp_path.iterdir())


@needs_colmap
def test_images_that_do_not_overlap_are_failed_work(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(2):
        noise = np.random.default_rng(number).integers(0, 256, (150, 150), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "images" / f"{number}.png")
    with pytest.raises(WorkError):
        reconstruct(tmp_path / "images", tmp_path / "ws", "rootsift", SETTINGS)
    assert not (tmp_path / "ws").exists()


@needs_colmap
def test_a_scene_without_a_model_tells_how_many_matches_there_were(tmp_path):
    """Three copies of one image: all matches are inliers, but nothing moved, so COLMAP has no pair to begin with."""
    (tmp_path / "images").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)
    for number in range(3):
        Image.fromarray(noise).resize((320, 320), Image.Resampling.BICUBIC).save(tmp_path / "images" / f"{number}.png")
    with pytest.raises(WorkError) as failed:
        reconstruct(tmp_path / "images", tmp_path / "ws", "rootsift", SETTINGS)
    with closing(sqlite3.connect(tmp_path / "ws.part" / "database.db")) as connection:
        (matches,) = connection.execute("SELECT SUM(rows) FROM matches").fetchone()
        (inliers,) = connection.execute("SELECT SUM(rows) FROM two_view_geometries").fetchone()
    assert inliers > 100
    counts = f"3 image pairs with matches, 3 verified by COLMAP; {matches:,} matches, {inliers:,} inliers"
    assert str(failed.value).endswith(f"mapper.log); {counts}")


@needs_colmap
def test_images_of_one_colour_have_no_match(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(2):
        Image.new("L", (150, 150), 90).save(tmp_path / "images" / f"{number}.png")
    with pytest.raises(WorkError, match="no two images have a match"):
        reconstruct(tmp_path / "images", tmp_path / "ws", "rootsift", SETTINGS)


@needs_colmap
def test_what_is_refused(scene, tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        reconstruct(tmp_path / "absent", tmp_path / "ws", "rootsift")
    (tmp_path / "one").mkdir()
    shutil.copy(scene / "000.png", tmp_path / "one" / "a b.png")
    with pytest.raises(FileError, match="1 images"):
        reconstruct(tmp_path / "one", tmp_path / "ws", "rootsift")
    shutil.copy(scene / "001.png", tmp_path / "one" / "c.png")
    (tmp_path / "one" / "a b.png").rename(tmp_path / "one" / "a .png ")
    shutil.copy(scene / "001.png", tmp_path / "one" / " d.png")
    with pytest.raises(ArgumentError, match=r"rename the image ' d\.png'"):
        reconstruct(tmp_path / "one", tmp_path / "ws", "rootsift")
    (tmp_path / "one" / " d.png").rename(os.fsdecode(os.fsencode(tmp_path / "one") + b"/caf\xe9.png"))
    with pytest.raises(ArgumentError, match=r"UTF-8: rename the image 'caf\\udce9\.png'"):
        reconstruct(tmp_path / "one", tmp_path / "ws", "rootsift")
    (tmp_path / "f.h5").touch()
    for place, reason in (("f.h5", "is not a folder"), ("absent", "no such folder")):
        with pytest.raises(FileError, match=rf"{place}: {reason}; features are taken from a folder"):
            reconstruct(scene, tmp_path / "ws", "rootsift", features=tmp_path / place)
    assert not (tmp_path / "ws.part").exists()
    (tmp_path / "ws").mkdir()
    with pytest.raises(FileError, match="already exists"):
        reconstruct(scene, tmp_path / "ws", "rootsift")
    with pytest.raises(WorkError, match="model_analyzer"):
        analyze(tmp_path / "ws")


def test_missing_colmap_says_how_to_install_it(scene, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(MissingExtraError, match="apt-get install colmap"):
        reconstruct(scene, tmp_path / "ws", "rootsift")
    assert not (tmp_path / "ws.part").exists()


@pytest.mark.parametrize("K", [0, 1, 30])
def test_keypoint_text_there_and_back(tmp_path, K):
    random = np.random.default_rng(K)
    frames = Frames.turned_squares(random.uniform(0, 4000, (K, 2)), random.uniform(5, 99, K), random.uniform(-3, 3, K))
    write_keypoints(tmp_path / "a.txt", frames, 3.0)
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert lines[0] == f"{K} 128"
    assert all(len(line.split()) == 132 for line in lines[1:])
    back = read_keypoints(tmp_path / "a.txt", 3.0)
    assert np.abs(back.centers - frames.centers).max(initial=0) < 3e-4
    assert np.abs(back.shapes - frames.shapes).max(initial=0) < 1e-4


def test_keypoints_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(ArgumentError, match="not finite"):
        write_keypoints(tmp_path / "a.txt", Frames(np.array([[np.nan, 1.0]]), np.eye(2)[None]))
    assert not list(tmp_path.iterdir())


ROW = "1 2 3 0.5" + " 0" * 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1"), ("3\n", "line 1"), ("1 64\n" + ROW, "128 bytes"), ("2 128\n" + ROW, "has 1 lines"),
        ("1 128\n1 2 3\n", "line 2"), ("1 128\n1 2 x 4" + " 0" * 128, "line 2"), ("1 128\nnan" + ROW[1:], "not finite"),
        ("999999999999 128\n", "has 0 lines"),
    ],
)  # fmt: skip
def test_keypoint_text_that_is_refused(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(FileError, match=message):
        read_keypoints(tmp_path / "a.txt")


@given(st.binary(max_size=300) | st.text("0123456789 .-e\n", max_size=300).map(str.encode))
def test_anything_else_gives_our_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.txt"
    path.write_bytes(content)
    with suppress(FileError):
        read_keypoints(path)


def test_a_match_list(tmp_path):
    pairs = [("a.png", "d/b.png", np.array([[0, 2], [1, 1]])), ("a.png", "c.png", np.empty((0, 2), int))]
    assert write_match_list(tmp_path / "m.txt", pairs) == 1
    assert (tmp_path / "m.txt").read_text() == "a.png d/b.png\n0 2\n1 1\n\n"
    with pytest.raises(ArgumentError, match="separate names with spaces"):
        write_match_list(tmp_path / "m.txt", [("a b.png", "c.png", np.array([[0, 0]]))])
    with pytest.raises(ArgumentError, match="UTF-8"):
        write_match_list(tmp_path / "m.txt", [("a.png", os.fsdecode(b"caf\xe9.png"), np.array([[0, 0]]))])


def test_names_in_a_match_list():
    names = ["a b", "a%20b", "#a", "a\u3000b", "a\u2028b", "a 28b", "IMG (2).jpg", "a\tb"]
    listed = [listed_name(name) for name in names]
    assert listed[0] == "a%20b"
    assert listed[6] == "IMG%20(2).jpg"
    assert len(set(listed)) == len(names)
    assert all(name.split() == [name] and not name.startswith("#") for name in listed)
    assert listed_name("left/a.png") == "left/a.png"


def test_a_folder_that_is_no_workspace_is_left_alone(tmp_path):
    for number, content in enumerate(
        ("", "{}", "[]", '{"settings": {}, "inputs": 3}', '{"settings": {}, "inputs": {}}')
    ):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "summary.json").write_text(content)
        with pytest.raises(FileError, match="already exists; remove it"):
            read_finished(folder, {})
        assert (folder / "summary.json").read_text() == content


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from(["settings", "inputs", "photos", "images"]), inner, max_size=4),
    ).map(lambda made: json.dumps(made).encode())
)
def test_any_summary_is_read_or_our_error(tmp_path_factory, content):
    folder = tmp_path_factory.getbasetemp() / "fuzzed workspace"
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_bytes(content)
    with suppress(FileError):
        read_finished(folder, {})
