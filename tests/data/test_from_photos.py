"""Patch sets from a folder of photos, reconstructed by the real COLMAP."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import needs_colmap, refuses
from PIL import Image

from matchkernel.data import from_photos
from matchkernel.data.from_colmap import CutSettings
from matchkernel.data.from_photos import build_from_photos
from matchkernel.errors import FileError, MissingExtraError


@pytest.fixture(scope="module")
def reconstructed(rendered, tmp_path_factory):
    """A set cut from the rendered photos with the real program: the set, the stages named, the progress reported."""
    stages, counts = [], []
    built = build_from_photos(
        rendered / "images",
        tmp_path_factory.mktemp("photos") / "planes",
        CutSettings(pairs=100),
        say=stages.append,
        progress=lambda *count: counts.append(count),
    )
    return built, stages, counts


@needs_colmap
def test_real_colmap_reconstructs_rendered_photos(reconstructed):
    """The whole way: features, matches, mapping, patches; COLMAP's own counts become progress."""
    built, stages, counts = reconstructed
    assert [stage.split()[1] for stage in stages] == ["feature_extractor", "exhaustive_matcher", "mapper", "patches"]
    assert built.manifest["selection"]["photos"] >= 4
    assert built.manifest["selection"]["from tracks"] > 300
    assert (6, 6) in counts


@needs_colmap
def test_the_reconstruction_is_kept_and_used_again_for_the_same_photos_only(rendered, reconstructed, tmp_path):
    built, stages, _ = reconstructed
    shutil.copytree(built.folder.with_name("planes-colmap"), tmp_path / "set-colmap")
    photos, again = Path(shutil.copytree(rendered / "images", tmp_path / "photos")), []
    build_from_photos(photos, tmp_path / "set", CutSettings(pairs=0, mosaics=False), say=again.append)
    assert again == stages[-1:] == ["cutting patches"]
    shutil.rmtree(tmp_path / "set")
    shutil.copy(photos / "000.png", photos / "001.png")
    with refuses(FileError):
        build_from_photos(photos, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@needs_colmap
def test_photos_that_cannot_be_read_are_named_and_counted(rendered, tmp_path):
    photos, said = Path(shutil.copytree(rendered / "images", tmp_path / "photos")), []
    (photos / "zz.jpg").write_bytes(b"no photo")
    Image.fromarray(np.full((300, 400), 128, np.uint8)).save(photos / "blank.png")  # can be read, but not placed
    built = build_from_photos(photos, tmp_path / "set", CutSettings(pairs=0, mosaics=False), say=said.append)
    assert [line for line in said if "skipped" in line] == said[:1]
    assert "zz.jpg" in said[0]
    counts = built.manifest["selection"]
    assert counts["photos left out"]["cannot be read"] == 1
    assert counts["photos left out"]["not in the model"] >= 1
    assert counts["photos"] + sum(counts["photos left out"].values()) == 8


@pytest.mark.parametrize(
    "photos",
    [None, {}, {"a.png": b""}, {"a.jpg": b"no photo", "b.jpg": b"no photo"}, {"a.jpg": b"no photo", "c.png": b""}],
)
def test_fewer_than_two_photos_that_can_be_read_are_refused_before_colmap_starts(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(from_photos, "find_colmap", lambda: ("colmap",))
    monkeypatch.setattr(from_photos.Colmap, "run", lambda *_: pytest.fail("COLMAP was started"))
    if photos is not None:
        (tmp_path / "photos").mkdir()
        for name, content in photos.items():
            (tmp_path / "photos" / name).write_bytes(content)
            if name.endswith(".png"):
                Image.fromarray(np.eye(40, dtype=np.uint8)).save(tmp_path / "photos" / name)
    said = []
    with refuses(FileError):
        build_from_photos(tmp_path / "photos", tmp_path / "set", say=said.append)
    assert [path.name for path in tmp_path.iterdir()] == (["photos"] if photos is not None else [])
    assert said == []


def test_an_existing_set_and_a_missing_program_are_refused(rendered, tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    with refuses(FileError):
        build_from_photos(rendered / "images", tmp_path / "set")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    with refuses(MissingExtraError):
        build_from_photos(rendered / "images", tmp_path / "new")
