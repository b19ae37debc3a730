"""Gains and verdicts, and limits from known cameras."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from matchkernel.adapt.judge import HARD, Adapted, Gain, hard_gain, matching_gain, no_poses, pose_gain, retrieval_gain
from matchkernel.adapt.learn import ENOUGH, MAX_PAIRS, NO_BETTER, TIME_OVER, Learned, planned_updates
from matchkernel.adapt.limits import epipolar_errors
from matchkernel.data.patch_set import PatchSet
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera


def rows_of(labels, noise, seed):
    """Unit rows near a direction of each label."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(labels.max() + 1, 8))
    rows = centres[labels] + noise * np.random.default_rng(seed).normal(size=(len(labels), 8))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def patch_set():
    labels = np.repeat(np.arange(150), 3)
    random = np.random.default_rng(2)
    positive = np.column_stack([3 * np.arange(150), 3 * np.arange(150) + 1, np.ones(150, int)])
    a, b = random.integers(450, size=(2, 300))
    other = np.column_stack([a, b, np.zeros(300, int)])[labels[a] != labels[b]]
    pairs = {"m50hard_1_1_0": np.concatenate([positive, other])}
    photos = {"photo": np.tile([0, 1, 2], 150)}
    return PatchSet(Path("x"), np.zeros((450, 8, 8), np.uint8), labels, photos, pairs, {})


@pytest.mark.parametrize(("noise", "verdict"), [(0.2, "better"), (1.6, "worse"), (0.8, "within noise")])
def test_a_difference_counts_if_its_interval_leaves_zero(patch_set, noise, verdict):
    rows = [rows_of(patch_set.labels, one, seed) for seed, one in enumerate((0.8, noise))]
    for measure in (retrieval_gain, matching_gain, hard_gain):
        gain = measure(rows, patch_set, "here")
        assert gain.verdict == verdict
        assert gain.low <= gain.after - gain.before <= gain.high
        assert f": {verdict}" in gain.text()
        assert Gain(**{k: v for k, v in gain.to_json().items() if k != "verdict"}) == gain


def test_equal_rows_gain_exactly_nothing(patch_set):
    rows = [rows_of(patch_set.labels, 0.8, 0)] * 2
    for measure in (retrieval_gain, matching_gain, hard_gain):
        gain = measure(rows, patch_set, "here")
        assert (gain.low, gain.high, gain.verdict) == (0, 0, "within noise")


def test_found_first_counts_the_nearest_of_each_other_photo_that_shows_the_point():
    labels, photos = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
    rows = np.array([[0.0], [0.1], [1.0], [3.0], [1.2]])  # of point 1, photo 1 has a nearer patch of point 2
    patch_set = PatchSet(Path("x"), np.zeros((5, 8, 8), np.uint8), labels, {"photo": photos}, {}, {})
    gain = matching_gain([rows, np.array([[0.0], [0.1], [1.0], [1.1], [1.2]])], patch_set, "here")
    assert (gain.before, gain.after) == (3 / 4, 1)  # point 2 is seen by one photo: no question
    alone = PatchSet(Path("x"), patch_set.patches, labels, {"photo": np.zeros(5, int)}, {}, {})
    assert matching_gain([rows, rows], alone, "here") is None
    assert matching_gain([rows, rows], PatchSet(Path("x"), patch_set.patches, labels, {}, {}, {}), "here") is None


def test_weights_are_better_if_retrieval_gains_and_nothing_got_worse():
    up, down, same = (Gain("m", "p", 0.5, 0.6, low, high) for low, high in ((0.01, 0.2), (-0.2, -0.1), (-0.1, 0.1)))
    lower = Gain(HARD, "p", 0.2, 0.1, -0.2, -0.1, lower_is_better=True)
    learned = Learned(9, 9, 5, 0.6, 0.5, 0.6, 1.0, "")
    verdicts = [
        Adapted(Path(), {}, learned, gains).is_better
        for gains in ([up], [up, same], [up, lower], [], [up, down], [same, up])
    ]
    assert verdicts == [True, True, True, False, False, False]


MADE_ALL = "all updates were made"
BEST = "the weights after update 1 were best on validation; on photos held out their retrieval is 60.0 instead of 50.0"
ALL = MAX_PAIRS // 512  # updates
MADE = {  # updates made and planned, why it ended, maps before and after, gains on the test part: the verdict
    "nine short updates": ((9, 20, TIME_OVER, 0.891, 0.882), None, "Keep the shipped weights. 9 updates, too "
    "few to tell, made them slightly worse on validation (89.1 → 88.2). A fairer try: the same command with "
    "`--minutes 45` (about 100 updates), or a GPU."),
    "nothing to gain": ((1920, ALL, NO_BETTER, 0.891, 0.890), None, "Keep the shipped weights: your photos need no "
    "adapting. 1,920 updates made them slightly worse on validation (89.1 → 89.0)."),
    "a hundred say little": ((100, 100, MADE_ALL, 0.891, 0.890), None, "Keep the shipped weights. 100 updates, too few "
    "to tell, made them slightly worse on validation (89.1 → 89.0). A fairer try: more `--minutes`, best on a GPU."),
    "few and within noise": ((7, 20, TIME_OVER, 0.7, 0.6), [("a", -0.1, 0.1)], "Keep the shipped weights. Of "
    f"7 updates, too few to tell, {BEST}, within noise. A fairer try: the same command with `--minutes 60` (about 100 "
    "updates), or a GPU."),
    "within noise": ((ALL, ALL, MADE_ALL, 0.7, 0.71), [("a", -0.1, 0.01)], "Keep the shipped weights: "
    f"your photos need no adapting. Of {ALL:,} updates {BEST}, within noise."),
    "too few points": ((ALL, ALL, MADE_ALL, 0.7, 0.71), [("a", -0.005, 0.145)], "Keep the shipped weights. Of "
    f"{ALL:,} updates {BEST}, within noise, too few points to tell (95 % interval -0.5 to +14.5). A fairer try: "
    "more photos."),
    "mixed": ((ALL, ALL, MADE_ALL, 0.7, 0.71), [("a", 0.1, 0.2), ("b", -0.2, -0.1)], "Keep the shipped "
    f"weights. Of {ALL:,} updates {BEST}, but b got worse."),
    "better": ((100, 100, MADE_ALL, 0.7, 0.71), [("a", 0.1, 0.2)], "Use the adapted weights. Of 100 "
    f"updates {BEST}, and nothing measured there got worse."),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_the_verdict_tells_no_need_from_too_little_training(name):
    (step, steps, why, first, last), gains, said = MADE[name]
    learned = Learned(step, steps, 1 if gains else 0, last, first, last, 160.0, why)
    found = [Gain(measure, "p", 0.5, 0.6, low, high) for measure, low, high in gains or []]
    assert Adapted(Path(), {}, learned, found).verdict == said


def test_weights_of_ones_own_are_named_and_a_slow_machine_is_told_to_use_a_gpu():
    learned = Learned(9, 20, 0, 0.891, 0.891, 0.891, 600.0, TIME_OVER)
    verdict = Adapted(Path(), {}, learned, model="runs/mine.safetensors").verdict
    assert verdict.startswith("Keep mine.safetensors. 9 updates, too few to tell, changed nothing on validation (89.1")
    assert verdict.endswith(". A fairer try: more `--minutes`, best on a GPU.")


@pytest.mark.parametrize("slower", [1.0, 1.15])
def test_the_minutes_that_are_advised_are_enough_for_updates_that_tell_something(slower):
    learned = Learned(7, 20, 2, 0.9, 0.9, 0.9, 145.4, TIME_OVER)
    speed, trial = 7 / 145.4 / slower, 100.0
    assert planned_updates(speed, pairs=1, left=60 * learned.fair_minutes - trial) >= ENOUGH


def test_weights_that_have_seen_the_photos_are_a_warning_before_any_number():
    learned = Learned(100, 100, 1, 0.7, 0.7, 0.7, 160.0, "")
    for gain in (0.1, -0.1):
        gains = [Gain("a", "p", 0.5, 0.6, gain, 0.2)]
        verdict = Adapted(Path(), {}, learned, gains, model="tiny", seen="castle").verdict
        assert verdict.index("No fair test: tiny was trained on castle") < verdict.index("60.0")
        assert "No fair test" not in Adapted(Path(), {}, learned, gains, model="tiny").verdict


def test_a_scene_without_pairs_has_no_poses_to_score(tmp_path):
    scene = EvaluationScene("x", {"1": tmp_path, "2": tmp_path}, [("1", "2")])
    assert pose_gain(("light", "light"), scene, tmp_path, "cpu", lambda done, total: None) is None
    assert "the 2 test photos make 1 pair that" in no_poses(scene)
    assert no_poses(replace(scene, pairs=[("1", "2")] * 10)) == ""


def test_epipolar_errors_are_the_pixels_that_a_match_is_off():
    random = np.random.default_rng(0)
    turned = np.array([[0.96, 0, 0.28], [0, 1, 0], [-0.28, 0, 0.96]])
    parameters = np.array([500.0, 500, 320, 240])
    a, b = (
        PoseCamera(R, np.array(t), "PINHOLE", parameters, (640, 480))
        for R, t in ((np.eye(3), [0.0, 0, 0]), (turned, [-1.0, 0.1, 0.2]))
    )
    places = random.uniform([-1, -1, 4], [1, 1, 8], (50, 3))
    seen = []
    for camera in (a, b):
        inside = places @ camera.R.T + camera.t
        seen.append(inside[:, :2] / inside[:, 2:] * 500 + [320, 240] - 0.5)
    truth = (a, b), ((640, 480), (640, 480))
    assert epipolar_errors(*seen, *truth).max() < 1e-6
    moved = epipolar_errors(seen[0], seen[1] + [0, 6.0], *truth)  # the epipolar lines are nearly level
    assert 3 < np.median(moved) <= 6
    assert np.isinf(epipolar_errors(np.full((1, 2), np.nan), seen[1][:1], *truth)).all()
