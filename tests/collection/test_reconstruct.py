"""Reconstructions by COLMAP from our features: what its database holds, and what is refused."""

import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import numpy as np
import pytest
from helpers import needs_colmap, on_each_colmap, refuses
from made_collection import SETTINGS
from PIL import Image

from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.model import read_reconstruction
from matchkernel.colmap.points import analyze
from matchkernel.colmap.program import Colmap, on_cpu
from matchkernel.colmap.text_files import read_keypoints, write_keypoints
from matchkernel.errors import ArgumentError, FileError, MissingExtraError, WorkError
from matchkernel.geometry.conventions import frames_from_colmap
from matchkernel.photos.extract import extract
from matchkernel.photos.match_files import read_matches
from matchkernel.storage.folders import resumable_build
from matchkernel.storage.work import help_of


def colmap(stage, **options):
    words = [word for name, value in options.items() for word in (f"--{name.replace('__', '.')}", str(value))]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = [*find_colmap(), stage, *words, *on_cpu(find_colmap(), stage)]
    subprocess.run(command, check=True, capture_output=True, env=environment)


@on_each_colmap
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


@on_each_colmap
def test_the_database_holds_our_keypoints_and_matches(workspace, scene):
    """Keypoints in six columns, which give our frames; the matches of a pair in the order smaller id, larger id."""
    folder, _ = workspace
    stored = read_database_keypoints(folder / "database.db")
    assert sorted(stored) == sorted(path.name for path in scene.iterdir())
    for name, rows in stored.items():
        features = extract(scene / name, "rootsift", keypoints=500)
        back = frames_from_colmap(rows)
        assert np.abs(back.centers - features.keypoints).max() < 1e-4
        assert np.abs(back.shapes - features.frames.shapes).max() < 1e-3
    with closing(sqlite3.connect(folder / "database.db")) as connection:
        ids = dict(connection.execute("SELECT name, image_id FROM images"))
        pair_id = 2147483647 * min(ids["000.png"], ids["001.png"]) + max(ids["000.png"], ids["001.png"])
        rows, data = connection.execute("SELECT rows, data FROM matches WHERE pair_id = ?", (pair_id,)).fetchone()
    stored = np.frombuffer(data, np.uint32).reshape(rows, 2)
    stored = stored if ids["000.png"] < ids["001.png"] else stored[:, ::-1]
    assert stored.tolist() == read_matches(folder / "matches.h5", "000.png", "001.png").indices.tolist()


@needs_colmap
def test_a_blob_is_where_it_was_drawn_in_text_and_database(tmp_path, monkeypatch):
    """Drawn at (70, 52); COLMAP says (70.5, 52.5) for the same place (0.01 px), and its own SIFT agrees."""
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")  # the package has no import of text
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


@on_each_colmap
def test_the_other_colmap_takes_the_database(workspace, scene, tmp_path, each_colmap, monkeypatch):
    """A database of one COLMAP, and the model that another one makes of it."""
    other = {"program": "pycolmap", "pycolmap": "program"}[each_colmap]
    monkeypatch.setenv("MATCHKERNEL_COLMAP", other)
    try:
        find_colmap()
    except MissingExtraError:
        pytest.skip(f"COLMAP's {other} is not installed")
    if other == "program":
        pytest.skip("an older COLMAP does not read databases of a newer one")
    with resumable_build(tmp_path / "made", {}) as build:
        shutil.copy(workspace[0] / "database.db", build.folder)
        for mapper in ("mapper", "global_mapper"):
            assert [len(names) for names in Colmap(build).map(scene, mapper)] == [6]
            found = analyze(build.folder / "sparse")
            assert (found["registered"], found["error"] < 0.4) == (6, True)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"filter": text} for text in ("ratio:0", "ratio:1.1", "wide", None)),
        *({"camera_params": text} for text in ("1,2,3", "1,2,3,x", "1,2,3,nan")),
        {"camera_model": "PINHOL"},
        {"mapper": "best"},
    ],
    ids=str,
)
def test_settings_that_are_refused(wrong):
    with refuses(ArgumentError):
        ReconstructSettings(**wrong)


@on_each_colmap
@pytest.mark.parametrize("lacking", [{"mapper": "global"}, {"camera_model": "EUCM"}], ids=str)
def test_what_this_colmap_lacks_is_refused_first(lacking, scene, tmp_path):
    """3.8 has one mapper and eleven camera models; a later one may have these too."""
    if "COLMAP 3.8" not in help_of(find_colmap()):
        pytest.skip("what this COLMAP has is not known")
    with refuses(MissingExtraError):
        reconstruct(scene, tmp_path / "ws", "rootsift", ReconstructSettings(**lacking))
    assert not list(tmp_path.iterdir())


@on_each_colmap
def test_photos_in_no_model_are_named_and_pairs_of_unreadable_ones_left_out(scene, tmp_path):
    """A photo of something else and a damaged one; the list of pairs names both."""
    images, pairs = tmp_path / "images", tmp_path / "pairs.txt"
    shutil.copytree(scene, images)
    names = sorted(path.name for path in images.iterdir())
    noise = np.random.default_rng(0).integers(0, 256, (150, 150), dtype=np.uint8)
    Image.fromarray(noise).save(images / "other.png")
    (images / "bad.png").write_bytes((images / names[0]).read_bytes()[:200])
    listed = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
    listed += [(names[0], "bad.png"), (names[0], "other.png")]
    pairs.write_text("".join(f"{a} {b}\n" for a, b in [*listed, (names[0], "absent.png")]))
    said = []
    how = dataclasses.replace(SETTINGS, pairs=str(pairs))
    with refuses(FileError):
        reconstruct(images, tmp_path / "ws", "rootsift", how, say=said.append)
    assert not any(line.startswith("extracting") for line in said)
    pairs.write_text("".join(f"{a} {b}\n" for a, b in listed))
    summary = reconstruct(images, tmp_path / "ws", "rootsift", how)
    assert (summary.unregistered, list(summary.skipped)) == (["other.png"], ["bad.png"])
    assert summary.registered == len(names)
    known = json.loads((tmp_path / "ws" / "summary.json").read_text())
    assert known.pop("unregistered") == ["other.png"]
    (tmp_path / "ws" / "summary.json").write_text(json.dumps(known))  # as earlier versions wrote it
    assert reconstruct(images, tmp_path / "ws", "rootsift", how).unregistered == ["other.png"]
    pairs.write_text(f"{names[0]} bad.png\n")
    with refuses(FileError):
        reconstruct(images, tmp_path / "other", "rootsift", how)


@on_each_colmap
@pytest.mark.parametrize("is_noise", [True, False])
def test_images_that_do_not_overlap_or_have_no_match_are_failed_work(is_noise, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(2):
        noise = np.random.default_rng(number).integers(0, 256, (150, 150), dtype=np.uint8)
        Image.fromarray(noise if is_noise else np.full_like(noise, 90)).save(tmp_path / "images" / f"{number}.png")
    with refuses(WorkError):
        reconstruct(tmp_path / "images", tmp_path / "ws", "rootsift", SETTINGS)
    assert not (tmp_path / "ws").exists()


@on_each_colmap
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
    assert counts in str(failed.value)
    assert "take a step sideways" in str(failed.value)
    assert "mapper.log" in str(failed.value)


@pytest.fixture
def refused_inputs(scene, tmp_path):
    """Folders of photos, features and workspaces that cannot be used."""
    for name in ("one", "outer spaces", "not utf-8", "same name", "two sizes"):
        (tmp_path / name).mkdir()
        shutil.copy(scene / "000.png", tmp_path / name)
    shutil.copy(scene / "001.png", tmp_path / "outer spaces" / " d.png")
    shutil.copy(scene / "001.png", os.fsdecode(os.fsencode(tmp_path / "not utf-8") + b"/caf\xe9.png"))
    (tmp_path / "same name" / "a").mkdir()
    shutil.copy(scene / "000.png", tmp_path / "same name" / "a" / "b.png")
    shutil.copy(scene / "001.png", tmp_path / "same name" / "a-b.png")
    with Image.open(scene / "001.png") as image:
        image.crop((8, 0, 400, 300)).save(tmp_path / "two sizes" / "1.png")
    (tmp_path / "two sizes" / "broken.png").write_bytes(b"no image")
    (tmp_path / "f.h5").touch()
    (tmp_path / "other").mkdir()
    return tmp_path


@on_each_colmap
@pytest.mark.parametrize(
    ("images", "options", "error"),
    [
        ("absent", {}, FileError),
        ("one", {}, FileError),
        ("outer spaces", {}, ArgumentError),
        ("not utf-8", {}, ArgumentError),
        ("same name", {}, ArgumentError),
        ("two sizes", {"settings": dataclasses.replace(SETTINGS, single_camera=True)}, ArgumentError),
        ("scene", {"features": "f.h5"}, FileError),
        ("scene", {"features": "absent"}, FileError),
        ("scene", {"workspace": "other"}, FileError),
        ("one", {"workspace": "one/ws"}, ArgumentError),
    ],
)
def test_inputs_that_are_refused_before_any_work(images, options, error, scene, refused_inputs, monkeypatch):
    monkeypatch.chdir(refused_inputs)
    with refuses(error):
        given = {"workspace": "ws", "settings": SETTINGS, **options}
        reconstruct(scene if images == "scene" else images, model="rootsift", **given)
    assert not list(refused_inputs.rglob("ws*"))


def test_missing_colmap_says_how_to_install_it(scene, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    with refuses(MissingExtraError):
        reconstruct(scene, tmp_path / "ws", "rootsift")
    assert not (tmp_path / "ws.part").exists()
