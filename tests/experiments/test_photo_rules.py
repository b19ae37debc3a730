"""The rules of docs/photos.md: what is stored gives the scores, and the choices follow from them."""

import inspect
import json
import sys
from dataclasses import replace

import candidates
import choose
import measured
import numpy as np
import pytest
import rules
from candidates import BEFORE, RATIOS, Candidate
from hypothesis import given
from hypothesis import strategies as st
from measured import Measured, compact, degree, pixels

from matchkernel.collection.reconstruct import reconstruct
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.rows import score_of
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_describer
from matchkernel.photos.filters import RATIO
from matchkernel.photos.pipeline import MatchSettings, match_images

ERRORS = st.lists(st.none() | st.floats(0, 12) | st.integers(0, 11).map(float), min_size=3, max_size=3)


def result(kind, pairs):
    scene = {"kind": kind, "pairs": pairs, "matches": 10.0, "inliers": 5.0, "right": 4.0, "accuracy": 0.4}
    facts = {"descriptor": "sift", "licence": "none", "keypoints": 2000, "filter": "none", "seconds": {}}
    return {**facts, "scenes": {"one": scene}}


@given(st.lists(st.tuples(ERRORS, ERRORS), min_size=1, max_size=5))
def test_one_character_per_error_is_enough_for_the_scores(errors):
    pairs = [{"rotation": rotation, "direction": direction} for rotation, direction in errors]
    stored = compact(result("poses", pairs))["scenes"]["one"]
    for limit in (5, 10):
        assert measured.accuracy(stored, limit) == pytest.approx(score_of(pairs, f"maa{limit}"))


@given(st.lists(ERRORS, min_size=1, max_size=5))
def test_homographies_too(errors):
    pairs = [{"corners": values} for values in errors]
    stored = compact(result("homographies", pairs))["scenes"]["one"]
    for limit in (1, 3, 5):
        assert measured.within(stored, limit) == pytest.approx(score_of(pairs, f"h{limit}"))


def test_limits_belong_to_the_better_side():
    assert [degree(error) for error in (0, 1, 1.001, 10, 10.001, None)] == ["1", "1", "2", "a", "-", "-"]
    assert [pixels(error) for error in (0, 1, 1.001, 3, 5, 5.001, None)] == ["1", "1", "3", "3", "5", "-", "-"]


def test_measurements_are_kept_by_scene(tmp_path):
    found = Measured(tmp_path / "photos_x.json")
    found.about = {"protocol": {"repeats": 3}}
    row = compact(result("poses", [{"rotation": [1.0, 2.0, None], "direction": [0.5, 2.5, 1.0]}]))
    found.add("a | b", row)
    found.add("a | b", {**row, "scenes": {"two": row["scenes"]["one"]}})
    found.write()
    again = measured.read("x", tmp_path)
    assert again.rows == found.rows
    assert again.about == {"format": 1, "protocol": {"repeats": 3}}
    assert again.has("a | b", ["one", "two"])
    assert not again.has("a | b", ["three"])
    assert not again.has("a", ["one"])
    assert again.score("a | b", ["one", "two"]).mean == pytest.approx((1.0 + 0.8) / 3)


def test_every_candidate_has_its_own_name():
    first = candidates.keypoints()
    assert len(first) == 3 * (4 * 2 + 3)
    taken = candidates.keypoint_settings()["spread", "one", 0.01]
    filters = candidates.filters(taken)
    ratios, distances = dict.fromkeys(candidates.FILTERED, 0.9), dict.fromkeys(candidates.OURS, 0.8)
    filters += candidates.combined_filters(taken, ratios, distances)
    default = Candidate("light", {**taken, "magnification": 10.0}, "ratio:0.9")
    filter_of = dict.fromkeys((*candidates.FILTERED, *candidates.OURS), "ratio:0.9")
    for several in (first, filters, candidates.frames(default), candidates.final(default, filter_of)):
        assert len({candidate.key for candidate in several}) == len(several)
        assert all(candidate.budget in candidates.BUDGETS for candidate in several)
    assert Candidate("dual", BEFORE).detector.settings()["choice"] == "strongest"
    assert not any("training" in candidate.groups for candidate in first if candidate.method == "light")


def scores(*values):
    return {"one": np.array(values, float)}


def test_the_cheapest_of_those_that_tie_is_taken():
    noise = np.random.default_rng(0).normal(0, 0.3, 400)
    noise -= noise.mean()
    best = np.full(400, 0.6)
    values = {
        "best": [scores(*best)],
        "about as good": [scores(*(best - 0.005 + noise))],
        "cheap": [scores(*(best - 0.1 + noise))],
    }
    rows = rules.ranked(values, {"best": 3.0, "about as good": 2.0, "cheap": 1.0})
    assert [row.name for row in rows] == ["best", "about as good", "cheap"]
    assert rows[1].error == pytest.approx(100 * 0.3 / np.sqrt(400), rel=0.1)
    assert [row.ties for row in rows] == [True, True, False]
    assert rules.taken(rows).name == "about as good"


def test_both_groups_count_the_same():
    values = {"a": [scores(1, 1, 1, 1), scores(0, 0)], "b": [scores(0, 0, 0, 0), scores(1, 0)]}
    rows = rules.ranked(values, {"a": 0.0, "b": 0.0})
    assert [(row.name, row.value) for row in rows] == [("a", 50), ("b", 25)]
    assert rows[1].error > 0


def test_a_ratio_is_calibrated_on_its_neighbours_too(tmp_path):
    found = Measured(tmp_path / "photos_filters.json")
    shares = dict.fromkeys(RATIOS, 0.0) | {0.75: 1.0, 0.85: 0.7, 0.9: 0.8, 0.93: 0.7}  # a spike, and a hill
    for ratio, share in shares.items():
        hits = round(10 * share)
        row = {"poses": "1" * hits + "-" * (10 - hits), "orders": 1}
        scenes = dict.fromkeys(candidates.SCENES["validation"], row)
        found.add(Candidate("light", BEFORE, f"ratio:{ratio}").key, {"scenes": scenes})
    assert rules.calibrated_ratio(found, "light", BEFORE) == 0.9


def test_a_step_is_measured_once(rendered, tmp_path, monkeypatch, capsys):
    (tmp_path / "data" / "scenes").mkdir(parents=True)
    (tmp_path / "data" / "scenes" / "planes").symlink_to(rendered)
    monkeypatch.setattr(choose, "SCENES", {"validation": ("planes",), "training": ("planes",)})
    only = "rootsift | choice=spread contrast=0.01 orientations=one"
    options = ["--groups", "validation", "--only", only, "--workers", "1", "--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", ["choose.py", "keypoints", str(tmp_path / "data"), *options])
    choose.main()
    assert f"validation: {only} | ratio:0.85: " in capsys.readouterr().out
    (row,) = measured.read("keypoints", tmp_path / "results").rows.values()
    scene = row["scenes"]["planes"]
    content = json.loads((tmp_path / "results" / "photos_keypoints.json").read_text())
    assert len(scene["poses"]) == 3 * content["scenes"]["planes"]["pairs"] > 0
    assert row["descriptor"] == "rootsift"
    choose.main()
    assert capsys.readouterr().out == ""


def test_what_was_not_measured_is_not_taken(tmp_path):
    found = Measured(tmp_path / "photos_keypoints.json")
    settings = candidates.keypoint_settings()
    for candidate in candidates.keypoints():
        good = candidate.changes == settings["largest", "one", 0.02]
        row = {"poses": ("1-" if good else "--") * 6, "orders": 3}
        groups = candidate.groups if candidate.changes in (settings["largest", "one", 0.02], BEFORE) else ["training"]
        scenes = {scene: row for group in groups for scene in candidates.SCENES[group]}
        found.add(candidate.key, {"scenes": scenes})
    rows = rules.rank_keypoints(found, {})
    assert [row.name for row in rows] == [("largest", "one", 0.02), ("strongest", "all", 0.04)]
    with pytest.raises(ArgumentError, match="no candidate was measured"):
        rules.rank_keypoints(Measured(tmp_path / "none.json"), {})


def test_the_package_uses_what_the_rules_take():
    default = rules.taken_model()
    assert (replace(Detector(), keypoints=candidates.BUDGET), Detector().magnification) == (
        default.detector,
        default.changes["magnification"],
    )
    for function in (match_images, reconstruct):
        assert inspect.signature(function).parameters["model"].default == default.method
    assert default.filter == f"{MatchSettings().filter}:{open_describer(default.method).settings[RATIO]}"
    filters = rules.taken_filters()
    for name in ("sift", "rootsift"):
        assert filters[name] == f"ratio:{open_describer(name).settings[RATIO]}"
