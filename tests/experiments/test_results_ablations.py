"""docs/results.md: what may be compared with what in the ablations, and the claims on maps and on M behind `sum`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

import ablations
import claims
import data
import gather
import made_paper_results as made
import maps
import numpy as np
import pytest
import regions
import sections
from made_paper_results import EXPERIMENTS, LEVELS, STEP
from verdicts import FAILS, HOLDS, OPEN

MAPS = "The similarity maps of every architecture are high near p, of `fc` too"
PROJECTED = "M behind `sum` gives nothing (alone)"


@pytest.fixture
def everything(tmp_path):
    made.write_all(tmp_path)
    return gather.read_results(tmp_path)


def verdict_of(everything, text):
    (found,) = (claim for claim in claims.claims_of(everything) if claim.text == text)
    return found.verdict


def section_of(text, title):
    return text.split(f"### {title}\n")[1].split("\n### ")[0]


def row_of(table, name):
    return next(line for line in table.splitlines() if line.startswith(f"| `{name}` |"))


def test_other_magnifications_stand_apart_and_are_not_compared(everything):
    text = sections.ablations(everything)
    apart = section_of(text, "Magnification of the region")
    apart, _, on_photos = apart.partition("On photos")
    assert [row.split(" | ")[1] for row in apart.splitlines() if row.startswith("| `")] == ["6", "5", "8", "10"]
    assert "difference" not in apart.split("|---")[0].splitlines()[-1]
    assert "magnification.json" in on_photos
    assert "`magnification-8`" not in section_of(text, "Ablations")
    assert "**5" not in apart  # no best one
    assert "Caution" not in text


def test_rows_on_other_data_are_told(tmp_path):
    made.write_all(tmp_path)
    results = gather.read_results(tmp_path)["ablation"]
    results["dropout-0.1-seed0"]["scores"]["validation"]["data_sha256"] = "other"
    made.write(tmp_path, "ablation", results)
    text = sections.ablations(gather.read_results(tmp_path))
    assert "**Caution: not all rows of this table" in section_of(text, "Ablations")
    assert "**Caution: not all rows of the tables of ablations, recipes and baselines" in text


def test_positives_are_compared_with_each_other(everything):
    text = sections.ablations(everything)
    table = section_of(text, "Tracks alone, or geometric positives too")
    assert "differs from `positives-geometric` in" in table
    assert "| patches of the cut tracks | 5,000 × 512 | 1 |" in row_of(table, "positives-tracks")
    assert "`positives-tracks`" not in section_of(text, "Ablations")


def test_base_is_a_place_of_the_kappa_table(tmp_path):
    made.write_all(tmp_path, {"kappa-s2-4": 0.61, "base": 0.6})
    kappas = ablations.kappa_runs(ablations.parts_of(gather.read_results(tmp_path)["ablation"])["main"])
    assert set(kappas) == {(s, kappa) for s in (1, 2, 3) for kappa in (1, 2, 4, 8, 16)}
    rows = ablations.kappa_table(kappas).splitlines()
    assert rows[3] == "| 2 | 50.00 | 50.00 | **61.00** | 60.10 ± 0.14 | 50.00 |"


def test_recipes_say_what_they_combine_and_what_adds_to_it(everything):
    text = sections.ablations(everything)
    best = row_of(section_of(text, "Recipes"), "best-2048")
    assert "s 2, kappa_cartesian 8, kappa_polar 8, pairs 2048, margin 1.2, same_side true, hybrid 2, rate 20 |" in best
    assert "`best-2048-rate-40`" not in section_of(text, "Recipes")
    assert row_of(section_of(text, "What adds to the best"), "best-2048-rate-40").startswith(
        "| `best-2048-rate-40` | rate 40 | 5,000 × 2,048 |"
    )


def test_maps_far_from_p_refute_the_claim(tmp_path, everything):
    assert verdict_of(everything, MAPS) == HOLDS
    results = dict(everything["descriptors"])
    results["fc-n32-seed1"]["scores"]["maps"]["by_distance"][7] = 0.95
    made.write(tmp_path, "descriptors", results)
    assert verdict_of(gather.read_results(tmp_path), MAPS) == FAILS
    del results["fc-n32-seed1"]["scores"]["maps"]
    made.write(tmp_path, "descriptors", results)
    assert verdict_of(gather.read_results(tmp_path), MAPS) == HOLDS
    for seed in (0, 2):
        del results[f"fc-n32-seed{seed}"]["scores"]["maps"]
    made.write(tmp_path, "descriptors", results)
    assert verdict_of(gather.read_results(tmp_path), MAPS) == OPEN


def test_maps_that_know_no_more_than_features_do_refute_it_too(tmp_path, everything):
    results = dict(everything["descriptors"])
    for seed in range(3):
        results[f"sum-n32-seed{seed}"]["scores"]["maps"]["near"] = 0.8
    made.write(tmp_path, "descriptors", results)
    assert verdict_of(gather.read_results(tmp_path), MAPS) == FAILS


def test_maps_table(everything):
    table = maps.maps_table(everything)
    assert row_of(table, "dual-s2") == "| `dual-s2` | 80.00 ± 0.00 | 11.80 | 0.90 | 0.80 | 0.70 | 0.60 | 0.30 |"
    assert "| 20.00 ± 0.00 |" in row_of(table, "sum")


@pytest.mark.parametrize(("gain", "verdict"), [(-0.1, HOLDS), (0.9 * STEP, HOLDS), (1.1 * STEP, FAILS)])
def test_m_behind_sum(tmp_path, gain, verdict):
    made.write_all(tmp_path, {"sum-m-plain": LEVELS["sum"] + gain, **LEVELS})
    assert verdict_of(gather.read_results(tmp_path), PROJECTED) == verdict


def test_m_behind_sum_is_open_without_it(tmp_path):
    jobs = [job for job in EXPERIMENTS["descriptors"] if not job.name.startswith("sum-m")]
    made.write(tmp_path, "descriptors", {job.name: made.result_of(job) for job in jobs})
    assert verdict_of(gather.read_results(tmp_path), PROJECTED) == OPEN


def test_weights_of_each_magnification_on_photos(tmp_path):
    """A grid of trained at and used at, from rows in any order."""
    rows = []
    for trained, name in ((10, "magnification-10-seed0"), (6, "base-seed0")):
        for used in (6, 8):
            scores = {"matches": 9, "right": 10 * trained + used, "accuracy 3 px": 0.5, "H 1 px": 0, "H 5 px": 1}
            rows.append({"model": f"{name}, x{used}", "sequence": "a", **scores, "H 3 px": used / 100})
    facts = {"magnifications": [6.0, 8.0], "machine": "x86_64", "versions": {"opencv": "5"}, "bf16": True}
    path = tmp_path / "magnification.json"
    path.write_text(json.dumps({**facts, "pairs": rows}))
    text = ablations.on_photos(path)
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert table == [
        "| trained at | used at 6 σ | used at 8 σ |",
        "| 6 σ | 66 / 6.0 | 68 / 8.0 |",
        "| 10 σ | 106 / 6.0 | 108 / 8.0 |",
    ]
    assert "*x86_64, OpenCV 5, in bfloat16, time not recorded; from `experiments/" in text
    assert ablations.on_photos(tmp_path / "none.json") == ""


def test_regions_in_words(tmp_path):
    shapes = np.array([[0, 0, 8, 0, 0, 8], [0, 0, 0, 20, -20, 0], [0, 0, 40, 0, 0, 40]], np.float32)
    for scene in data.GROUPS["A"]:
        (tmp_path / scene).mkdir()
        np.save(tmp_path / scene / "frame.npy", shapes)
    assert regions.sides_of(tmp_path / "fox").tolist() == [16, 40, 80]
    found = regions.measured(tmp_path)
    path = tmp_path / "regions.json"
    path.write_text(json.dumps(found))
    assert "40 px across in the median; 33 %" in regions.words(path)
    assert "67 % less than 64" in regions.words(path)
    assert regions.words(tmp_path / "none.json") == ""
