"""What people stumble over who make their first model: EXIF, GPS, features made before, one camera."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from helpers import needs_colmap, on_each_colmap, refuses
from hypothesis import given
from hypothesis import strategies as st
from made_collection import SETTINGS
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from matchkernel.collection.extract import extract_images
from matchkernel.collection.given_features import model_of_features, settings_of_features
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.colmap.focal_lengths import read_focal_length
from matchkernel.colmap.georeference import read_gps, write_gps
from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.model import read_reconstruction
from matchkernel.colmap.program import Colmap
from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.storage.work import offscreen

METRES = 111_194.9  # of a degree of latitude on a sphere


def centres(model):
    return {image.name: -image.R.T @ image.t for image in model.images.values()}


def with_exif(source, target, place=None, focal=None):
    """A JPEG of a photo with its focal length on 35 mm film and its position: latitude, longitude, altitude."""
    exif = Image.Exif()
    if focal is not None:
        exif.get_ifd(0x8769)[41989] = focal
    if place is not None:
        angles = [(IFDRational(round(abs(angle) * 1e7), 10**7), 0, 0) for angle in place[:2]]
        references = "S" if place[0] < 0 else "N", "W" if place[1] < 0 else "E"
        height = IFDRational(0, 0) if np.isnan(place[2]) else IFDRational(round(1000 * abs(place[2])), 1000)
        exif.get_ifd(0x8825).update({1: references[0], 2: angles[0], 3: references[1], 4: angles[1], 5: 0, 6: height})
    with Image.open(source) as image:
        image.save(target, exif=exif.tobytes(), quality=95)


@on_each_colmap
def test_features_and_pairs_made_before_give_the_model_of_the_plain_command(workspace, scene, tmp_path):
    """The settings are those of the features, though none are given: neither refused nor another model."""
    images = {path.name: path for path in scene.iterdir()}
    extract_images(images, tmp_path / "features", open_describer("rootsift"), SETTINGS.detector, store="float16")
    said = []
    found = reconstruct(scene, tmp_path / "ws", features=tmp_path / "features", say=said.append)  # and their model
    assert said[0] == f"with the settings of {tmp_path / 'features'}: keypoints 500, contrast 0.01, store float16"
    assert f"taking features of 6 of 6 photos from {tmp_path / 'features'}" in said
    assert found.registered == 6
    assert found.points == pytest.approx(workspace[1].points, rel=0.1)
    hints = [line for line in said if "--single-camera" in line]
    assert len(hints) == 1
    assert hints[0].startswith("6 photos of 400 x 300 pixels")


def test_settings_that_are_given_are_not_those_of_the_features(photos_cc0, tmp_path):
    images = {"005.jpg": photos_cc0 / "images" / "005.jpg"}
    extract_images(images, tmp_path / "f", open_describer("rootsift"), Detector(keypoints=50, edge=9.0))
    said = []
    found = settings_of_features(
        tmp_path / "f", ReconstructSettings(Detector(keypoints=77, contrast=0.02)), said.append
    )
    assert (found.detector.keypoints, found.detector.contrast, found.detector.edge) == (77, 0.01, 9.0)
    same = settings_of_features(tmp_path / "f", ReconstructSettings(), said.append, ["keypoints", "contrast"])
    assert (same.detector.keypoints, same.detector.contrast, same.detector.edge) == (8192, 0.02, 9.0)
    (tmp_path / "f" / "001.jpg.npz").write_bytes(b"broken")  # the first one that can be read decides
    assert settings_of_features(tmp_path / "f", ReconstructSettings(), said.append).detector.edge == 9.0
    (tmp_path / "f" / "005.jpg.npz").write_bytes(b"broken")
    assert settings_of_features(tmp_path / "f", ReconstructSettings(), said.append) == ReconstructSettings()


@pytest.mark.parametrize(
    ("model", "options", "found"),
    [
        ("rootsift", {}, {"model": "rootsift"}),
        ("tiny", {"engine": "torch"}, {"model": "tiny", "engine": "torch"}),
        ("sum", {"untrained": True}, {}),  # not in the package
    ],
)
def test_the_model_of_features_is_known_if_it_is_in_the_package(model, options, found, photos_cc0, tmp_path):
    images = {"005.jpg": photos_cc0 / "images" / "005.jpg"}
    extract_images(images, tmp_path / "f", open_describer(model, **options), Detector(keypoints=50))
    assert model_of_features(tmp_path / "f") == found
    (tmp_path / "f" / "005.jpg.npz").write_bytes(b"broken")
    assert model_of_features(tmp_path / "f") == {}


@on_each_colmap
def test_features_made_with_masks_are_taken_with_masks_only(scene, tmp_path):
    masks, said = tmp_path / "masks", []
    masks.mkdir()
    Image.new("L", (400, 300), 255).save(masks / "001.png.png")
    images = {path.name: path for path in scene.iterdir()}
    extract_images(images, tmp_path / "f", open_describer("rootsift"), SETTINGS.detector, masks=masks)
    with refuses(ArgumentError):
        reconstruct(scene, tmp_path / "ws", "rootsift", features=tmp_path / "f")
    assert not list(tmp_path.glob("ws*"))
    reconstruct(scene, tmp_path / "ws", "rootsift", features=tmp_path / "f", masks=masks, say=said.append)
    assert f"taking features of 6 of 6 photos from {tmp_path / 'f'}" in said


@on_each_colmap
def test_intrinsics_are_those_of_exif_in_every_format(photos_cc0, tmp_path):
    """28 mm on film of 36 x 24 mm: about 400 pixels of 500; photos of one camera need no hint."""
    images = tmp_path / "images"
    images.mkdir()
    for path, suffix in zip(sorted((photos_cc0 / "images").iterdir()), (".jpg", ".png", ".webp"), strict=True):
        with_exif(path, images / (path.stem + suffix), focal=28, place=(46.5, 6.5, 400.0))
    said = []
    found = reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append)
    assert found.registered == 3
    with closing(sqlite3.connect(tmp_path / "ws" / "database.db")) as connection:
        cameras = connection.execute("SELECT prior_focal_length, params FROM cameras").fetchall()
    assert all(is_known for is_known, _ in cameras)
    assert all(np.frombuffer(params)[0] == pytest.approx(402, abs=8) for _, params in cameras)
    assert not any("--single-camera" in line for line in said)
    assert any("gps.txt" in line for line in said)
    assert len((tmp_path / "ws" / "gps.txt").read_text().splitlines()) == 3


@needs_colmap
def test_model_aligner_reads_the_positions(photos_cc0, tmp_path):
    """Positions that are those of a model, in another unit: the aligned model has their distances, in metres."""
    before = centres(read_reconstruction(photos_cc0 / "sparse"))
    places = {name: 20 * centre for name, centre in before.items()}
    photos = []
    for name, (x, y, z) in places.items():
        with_exif(photos_cc0 / "images" / name, tmp_path / name, place=(x / METRES, 6 + y / METRES, 100 + z))
        photos.append((name, tmp_path / name))
    spaced = shutil.copy(photos[0][1], tmp_path / "with space.jpg")
    assert write_gps(tmp_path / "gps.txt", [*photos, (spaced.name, spaced)]) == (3, 1)
    (tmp_path / "out").mkdir()
    command = ["colmap", "model_aligner", "--input_path", photos_cc0 / "sparse", "--output_path", tmp_path / "out"]
    command += ["--ref_images_path", tmp_path / "gps.txt", "--ref_is_gps", "1", "--alignment_type", "enu"]
    subprocess.run([*command, "--robust_alignment_max_error", "3"], check=True, capture_output=True, env=offscreen())
    after = centres(read_reconstruction(tmp_path / "out"))
    a, b, _ = sorted(places)
    expected = np.linalg.norm(places[a] - places[b])
    assert np.linalg.norm(after[a] - after[b]) == pytest.approx(expected, rel=0.02)


def test_positions_are_signed_and_too_few_or_none_are_not_written(photos_cc0, tmp_path):
    photo = photos_cc0 / "images" / "005.jpg"
    with_exif(photo, tmp_path / "a.jpg", place=(-33.5, -70.25, 520.5))
    assert read_gps(tmp_path / "a.jpg") == pytest.approx((-33.5, -70.25, 520.5))
    with_exif(photo, tmp_path / "unknown.jpg", place=(-33.5, -70.25, np.nan))
    assert read_gps(tmp_path / "unknown.jpg") == pytest.approx((-33.5, -70.25, 0))
    assert read_gps(photo) is None
    assert write_gps(tmp_path / "gps.txt", [("a.jpg", tmp_path / "a.jpg"), ("b.jpg", photo)]) == (0, 0)
    assert not (tmp_path / "gps.txt").exists()


@given(st.binary(max_size=300))
def test_any_exif_header_is_a_position_or_none(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "odd.jpg"
    Image.new("L", (8, 8)).save(path, exif=b"Exif\0\0MM\0*\0\0\0\x08" + content)
    found = read_gps(path)
    assert found is None or len(found) == 3


def test_the_mapper_of_the_program_reports_photos_in_the_words_of_old_and_new_versions():
    seen = []
    colmap = Colmap(None, lambda *numbers: seen.append(numbers), ("colmap",))
    for line in ("Registering image #12 (3)", "Registering image #5 (num_reg_frames=4)", "Retriangulation", "[2/9]"):
        colmap._report(line, 12)
    assert seen == [(3, 12), (4, 12), (2, 9)]


def test_the_global_mapper_makes_the_model_and_reports_its_steps(scene, tmp_path):
    try:
        find_colmap("global")
    except MissingExtraError:
        pytest.skip("this COLMAP has no global mapper")
    seen, how = [], replace(SETTINGS, mapper="global", single_camera=True)
    found = reconstruct(scene, tmp_path / "ws", "rootsift", how, progress=lambda *numbers: seen.append(numbers))
    assert (found.registered, found.error < 0.5) == (6, True)
    assert [done for done, total in seen if total == 5] == [0, 1, 2, 3, 4]


@given(st.binary(max_size=300))
def test_any_exif_header_is_a_focal_length_or_none(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "odd.png"
    Image.new("L", (8, 8)).save(path, exif=b"Exif\0\0MM\0*\0\0\0\x08" + content)
    found = read_focal_length(path)
    assert found is None or 0 < found < 2000
