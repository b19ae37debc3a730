"""Leave one domain out, tried with three updates on rendered sets."""

import argparse
import time

import leave_one_out
import pytest

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
    lines = leave_one_out.table(results).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == list(leave_one_out.WAYS)


def test_a_base_never_sees_its_domain_and_a_way_only_that(work):
    base, way, mixed = (
        leave_one_out.configuration(text, work, "aerial", 1, place, 3).data.train
        for text, place in (
            (leave_one_out.BASE, None),
            (leave_one_out.WAYS["scratch"], work / "x"),
            (f"{leave_one_out.WAYS['scratch']} mix", work / "x"),
        )
    )
    assert base == (str(work / "whole" / "outside"),)
    assert way == (str(work / "parts" / "inside" / "training"),)
    assert mixed == (*way, *base)


def test_sets_that_are_not_cut_are_one_error(tmp_path):
    options = argparse.Namespace(work=tmp_path, results=tmp_path)
    with pytest.raises(FileError, match="whole/liberty: not cut yet"):
        leave_one_out.run(options)
