"""Files of version 0.1 open, and work that it began goes on (written_before/README.md tells how they were made)."""

import json
import shutil
from pathlib import Path
from zipfile import ZipFile

import cv2
import numpy as np
import pytest
import torch
from commands import good
from helpers import needs_colmap

from matchkernel import load
from matchkernel.data.patch_set import open_patch_set
from matchkernel.evaluation.results import read_result
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.hloc import image_names, read_features, read_matches

BEFORE = Path(__file__).parent / "written_before"
DETECTOR = json.loads((BEFORE / "workspace" / "summary.json").read_text())["settings"]["detector"]["detector"]
same_detector = pytest.mark.skipif(f"OpenCV {cv2.__version__} " not in DETECTOR, reason=f"made with {DETECTOR}")


def numbers(result):
    """Every number of a result, by its path."""
    if isinstance(result, dict):
        inner = {key: numbers(value) for key, value in result.items()}
        return {f"{key}/{path}": number for key, part in inner.items() for path, number in part.items()}
    return {"": float(result)} if isinstance(result, int | float) else {}


def members(path):
    """What a ZIP file holds, in its order; how its headers look depends on the version of Python, before 3.11.4."""
    with ZipFile(path) as file:
        return [(part.filename, part.date_time, part.compress_type, file.read(part)) for part in file.infolist()]


def test_features_open_and_are_written_as_the_same_bytes(tmp_path):
    assert image_names(BEFORE / "features.h5") == ["005.jpg", "008.jpg", "009.jpg"]
    for name in ("005.jpg", "008.jpg"):
        path = BEFORE / "features" / f"{name}.npz"
        alone, together = load_features(path), read_features(BEFORE / "features.h5", name)
        assert len(alone) == 40
        assert np.array_equal(alone.descriptors, together.descriptors)
        assert np.allclose(alone.frames.centers, together.frames.centers)
        assert alone.settings == together.settings
        save_features(alone, tmp_path / path.name)
        assert members(tmp_path / path.name) == members(path)


def test_matches_of_both_formats_are_the_same():
    lines = (BEFORE / "matches.txt").read_text()
    for block in lines.strip().split("\n\n"):
        names, *rows = block.splitlines()
        found = read_matches(BEFORE / "matches.h5", *names.split())
        assert sorted(map(tuple, found.indices.tolist())) == sorted(tuple(map(int, row.split())) for row in rows)


@same_detector
@pytest.mark.parametrize("out", ["features", "features.h5"])
def test_extraction_goes_on_where_it_was_stopped(out, tmp_path, photos_cc0):
    if out == "features":
        shutil.copytree(BEFORE / out, tmp_path / out)
    else:
        shutil.copy(BEFORE / out, tmp_path)
    done = good(
        "extract", photos_cc0 / "images", "-o", tmp_path / out, "--model", "tiny", "--keypoints", "40", "--json"
    )
    counts = json.loads(done.stdout)
    assert (len(counts["done"]), len(counts["kept"])) == ((1, 2) if out == "features" else (0, 3))


@needs_colmap
@same_detector
def test_a_workspace_that_is_complete_is_left_as_it_is(tmp_path, photos_cc0):
    workspace = shutil.copytree(BEFORE / "workspace", tmp_path / "workspace")
    few = ("--model", "tiny", "--keypoints", "200", "--store", "bytes", "--json")
    done = good("colmap", photos_cc0 / "images", "-o", workspace, *few)
    assert json.loads(done.stdout)["points"] == 62
    for path in (BEFORE / "workspace").rglob("*"):
        if path.is_file():
            assert (workspace / path.relative_to(BEFORE / "workspace")).read_bytes() == path.read_bytes(), path


def test_a_training_that_was_killed_goes_on(tmp_path):
    run = shutil.copytree(BEFORE / "run", tmp_path / "run")
    for name in ("final.safetensors", "best.safetensors"):
        (run / name).unlink()
    (run / "previous.safetensors").replace(run / "last.safetensors")
    good("train", BEFORE / "run.toml", "-o", run, "--resume", "--device", "cpu")
    now, then = (load(folder / "final.safetensors").state_dict() for folder in (run, BEFORE / "run"))
    for name, tensor in then.items():
        torch.testing.assert_close(now[name], tensor, rtol=1e-4, atol=1e-5)


def test_weights_and_sets_open(tmp_path):
    assert load(BEFORE / "run" / "best.safetensors").config.widths == (4, 8, 8)
    assert len(open_patch_set(BEFORE / "patches")) == 18
    good("data", "verify", BEFORE / "patches")
    good("data", "verify", BEFORE / "strips")


def test_results_are_scored_again_to_the_same_numbers_and_reported(tmp_path):
    weights = ("--model", BEFORE / "run" / "best.safetensors", "--device", "cpu", "--json")
    for protocol, data in (("hpatches", "strips"), ("phototourism", "patches")):
        then = read_result(BEFORE / "results" / f"{protocol}.json")
        (now,) = json.loads(good("evaluate", protocol, BEFORE / data, *weights).stdout)
        assert now.pop("recipe")  # not recorded then
        assert now.keys() == then.keys()
        assert numbers(now) == pytest.approx(numbers(then), abs=0.01)
    good("report", BEFORE / "results", "-o", tmp_path / "report.html")
