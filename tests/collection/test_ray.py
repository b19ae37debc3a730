"""Extraction and matching on a real Ray cluster of two nodes: the bytes of a local run, whatever is killed."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import needs_colmap, wait_until
from made_collection import find_images, write_photos
from ray_cluster import running_cluster

from matchkernel.collection.extract import extract_images
from matchkernel.collection.match import match_pairs
from matchkernel.collection.pairs import all_pairs
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.pair_lists import write_pairs
from matchkernel.photos.pipeline import MatchSettings

HAS_RAY = importlib.util.find_spec("ray") is not None
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # Ray leaves its log files open
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install 'matchkernel[ray]'"),
]
COUNT = 12


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Photos, one of them broken, and what this process makes of them; read only."""
    folder = tmp_path_factory.mktemp("local")
    write_photos(folder / "photos", COUNT)
    (folder / "photos" / "bad.png").write_bytes(b"not a photo")
    images = find_images([folder / "photos"])
    extract_images(images, folder / "features.h5", open_describer("sum", untrained=True), Detector(keypoints=200))
    pairs = list(all_pairs([name for name in images if name != "bad.png"]))
    write_pairs(folder / "pairs.txt", pairs)
    match_pairs(folder / "features.h5", pairs, [folder / "matches.h5"], MatchSettings())
    return folder


def start(folder, verb, *arguments):
    """Run a command in a folder; inputs are given as it sees them, and workers are in another one."""
    command = [sys.executable, "-m", "matchkernel", verb, *map(str, arguments), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=folder, **pipes)


def extract_on(place, folder, out):
    given = ("--model", "sum", "--untrained", "--keypoints", 200, "--on", place, "--workers", 2)
    return start(folder, "extract", "photos", "-o", out, *given)


def match_on(place, folder, out):
    given = ("--geometry", "auto", "--on", place, "--workers", 2, "-o", out)
    return start(folder, "match-pairs", "features.h5", "pairs.txt", *given)


def finished(process):
    """The summary of a run that must succeed, and what it said."""
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    return json.loads(out), err


def parts(out: Path):
    return list(Path(f"{out}.parts").glob("[!.]*.npz"))


def test_a_node_killed_while_extracting_loses_nothing(cluster, local, tmp_path):
    cluster.begin()
    process = extract_on(cluster.address, local, tmp_path / "features.h5")
    wait_until(
        lambda: parts(tmp_path / "features.h5") and cluster.is_second_working(), process
    )  # in the middle of a task
    cluster.kill_second()
    report, said = finished(process)
    assert len(report["done"]) == COUNT
    assert list(report["skipped"]) == ["bad.png"]
    assert said.count("bad.png") == 1
    assert (tmp_path / "features.h5").read_bytes() == (local / "features.h5").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["features.h5"]


def test_a_killed_driver_started_again_redoes_only_what_was_not_finished(cluster, local, tmp_path):
    cluster.begin()
    out = tmp_path / "features.h5"
    process = extract_on(cluster.address, local, out)
    wait_until(lambda: len(parts(out)) >= 4, process)
    process.kill()
    process.communicate()
    time.sleep(1)  # its workers end as Ray notices
    there = {path.name for path in parts(out)}
    report, _ = finished(extract_on(cluster.address, local, out))
    assert 4 <= len(there) == len(report["kept"]) < COUNT
    assert len(report["done"]) == COUNT - len(there)
    assert out.read_bytes() == (local / "features.h5").read_bytes()


@needs_colmap
def test_a_scene_is_reconstructed_from_what_a_cluster_extracts_and_matches(cluster, scene, tmp_path):
    cluster.begin()
    reports = {}
    for name, place in (("here", "local"), ("there", cluster.address)):
        given = ("--model", "rootsift", "--keypoints", 500, "--on", place, "--workers", 2)
        reports[name], _ = finished(start(scene.parent, "colmap", scene.name, "-o", tmp_path / name, *given))
    assert (reports["there"]["registered"], reports["there"]["pairs"]) == (6, 15)
    assert reports["there"]["on"] == f"{cluster.address}, 2 workers"
    files = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here" / "features").glob("*.npz"))
    assert len(files) == 6
    for file in (*files, Path("matches.h5")):
        assert (tmp_path / "there" / file).read_bytes() == (tmp_path / "here" / file).read_bytes(), file


def test_a_cluster_that_is_not_there_is_said_in_a_line(local, tmp_path):
    process = extract_on("127.0.0.1:1", local, tmp_path / "features.h5")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.startswith("error: 127.0.0.1:1: no Ray cluster could be reached")
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_client_of_the_cluster_can_be_anywhere(cluster, local, tmp_path):
    """Ray starts a server of its own for every client, which takes a while."""
    cluster.begin()
    report, _ = finished(match_on(f"ray://127.0.0.1:{cluster.client}", local, tmp_path / "matches.h5"))
    assert report["done"] == report["pairs"]
    assert (tmp_path / "matches.h5").read_bytes() == (local / "matches.h5").read_bytes()
