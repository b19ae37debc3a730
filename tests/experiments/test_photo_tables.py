"""Every table of docs/photos.md and its chart, from made-up measurements of all steps."""

import json
from argparse import Namespace
from pathlib import Path

import candidates
import choose
import measured
import numpy as np
import photo_charts
import photo_tables
import pytest
import rules
from candidates import BEFORE, FRAMES, MEASURED_AT, OURS, PEERS, SCENES, Candidate

PAIRS = 12
BEST = candidates.keypoint_settings()["spread", "one", 0.01]

GOOD = ("ratio:0.85", "ratio:0.9", "ratio:0.93")


def write(name, wanted, quality, groups=None, about=None):
    """Made-up rows: the higher the quality of a candidate, the smaller its errors."""
    target = measured.read(name)
    target.about = about or {"scenes": {s: {"images": 5, "pairs": PAIRS} for part in SCENES.values() for s in part}}
    random = np.random.default_rng(0)
    for candidate in wanted:
        for group in groups or candidate.groups:
            errors = random.uniform(0, 14, (PAIRS, 3)) - quality(candidate)
            poses = "".join(measured.degree(max(0.0, error)) for error in errors.ravel())
            part = {"poses": poses, "orders": 3, "matches": 100.0, "inliers": 50.0}
            row = {"descriptor": candidate.method, "licence": "MIT", "scenes": dict.fromkeys(SCENES[group], part)}
            target.add(candidate.key, row)
    target.write()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    before, measured.RESULTS = measured.RESULTS, folder
    try:
        write("keypoints", candidates.keypoints(), lambda c: 6 if c.changes == BEST else 3)
        timed = measured.read("seconds")
        settings = candidates.keypoint_settings().values()
        timed.rows = {Candidate("detect", changes).key: {"seconds": 0.5} for changes in settings}
        for name, seconds in {"rootsift": 0.6, "dual": 4.0, "light": 2.0}.items():
            timed.rows[Candidate(name, BEST).key] = {"seconds": seconds}
        timed.rows[Candidate("dual", BEFORE).key] = {"seconds": 4.0}
        timed.write()
        write("filters", candidates.filters(MEASURED_AT), lambda c: 6 if c.filter in GOOD else 3)
        found = measured.read("filters")
        options = Namespace(results=folder)
        write("filters", choose.combined(found, options), lambda _: 3)
        models = choose.candidates_of(Namespace(step="models", results=folder, weights=Path()))
        write("models", models, lambda c: 6 if (c.method, c.changes["magnification"]) == ("light", 10.0) else 3)
        default = rules.taken_model()
        timed.rows[Candidate("light", default.changes).key] = {"seconds": 2.1}
        for changes, seconds in zip(FRAMES.values(), (2.5, 4.5, *6 * [2.5]), strict=True):
            timed.rows[Candidate("light", {**default.changes, **changes}).key] = {"seconds": seconds}
        timed.rows[Candidate("aliked-n16").key] = {"seconds": 1.5}
        timed.write()
        write("frames", candidates.frames(default), lambda c: 9 if "affnet" in c.changes else 4)
        write("final", choose.final_rows(), lambda _: 5, ["validation"])
        write("test", choose.final_rows(), lambda _: 5, ["test"])
        told = {"model": "light", "filter": "ratio", "related": "9", "unrelated": "27", "geometries": "homography 9"}
        (folder / photo_tables.UNRELATED).write_text(json.dumps({"summary": [told, told]}))
        yield folder
    finally:
        measured.RESULTS = before


def test_the_choices_follow_from_the_measurements(made):
    assert rules.taken_keypoints() == BEST
    filters = rules.taken_filters()
    assert filters.keys() == {*OURS, "sift", "rootsift", "desdis-32"}
    assert all(text in GOOD for text in filters.values())
    default = rules.taken_model()
    assert (default.method, default.changes["magnification"]) == ("light", 10.0)


def test_every_table_is_made(made):
    for name, table in photo_tables.TABLES.items():
        text = table()
        assert text != photo_tables.NOT_YET, name
        if name != "photo-reconstructions":
            assert text.count("\n") >= 3, name
    keypoints = photo_tables.keypoints()
    (line,) = (line for line in keypoints.splitlines() if "**" in line)
    assert line.startswith("| `spread` | one |")
    assert photo_tables.models().count("**") == 2


def test_frames_are_taken_for_what_they_are_worth(made):
    lines = {line.split(" | ")[0].strip("| "): line for line in photo_tables.frames().splitlines()}
    assert lines["AffNet, OriNet"].endswith("| yes |")
    assert lines["AffNet"].endswith("| no |")  # better, but it takes more than twice the time
    assert lines["upright"].endswith("| no |")


def test_all_methods_have_a_row_and_a_licence(made):
    text = photo_tables.every_method("test")
    assert all(f"`{name}`" in text for name in ("sift", "rootsift", *OURS, *PEERS))
    assert text.count("the new default**") == 1
    assert text.count("the default before") == 1
    assert all("| MIT |" in line for line in text.splitlines()[2:])
    assert "street" in text.splitlines()[0]
    budgets = photo_tables.budgets("test")
    assert budgets.count("\n") == 1 + 4
    assert "–" not in budgets


def test_the_chart_shows_what_was_timed(made):
    draw = photo_charts.charts()["photos_poses.png"]
    (axes,) = draw().axes
    names = [text.get_text() for text in axes.texts]
    assert "light, the new default" in names
    assert "aliked-n16" in names
    assert "test scenes" in axes.get_title(loc="left")


def test_without_measurements_the_tables_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    texts = {name: table() for name, table in photo_tables.TABLES.items()}
    assert {name for name, text in texts.items() if text != photo_tables.NOT_YET} == {"photo-reconstructions"}
    assert photo_charts.charts() == {}
