"""What COLMAP's importers take in: photos that it cannot read, or not as one camera's."""

import shutil

import cv2
import pytest
from helpers import on_each_colmap
from made_collection import SETTINGS
from PIL import Image

from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.colmap.database import count_matches, read_image_names
from matchkernel.colmap.model import read_reconstruction
from matchkernel.geometry.detect import Detector

SINGLE = ReconstructSettings(Detector(keypoints=500), single_camera=True)


@pytest.fixture
def images(scene, tmp_path):
    """A copy of the scene to change."""
    return shutil.copytree(scene, tmp_path / "images")


def in_16_bits(photo):
    """Write a photo anew with two bytes a colour."""
    cv2.imwrite(str(photo), cv2.imread(str(photo)).astype("uint16") * 257)


@on_each_colmap
def test_photos_that_colmap_cannot_read_are_given_to_it_as_jpeg(images, tmp_path):
    """COLMAP 3.8 leaves 16 bit colour out, and with the first such photo all pairs that follow in the list."""
    for name in ("000.png", "003.png"):
        in_16_bits(images / name)
    summary = reconstruct(images, tmp_path / "ws", "rootsift", SINGLE)
    assert len(read_reconstruction(tmp_path / "ws" / "sparse").cameras) == 1
    assert (summary.registered, summary.pairs, summary.skipped, summary.refused) == (6, 15, {}, [])
    assert count_matches(tmp_path / "ws" / "database.db").pairs == 15
    if (tmp_path / "ws" / "photos").exists():  # COLMAP 4 may read what 3.8 does not
        with Image.open(tmp_path / "ws" / "photos" / "003.png.jpg") as image:
            assert image.format == "JPEG"
        assert (tmp_path / "ws" / "photos" / "001.png").samefile(images / "001.png")


@on_each_colmap
def test_a_photo_that_colmap_does_not_take_is_named_and_costs_its_own_pairs_only(images, tmp_path, monkeypatch):
    in_16_bits(images / "002.png")
    monkeypatch.setattr("matchkernel.colmap.converted.as_jpeg", lambda path: b"no image")
    said = []
    summary = reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append)
    if not (tmp_path / "ws" / "photos").exists():
        pytest.skip("this COLMAP reads 16 bit colour")
    assert (summary.registered, summary.pairs, summary.refused, summary.unregistered) == (5, 10, ["002.png"], [])
    assert sum("002.png" in line for line in said) == 1
    assert count_matches(tmp_path / "ws" / "database.db").pairs == 10
    assert read_image_names(tmp_path / "ws" / "database.db") == {f"00{k}.png" for k in (0, 1, 3, 4, 5)}
    assert reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS, say=said.append) == summary
    assert said[-1].endswith("all 6 photos are in it already")
