"""COLMAP's program: the installed version, and a made one with the option names of a newer version."""

import os
import re
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from helpers import needs_colmap, refuses
from PIL import Image

from matchkernel.collection import reconstruct as colmap
from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.program import Colmap, on_cpu
from matchkernel.data import from_photos
from matchkernel.errors import MissingExtraError, WorkError
from matchkernel.storage.folders import resumable_build

# Says the names of COLMAP 3.13, writes down how it was called, and does nothing.
NEWER = """#!/bin/sh
echo "$@" >> "$0.log"
case "$*" in
    "feature_"*" --help") echo "  --FeatureExtraction.use_gpu arg (=1)" ;;
    *"match"*" --help") echo "  --FeatureMatching.use_gpu arg (=1)" ;;
    "mapper --help") echo "  --Mapper.ba_use_gpu arg (=0)" ;;
    "feature_importer "*) exec PYTHON "$0.py" "$@" ;;
esac
"""
TAKES_IN_ALL = """import sqlite3, sys
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with sqlite3.connect(given["--database_path"]) as database:
    database.execute("CREATE TABLE images (image_id INTEGER PRIMARY KEY, name, camera_id)")
    database.execute("CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB)")
    database.execute("CREATE TABLE matches (pair_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB)")
    database.execute("CREATE TABLE cameras (camera_id, width, height, params, prior_focal_length)")
    names = open(given["--image_list_path"]).read().splitlines()
    database.executemany("INSERT INTO images (name) VALUES (?)", [(name,) for name in names])
"""


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """A COLMAP with the names of 3.13 first on PATH; its log has a line a call."""
    program = tmp_path / "bin" / "colmap"
    program.parent.mkdir()
    program.write_text(NEWER.replace("PYTHON", sys.executable))
    program.with_name("colmap.py").write_text(TAKES_IN_ALL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    return program


@pytest.fixture
def photos(tmp_path):
    """Twice the same photo, so that there are matches."""
    (tmp_path / "photos").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)
    for name in ("0.png", "1.png"):
        Image.fromarray(noise).resize((160, 160), Image.Resampling.BICUBIC).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("answer", "is_known"),
    [
        ("Check failed: ExistsCameraModelWithName(camera_model) ; exit 1", False),
        ("ERROR: Camera model does not exist ; exit 1", False),
        ("ERROR: Invalid options provided. ; exit 1", True),  # of something else: said when it is imported
        ("Processing file [1/0] ; exit 0", True),
    ],
)
def test_a_newer_camera_model_is_tried(answer, is_known, tmp_path, monkeypatch):
    said, _, end = answer.partition(" ; ")
    program = tmp_path / "colmap"
    program.write_text(f'#!/bin/sh\n[ "$1" = help ] && echo "COLMAP 3.9 -- more" && exit 0\necho "{said}"\n{end}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    with nullcontext() if is_known else refuses(MissingExtraError):
        find_colmap(camera_model="EUCM")


@needs_colmap
def test_every_stage_takes_the_option_of_the_installed_colmap(monkeypatch):
    """Not the mapper, which has none. The names are those of Debian's 3.8, or of 3.13 and later."""
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    extraction = on_cpu(find_colmap(), "feature_extractor")
    assert extraction in (("--SiftExtraction.use_gpu", "0"), ("--FeatureExtraction.use_gpu", "0"))
    matching = (extraction[0].replace("Extraction", "Matching"), "0")
    for stage in ("exhaustive_matcher", "sequential_matcher", "matches_importer"):
        assert on_cpu(find_colmap(), stage) == matching
    assert on_cpu(find_colmap(), "mapper") == ()


def test_a_missing_colmap_says_how_to_install_it_from_a_clone(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MATCHKERNEL_COLMAP", "program")
    with pytest.raises(MissingExtraError, match=re.escape("(in a clone: '.[colmap]')")):
        find_colmap()


def test_the_global_mapper_of_a_newer_colmap_is_found(newer):
    newer.write_text(
        NEWER.replace(
            '"mapper --help")', '"help") printf "COLMAP 4.1\\n  global_mapper\\n  mapper\\n" ;;\n    "mapper --help")'
        )
    )
    assert find_colmap("global") == find_colmap("incremental") == (str(newer),)


def test_the_mapper_gets_the_options_that_this_version_has(newer, tmp_path):
    options = {"ba_use_gpu": 0, "use_gpu": 0, "min_model_size": 3}
    with resumable_build(tmp_path / "workspace", {}) as build, refuses(WorkError):
        Colmap(build).map(tmp_path, options=options)
    *_, call = newer.with_name("colmap.log").read_text().splitlines()
    assert call.startswith("mapper --database_path ")
    assert call.endswith("/mapped --Mapper.ba_use_gpu 0")


@pytest.mark.parametrize(
    ("reconstruct", "stages"),
    [
        (from_photos.reconstruct_with_sift, ["feature_extractor", "exhaustive_matcher", "mapper"]),
        (lambda *paths: colmap.reconstruct(*paths, "sift"), ["feature_importer", "matches_importer", "mapper"]),
    ],
    ids=["from-photos", "colmap"],
)
def test_reconstruction_calls_a_newer_colmap_by_its_names(newer, photos, tmp_path, reconstruct, stages):
    with refuses(WorkError):  # because the program did nothing
        reconstruct(photos, tmp_path / "workspace")
    calls = [line.split() for line in newer.with_name("colmap.log").read_text().splitlines()]
    assert [call[0] for call in calls] == [stage for stage in stages for _ in range(2)]
    assert all(call[1:] == ["--help"] for call in calls[::2])  # asked when the stage is due, not before
    assert calls[1][-2:] == ["--FeatureExtraction.use_gpu", "0"]
    assert calls[3][-2:] == ["--FeatureMatching.use_gpu", "0"]
    assert not any("--Sift" in word for call in calls for word in call)
