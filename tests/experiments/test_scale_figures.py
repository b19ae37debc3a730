"""The tables and numbers about collections in the docs are computed from the stored benchmarks."""

import json
import sys
import tracemalloc
from pathlib import Path

import pytest

from matchkernel.collection import match_pairs
from matchkernel.collection.extract_shards import MEMORY
from matchkernel.collection.match_shards import CACHE, MatchWork, PairTask
from matchkernel.collection.shards import key_of
from matchkernel.photos.files import read_pairs, write_pairs
from matchkernel.photos.pipeline import MatchSettings

ROOT = Path(__file__).parents[2]


def stored(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def scale(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import scale

    yield scale
    sys.modules.pop("scale")


def test_the_page_about_scale_is_computed(scale):
    text = scale.PAGE.read_text(encoding="utf-8")
    inside = text.partition(scale.MARKS[0])[2].partition(scale.MARKS[1])[0]
    assert inside == scale.table()


def test_the_formula_by_hand(scale):
    """One photo on one worker without loss costs what one photo costs."""
    costs = dict.fromkeys(stored("collection_costs")["costs"], 1.0)
    speed = {"simulated": [{"share": 1.0}], "shard_ms": {"ray": 16_000.0}}
    plan = scale.Plan(photos=16, nodes=1, cores=2, partners=16)
    found = {step.formula: (step.core_seconds, step.seconds) for step in scale.steps(plan, costs, speed)}
    assert found["n x / (W e)"] == (16, 8)
    assert found["p m / (W e)"] == (256, 128)
    assert found["n² c"] == (256, 256)
    assert found["(n / 16 + p / 256) s"] == (32, 32)
    assert [scale.duration(seconds) for seconds in (89, 90, 7200, 10 * 86400)] == [
        "89.0 s",
        "1.5 min",
        "2.0 h",
        "10.0 days",
    ]


def test_the_spread_covers_every_unit_cost(scale):
    costs = stored("collection_costs")["costs"]
    for name in (name for letter, (name, *_) in scale.UNITS.items() if letter not in scale.OF_OTHER_VECTORS):
        assert "up to 7.0 times apart" in scale.spread_told(costs, {**costs, name: costs[name] / 7}), name


def test_the_memory_of_a_pair(scale, tmp_path, monkeypatch):
    """What the process that leads has for each pair of a file when it begins to hand out blocks."""
    names = [f"{number:05}.png" for number in range(200)]
    write_pairs(tmp_path / "p.txt", ((a, b) for i, a in enumerate(names) for b in names[i + 1 : i + 21]))
    memory = []
    monkeypatch.setattr(
        match_pairs, "_results", lambda *_: memory.append(tracemalloc.get_traced_memory()[0]) or iter(())
    )
    tracemalloc.start()
    try:
        pairs = read_pairs(tmp_path / "p.txt")
        tasks = [PairTask(a, b, key_of(a, b)) for a, b in pairs]
        match_pairs.run_blocks(MatchWork(tmp_path, MatchSettings(), tmp_path), tasks, None)
    finally:
        tracemalloc.stop()
    assert abs(memory[0] / len(tasks) - scale.PAIR_BYTES) < 60
    assert f"about {scale.PAIR_BYTES} bytes for each pair" in collections_page()


def test_the_speed_of_workers(scale):
    speed = stored("collection_speed")
    assert " ".join(scale.speed_told().split()) in collections_page()
    assert speed["ray_over_local"] >= 0.85
    assert speed["same_bytes"]
    assert all(row["share"] > 0.9 for row in speed["simulated"])
    assert speed["simulated"][-1]["workers"] == 200


def collections_page():
    return " ".join((ROOT / "docs" / "collections.md").read_text(encoding="utf-8").split())


def test_the_memory_that_is_stated_is_that_of_the_code():
    stated = [f"{work / 1e9:.1f} GB" for work in (MEMORY, MatchWork(Path(), MatchSettings(), Path()).memory, CACHE)]
    told = "extracts takes at most {}, for photos of 16 megapixels and more; one that matches, {}, of which {} are"
    assert told.format(*stated) in collections_page()


def test_the_memory_that_was_measured(scale):
    memory = stored("collection_memory")
    assert " ".join(scale.memory_told().split()) in collections_page()
    assert memory["images"] == 2000
    assert memory["largest_photo"]["worker_mb"] * 1e6 < MEMORY
    assert memory["features_mb"] > 2 * memory["kept_mb"] == 2 * CACHE / 1e6  # more than two workers keep
    rows = [row for row in memory["rows"] if "note" not in row]
    for stage, begin in (("extract", 0), ("match-pairs", 0.5)):  # what a worker keeps is full after half of the pairs
        of_stage = [row for row in rows if row["stage"] == stage]
        first, *_, last = of_stage[int(begin * len(of_stage)) :]
        assert last["leader_mb"] <= first["leader_mb"] + 10
        assert last["worker_mb"] <= first["worker_mb"] + 10
