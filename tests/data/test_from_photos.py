import os
import shutil
from pathlib import Path

import pytest

from matchkernel.data.from_colmap import CutSettings
from matchkernel.data.from_photos import build_from_photos, reconstruct_with_sift
from matchkernel.errors import FileError, MissingExtraError, WorkError

needs_colmap = pytest.mark.skipif(
    shutil.which("colmap") is None, reason="COLMAP is not installed (apt-get install colmap)"
)


@needs_colmap
def test_real_colmap_reconstructs_rendered_photos(rendered, tmp_path):
    """The whole way with the real program: features, matches, mapping, patches."""
    stages = []
    built = build_from_photos(rendered / "images", tmp_path / "set", CutSettings(pairs=100), say=stages.append)
    assert [stage.split()[1] for stage in stages] == ["feature_extractor", "exhaustive_matcher", "mapper", "patches"]
    assert built.manifest["selection"]["photos"] >= 4
    assert built.manifest["selection"]["from tracks"] > 300
    again = build_from_photos(rendered / "images", tmp_path / "other", CutSettings(pairs=100), say=stages.append)
    assert len(again) > 0


@needs_colmap
def test_the_reconstruction_is_kept_and_used_again(rendered, tmp_path):
    reconstruct_with_sift(rendered / "images", tmp_path / "set-colmap")
    stages = []
    build_from_photos(rendered / "images", tmp_path / "set", CutSettings(pairs=0, mosaics=False), say=stages.append)
    assert stages == ["cutting patches"]


@needs_colmap
def test_a_reconstruction_of_other_photos_is_not_used(rendered, tmp_path):
    photos = Path(shutil.copytree(rendered / "images", tmp_path / "photos"))
    reconstruct_with_sift(photos, tmp_path / "set-colmap")
    shutil.copy(photos / "000.png", photos / "001.png")
    with pytest.raises(FileError, match="reconstruction of other photos"):
        build_from_photos(photos, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@needs_colmap
def test_colmaps_counts_become_progress(rendered, tmp_path):
    told = []
    reconstruct_with_sift(rendered / "images", tmp_path / "workspace", progress=lambda *counts: told.append(counts))
    assert (6, 6) in told


@needs_colmap
def test_photos_that_do_not_overlap_are_failed_work(tmp_path):
    import numpy as np
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for number in range(2):
        noise = np.random.default_rng(number).integers(0, 256, (200, 200), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photos" / f"{number}.png")
    with pytest.raises(WorkError):
        build_from_photos(tmp_path / "photos", tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_missing_colmap_says_how_to_install_it(rendered, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(MissingExtraError, match="apt-get install colmap"):
        build_from_photos(rendered / "images", tmp_path / "set")


def test_folders_that_are_refused(tmp_path, monkeypatch):
    if shutil.which("colmap") is None:
        pytest.skip("COLMAP is not installed (apt-get install colmap)")
    with pytest.raises(FileError, match="no such folder"):
        build_from_photos(tmp_path / "absent", tmp_path / "set")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.jpg").touch()
    with pytest.raises(FileError, match="1 photos"):
        build_from_photos(tmp_path / "one", tmp_path / "set")
    (tmp_path / "set").mkdir()
    with pytest.raises(FileError, match="exists already"):
        build_from_photos(tmp_path / "one", tmp_path / "set")
