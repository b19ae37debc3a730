"""Methods scored on scenes: known answers, resumption, several processes, files of other programs."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import refuses, wait_until, write_sequence
from made_baselines import FILES

from matchkernel.errors import ArgumentError, FileError, WeightsError
from matchkernel.evaluation.methods import UNKNOWN, UNKNOWN_FROM
from matchkernel.evaluation.photos import evaluate
from matchkernel.evaluation.photos.evaluate import Protocol, evaluate_photos
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.evaluation.photos.scores import RATIO, difference, errors_of, shares_of_right, threshold_of
from matchkernel.evaluation.results import file_name, read_result, write_result
from matchkernel.evaluation.tables import labels_of
from matchkernel.geometry.detect import Detector
from matchkernel.model.weights import load, save
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.hdf5 import need_h5py
from matchkernel.photos.match_files import PairMatches, write_matches

ROOTSIFT = MethodSpec("rootsift", Detector(300), "ratio:0.85")
ONCE = Protocol(repeats=1)


@pytest.fixture(scope="module")
def scene(rendered):
    return read_scene(rendered, most_pairs=4)


@pytest.fixture(scope="module")
def result(scene):
    (found,) = evaluate_photos([scene], [ROOTSIFT], ONCE)
    return found


def without_seconds(result):
    return json.dumps({key: value for key, value in result.items() if key != "seconds"}, sort_keys=True)


def test_real_matches_of_rendered_photos_find_their_cameras(result, scene, tmp_path):
    part = result["scenes"]["planes"]
    assert part["maa10"] > 0.6
    assert part["maa10"] == result["mean"]["maa10"]["mean"]
    assert [row["images"] for row in part["pairs"]] == [list(pair) for pair in scene.pairs]
    assert all(0 < row["inliers"][0] <= row["matches"] <= min(row["keypoints"]) <= 300 for row in part["pairs"])
    assert result["licence"] == "Apache-2.0 (OpenCV)"
    assert set(result["seconds"]) == {"per_image", "per_match", "per_estimate", "threads"}
    write_result(tmp_path / "result.json", result)
    assert read_result(tmp_path / "result.json") == json.loads(json.dumps(result))
    assert file_name(result).startswith("photos-rootsift-300-ratio_0.85-")


def test_aligned_points_are_scored_with_the_same_features_and_said_to_be_aligned(scene, result, tmp_path):
    work = tmp_path / "work"
    specs = [ROOTSIFT, replace(ROOTSIFT, aligned=True)]
    plain, found = evaluate_photos([scene], specs, ONCE, work=work)
    assert without_seconds(plain) == without_seconds(result)
    assert len(list((work / "features").iterdir())) == 1
    assert found["settings"] == {**plain["settings"], "aligned": True}
    one, two = (part["scenes"]["planes"]["pairs"] for part in (plain, found))
    assert [row["matches"] for row in one] == [row["matches"] for row in two]
    assert sum(row["inliers"][0] for row in two) > sum(row["inliers"][0] for row in one)


def test_scores_on_training_scenes_are_said_to_be_too_good(scene, tmp_path):
    file = tmp_path / "mine.safetensors"
    save(load("tiny"), file, {"trained_on": "planes, other"})
    found = evaluate_photos([scene], [MethodSpec(text, Detector(50), "none") for text in (str(file), "tiny")], ONCE)
    assert [len(result["warnings"]) for result in found] == [1, 0]


def test_scores_of_weights_whose_training_sets_are_not_all_known_say_so(scene, tmp_path, baseline_weights):
    """As those of patch sets do: without a card, after an unknown teacher, and of a baseline's file."""
    cards = {"bare": {}, "student": {"trained_on": "other", "unknown_from": "elder"}, "known": {"trained_on": "other"}}
    for name, card in cards.items():
        save(load("tiny"), tmp_path / f"{name}.safetensors", card)
    texts = [*(str(tmp_path / f"{name}.safetensors") for name in cards), f"tfeat:{baseline_weights / FILES['tfeat']}"]
    specs = [MethodSpec(text, Detector(5 + k), "none") for k, text in enumerate(texts)]  # equal ones are scored once
    found = evaluate_photos([scene], specs, ONCE)
    assert [result["warnings"] for result in found] == [[UNKNOWN], [UNKNOWN_FROM.format("elder")], [], [UNKNOWN]]
    assert not any(result["trained_on"] for result in found)


def test_several_orders_of_the_matches_are_averaged(scene):
    (found,) = evaluate_photos([scene], [ROOTSIFT], Protocol(repeats=2))
    rows = found["scenes"]["planes"]["pairs"]
    assert all(len(row["rotation"]) == len(row["direction"]) == len(row["inliers"]) == 2 for row in rows)
    assert any(row["rotation"][0] != row["rotation"][1] for row in rows)
    by_hand = np.mean([[(errors_of(row) <= limit).mean() for limit in range(1, 11)] for row in rows])
    assert found["mean"]["maa10"]["mean"] == pytest.approx(by_hand)


class StoppedError(Exception):
    pass


def test_an_interrupted_run_resumes_to_the_same_bytes(scene, result, tmp_path, monkeypatch):
    """StoppedError after any number of images or pairs; then only what is missing is done."""

    def stopping(limit):
        def progress(*now):
            if now == limit:
                raise StoppedError

        return progress

    for limit in ((2, len(scene.images)), (2, len(scene.pairs))):
        with pytest.raises(StoppedError):
            evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work", progress=stopping(limit))
    (rows,) = (tmp_path / "work" / "pairs").iterdir()
    rows.write_text(rows.read_text() + '{"images": ["000')  # killed while writing
    done = []
    score = evaluate.score_pair
    monkeypatch.setattr(evaluate, "score_pair", lambda *task: done.append(task) or score(*task))
    (found,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work")
    assert len(done) == len(scene.pairs) - 2
    assert without_seconds(found) == without_seconds(result)


def test_a_killed_run_resumes_to_the_same_bytes_and_leaves_no_process(rendered, scene, result, tmp_path):
    """Killed without warning, in two processes, as soon as a pair is done."""
    work = tmp_path / "work"
    arguments = ["evaluate", "photos", rendered, "--model", "rootsift", "--keypoints", "300", "--filter", "ratio:0.85"]
    command = [sys.executable, "-m", "matchkernel", *arguments, "--repeats", "1", "--workers", "2", "--work", work]
    command += ["--most-pairs", "4"]
    running = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: [path for path in work.rglob("*.jsonl") if path.read_text().count("\n")])
    workers = [int(pid) for pid in children(running.pid)]
    running.kill()
    running.wait()
    assert len(workers) >= 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    done = sum(path.read_text().count("\n") for path in work.rglob("*.jsonl"))
    (found,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=work)
    assert 0 < done <= len(scene.pairs)
    assert without_seconds(found) == without_seconds(result)


def children(pid):
    """Of all its threads: those of the pool start the workers."""
    return [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def test_other_filters_reuse_the_features_and_damaged_ones_are_made_again(scene, result, tmp_path):
    (first,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work")
    files = sorted((tmp_path / "work" / "features").rglob("*.npz"))
    times = [path.stat().st_mtime_ns for path in files]
    specs = [MethodSpec("rootsift", Detector(300), text) for text in ("none", "ratio:0.7")]
    none, strict = evaluate_photos([scene], specs, ONCE, work=tmp_path / "work")
    assert [path.stat().st_mtime_ns for path in files] == times
    counts = [found["scenes"]["planes"]["matches"] for found in (none, first, strict)]
    assert counts == sorted(counts, reverse=True)
    assert labels_of([none, first, strict]) == ["rootsift, none", "rootsift, ratio:0.85", "rootsift, ratio:0.7"]
    before = {**first, "protocol": {"pixels": 0.5, "repeats": 1}}  # of version 0.2, which had one estimator
    assert labels_of([first, before]) == ["rootsift, refined", "rootsift, magsac"]
    assert difference(first, before, "maa10").mean == 0
    with refuses(ArgumentError):
        difference(first, {**first, "protocol": {**first["protocol"], "pixels": 20}}, "maa10")
    files[0].write_bytes(files[0].read_bytes()[:1000])
    shutil.rmtree(tmp_path / "work" / "pairs")
    (again,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work")
    assert without_seconds(again) == without_seconds(first) == without_seconds(result)
    assert difference(again, first, "maa10").mean == 0


def test_only_seconds_of_the_same_threads_and_machine_are_given(scene, result, tmp_path, monkeypatch):
    def seconds(threads):
        (found,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work", threads_each=threads)
        assert without_seconds(found | {"machine": result["machine"]}) == without_seconds(result)
        assert found["seconds"].pop("threads") == threads
        return found["seconds"]

    unknown = dict.fromkeys(("per_image", "per_match", "per_estimate"))
    one = seconds(1)
    files = sorted((tmp_path / "work").rglob("*.npz"))
    times = [path.stat().st_mtime_ns for path in files]
    assert min(one.values()) >= 0
    assert seconds(2) == unknown
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "another")
        assert seconds(1) == unknown
    assert seconds(1) == one
    assert [path.stat().st_mtime_ns for path in files] == times  # nothing was extracted again
    files[0].unlink()
    assert seconds(2)["per_image"] > 0  # of the image that was


def test_what_earlier_versions_kept_is_used_without_its_seconds(scene, result, tmp_path):
    """They kept bare seconds: a number with the features, two in the row of a pair."""
    evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work")
    files = sorted((tmp_path / "work").rglob("*.npz"))
    for path in files:
        features = load_features(path)
        save_features(replace(features, settings={**features.settings, "seconds": 0.5}), path)
    (rows,) = (tmp_path / "work" / "pairs").iterdir()
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    rows.write_text("".join(json.dumps({**row, "seconds": row["seconds"][0]}) + "\n" for row in written))
    times = [path.stat().st_mtime_ns for path in files]
    (found,) = evaluate_photos([scene], [ROOTSIFT], ONCE, work=tmp_path / "work")
    assert without_seconds(found) == without_seconds(result)
    assert set(found["seconds"].values()) == {None, 1}
    assert [path.stat().st_mtime_ns for path in files] == times


def test_results_of_other_pairs_are_not_compared(scene, result, rendered):
    (other,) = evaluate_photos([read_scene(rendered, most_pairs=3)], [ROOTSIFT], ONCE)
    with refuses(ArgumentError):
        difference(result, other, "maa10")


def test_a_sequence_with_homographies(tmp_path):
    """The texture is seen through exact homographies: nearly all matches are right, and limits can be calibrated."""
    sequence = read_scene(write_sequence(tmp_path / "v_texture", side=200))
    spec = MethodSpec("rootsift", Detector(200), "none")
    (found,) = evaluate_photos([sequence], [spec], ONCE)
    part = found["scenes"]["v_texture"]
    assert part["kind"] == "homographies"
    assert part["accuracy"] > 0.5
    assert part["h3"] >= part["h1"] > 0.5
    last = part["pairs"][-1]  # the same image
    assert last["right"] > 0.9 * last["matches"]
    assert last["corners"][0] < 0.1
    assert 0 < found["calibration"]["match_threshold"] < 1.5
    assert 0 < found["calibration"]["match_ratio"] <= 1
    assert found["calibration"]["right_below_ratio"]["0.75"] > 0.9
    assert "seen" not in last


def test_calibration_by_hand():
    """Right up to 0.5, wrong beyond; the second pair has four times the matches and the same weight."""
    first = np.array([[0.1, 1, 0.5], [0.5, 1, 0.7], [0.6, 0, 0.9], [0.9, 0, 0.95]])
    parts = [first, np.repeat(first, 4, axis=0), np.empty((0, 3))]
    assert (threshold_of(parts), threshold_of(parts, RATIO)) == (0.5, 0.7)
    shares = shares_of_right(parts)
    assert shares["0.8"] == 1.0
    assert shares["0.95"] == pytest.approx(2 / 3)
    assert (threshold_of([]), shares_of_right([])) == (None, {})


def test_true_matches_from_files_give_the_true_cameras(scene, rendered, tmp_path):
    """hloc's files of another program, without scales: the tracks of the model as features and as matches."""
    truths = {name: np.load(rendered / "truth" / f"{name[:3]}.npy") for name in scene.images}
    features, places = tmp_path / "features.h5", {}
    with need_h5py().File(features, "w") as file:
        for name in scene.images:
            camera = scene.cameras[name]
            seen = truths[name] @ camera.R.T + camera.t
            places[name] = seen[:, :2] / seen[:, 2:] * camera.parameters[:2] + camera.parameters[2:] - 0.5
            group = file.create_group(name)
            group["keypoints"] = places[name]
            group["descriptors"] = np.ones((4, len(places[name])), np.float16)
            group["image_size"] = np.array([400, 300])
    pairs = []
    for a, b in scene.pairs:  # points of A that B sees too, as further keypoints of B
        camera = scene.cameras[b]
        seen = truths[a] @ camera.R.T + camera.t
        pixels = seen[:, :2] / seen[:, 2:] * camera.parameters[:2] + camera.parameters[2:] - 0.5
        distance = np.linalg.norm(places[b][None] - pixels[:, None], axis=2)
        rows = np.flatnonzero(distance.min(1) < 0.05)
        pairs.append(
            (PairMatches((a, b), np.column_stack([rows, distance.argmin(1)[rows]]), np.ones(len(rows))), len(pixels))
        )
    write_matches(tmp_path / "matches.h5", pairs)
    text = f"hloc:{features},{tmp_path / 'matches.h5'}"
    specs, said = [MethodSpec(text, Detector(keypoints), "ratio") for keypoints in (5, 7)], []
    (found,) = evaluate_photos([scene], specs, ONCE, say=said.append)  # the file has its matches: of all keypoints
    assert (found["filter"], found["keypoints"], file_name(found).split("-")[2:4]) == ("none", 0, ["0", "none"])
    assert all(line.endswith("for hloc:features.h5,matches.h5, all keypoints, none") for line in said)
    assert found["licence"] == "not stated"
    for row, (given, _) in zip(found["scenes"]["planes"]["pairs"], pairs, strict=True):
        assert row["matches"] == len(given.indices)
    assert found["mean"]["maa5"]["mean"] > 0.9


@pytest.mark.parametrize(
    ("text", "workers", "error"),
    [
        ("nothing", 1, WeightsError),
        ("hloc:nowhere.h5", 1, FileError),
        ("hloc:a.h5,b.h5,c.h5", 1, ArgumentError),
        ("nobody:weights.pth", 1, ArgumentError),
        ("rootsift", 0, ArgumentError),
        (None, 1, ArgumentError),
    ],
)
def test_what_cannot_be_scored_is_refused(text, workers, error, scene):
    with refuses(error):
        evaluate_photos([scene], [MethodSpec(text, Detector())] if text else [], workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_photo_is_refused(workers, rendered, tmp_path):
    shutil.copytree(rendered, tmp_path / "scene")
    photo = tmp_path / "scene" / "images" / "001.png"
    photo.write_bytes(photo.read_bytes()[:-200])  # its header is whole
    with refuses(FileError):
        evaluate_photos([read_scene(tmp_path / "scene")], [ROOTSIFT], ONCE, workers=workers)
