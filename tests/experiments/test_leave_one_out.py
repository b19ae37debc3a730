"""Leave one domain out, tried with three updates on rendered sets."""

import argparse
import time
from pathlib import Path

import adapt_tables
import leave_one_out
import pytest

from matchkernel.adapt import learn
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import FileError

SMALL = " model.d=8 model.D=8 model.patch_size=16"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Sets of one scene in the domain, one outside and one for validation; a base of a very small network."""
    monkeypatch.setattr(leave_one_out, "SCENES", ("inside", "outside"))
    monkeypatch.setattr(leave_one_out, "DOMAINS", {"aerial": ("inside",)})
    monkeypatch.setattr(leave_one_out, "VALIDATION", ("elsewhere",))
    monkeypatch.setattr(leave_one_out, "BASE", leave_one_out.BASE + SMALL)
    kept = ("remembering", "mixed", "scratch")
    ways = {name: leave_one_out.WAYS[name] for name in kept}
    monkeypatch.setattr(leave_one_out, "WAYS", {**ways, "scratch": ways["scratch"] + SMALL})
    parts = [f"parts/inside/{part}" for part in ("training", "validation", "test")]
    for seed, place in enumerate(("whole/inside", "whole/outside", "whole/elsewhere", *parts)):
        build_synthetic(tmp_path / place, SyntheticSettings(points=40, patches=2, size=16, seed=seed))
    return tmp_path


def test_every_way_from_a_base_and_nothing_twice(work):
    job = leave_one_out.Job("aerial", 0)
    until = time.time() + 1000
    results = dict(leave_one_out.do(job, work, "cpu", 3, set(), until))
    assert list(results) == [f"aerial 0 {way}" for way in leave_one_out.WAYS]
    for result in results.values():
        assert list(result["scores"]) == ["inside, test", "elsewhere"]
        assert result["settings"]["sampling"]["steps"] == 3
    assert not list(leave_one_out.do(job, work, "cpu", 3, set(results), until))
    assert not list(leave_one_out.do(job, work, "cpu", 3, set(), until - 2000))  # it is too late
    lines = adapt_tables.table(results, list(leave_one_out.WAYS))
    assert [line.split(" | ")[1] for line in lines[2:]] == list(leave_one_out.WAYS)
    assert adapt_tables.chosen(results) is None  # two seeds are missing
    for seed in (1, 2):
        results |= {name.replace(" 0 ", f" {seed} "): result for name, result in results.items()}
    assert adapt_tables.chosen(results) == "remembering"  # the only one that needs nothing but the user's photos


def test_the_rule_takes_the_best_by_validation_and_of_equals_the_one_that_forgets_least():
    measures = (adapt_tables.RETRIEVAL, adapt_tables.MATCHING, adapt_tables.HARD)

    def result(validation, test, elsewhere):
        own = [{"measure": name, "before": 0.5, "after": 0.5 + test} for name in measures]
        other = [{"measure": name, "before": 0.8, "after": 0.8 + elsewhere} for name in measures]
        places = {f"{scene}, test": own for scenes in leave_one_out.DOMAINS.values() for scene in scenes}
        return {
            "validation": [0.6, 0.6 + validation],
            "scores": {**places, **dict.fromkeys(leave_one_out.VALIDATION, other)},
        }

    gains = dict.fromkeys(leave_one_out.WAYS, (0.0, 0.0, 0.0))
    gains |= {"fast": (0.03, 0.1, -0.1), "long": (0.0305, 0.0, -0.2), "head": (0.0, 0.4, 0.0), "mixed": (0.2, 0.2, 0.1)}
    results = {
        f"{domain} {seed} {way}": result(*values)
        for way, values in gains.items()
        for domain in leave_one_out.DOMAINS
        for seed in leave_one_out.SEEDS
    }
    assert adapt_tables.chosen(results) == "fast"


def test_a_base_never_sees_its_domain_and_a_way_only_that(work):
    base, way, mixed = (
        leave_one_out.configuration(text, work, "aerial", 1, place, 3).data
        for text, place in (
            (leave_one_out.BASE, None),
            (leave_one_out.WAYS["scratch"], work / "x"),
            (f"{leave_one_out.WAYS['scratch']} mix", work / "x"),
        )
    )
    assert base.train == (str(work / "whole" / "outside"),)
    assert way.train == mixed.train == (str(work / "parts" / "inside" / "training"),)
    assert (way.mix, mixed.mix) == ((), base.train)


def test_sets_that_are_not_cut_are_one_error(tmp_path):
    options = argparse.Namespace(work=tmp_path, results=tmp_path)
    with pytest.raises(FileError, match="whole/liberty: not cut yet"):
        leave_one_out.run(options)


def test_the_page_shows_the_results_and_the_defaults_are_what_the_rule_takes():
    page = (Path(__file__).parents[2] / "docs" / "adapt.md").read_text(encoding="utf-8")
    results = leave_one_out.read_results(leave_one_out.RESULTS / "adapt.json")
    scenes = adapt_tables.scene_table(results, adapt_tables.SHOWN)
    assert len(scenes) == 2 + sum(map(len, leave_one_out.DOMAINS.values()))
    for line in (*adapt_tables.table(results, adapt_tables.SHOWN), *scenes, *adapt_tables.choice_table(results)):
        assert f"\n{line}\n" in page
    assert adapt_tables.chosen(results) == "remembering"
    settings = results["aerial 0 remembering"]["settings"]
    assert settings["optimizer"]["rate"] == AdaptSettings().rate
    longest = results["aerial 0 long"]["settings"]["sampling"]
    assert longest["steps"] * longest["pairs"] >= learn.MOST
    assert (AdaptSettings().layers, AdaptSettings().remember) == ("all", 1.0)
    assert "teacher.rows=1.0" in leave_one_out.WAYS["remembering"]
