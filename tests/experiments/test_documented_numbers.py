"""Numbers that documents show are those of the results they name."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from candidates import DECIDE_FILTERS, LATER
from data import RESULTS
from own_jobs import PACKAGE
from results import photo_means
from rules import taken_filters

from matchkernel import available
from matchkernel.photos.describers import SIFTS
from matchkernel.photos.filters import LEARNED_RATIO
from matchkernel.runtime.card import read_card

ROOT = Path(__file__).parents[2]


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "calibration"),
    [
        ("matching_validation.json", "matching_validation.json"),
        ("matching_test_descriptors.json", "matching_validation_descriptors.json"),
    ],
)
def test_matching_of_every_descriptor(name, calibration):
    thresholds = json.loads((RESULTS / calibration).read_text())["thresholds"]
    used = json.loads((RESULTS / name).read_text())["models"]
    for model, mean in photo_means(name.removesuffix(".json")).items():
        homographies = " / ".join(f"{100 * mean[f'H {pixels} px']:.1f}" for pixels in (1, 3, 5))
        counts = f"{mean['matches']:.0f} | {mean['right']:.0f} | {100 * mean['accuracy 3 px']:.1f}"
        assert f"| `{model}` | {counts} | {homographies} | {thresholds[model]} |" in page("match.md")
        assert used[model]["match_threshold"] == thresholds[model]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_how_far_a_second_training_moves(split):
    first, again = (photo_means(f"matching_{split}{end}") for end in ("", "_again"))
    moved = {
        column: max(abs(first[name][column] - again[f"{name}-seed1"][column]) for name in PACKAGE)
        for column in ("right", "H 3 px")
    }
    words = f"changed right matches by at most {moved['right']:.1f} and homographies within 3 px by up to"
    assert f"{words} {100 * moved['H 3 px']:.1f} points" in " ".join(page("match.md").split())


def test_matching_by_kind_of_change():
    cells = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for pair in json.loads((RESULTS / "matching_test_descriptors.json").read_text())["pairs"]:
        cells[pair["model"]][pair["kind"]][pair["sequence"]].append((pair["right"], 100 * pair["accuracy 3 px"]))
    for model, kinds in cells.items():
        means = {kind: np.mean([np.mean(rows, 0) for rows in parts.values()], 0) for kind, parts in kinds.items()}
        shown = [f"{right:.0f} / {share:.1f}" for kind, (right, share) in means.items() if kind != "extreme viewpoint"]
        assert f"| `{model}` | {' | '.join(shown)} |" in page("match.md")


def test_ratios_and_distances():
    """The pages show the limits that the package uses, and these are the calibrated ones."""
    calibrated, limits = taken_filters(), dict(SIFTS)
    for name in available():
        limits[name] = read_card(name).match_threshold, read_card(name).match_ratio or LEARNED_RATIO
    assert {name: calibrated[name] for name in limits} == {
        name: f"ratio:{ratio}" for name, (_, ratio) in limits.items()
    }
    for name, (distance, ratio) in limits.items():
        note = "" if name in SIFTS or name in (*DECIDE_FILTERS, "light-wide", *LATER) else ", not calibrated"
        assert f"| `{name}` | {ratio}{note} | {'none' if distance is None else distance} |" in page("match.md")
    sift, rootsift = (SIFTS[name][1] for name in ("sift", "rootsift"))
    assert rootsift == LEARNED_RATIO
    words = f"below {limits['light-wide'][1]} for `light-wide` and `tiny`, {LEARNED_RATIO} for the other weights"
    assert f"{words} and RootSIFT, {sift} for SIFT" in page("adapters.md")


def test_matching_by_magnification():
    means = list(photo_means("magnification").values())
    for name, column, times, digits in (
        ("matches", "matches", 1, 0),
        ("right", "right", 1, 0),
        ("share right, %", "accuracy 3 px", 100, 1),
        ("homography within 1 px, %", "H 1 px", 100, 1),
        ("within 3 px, %", "H 3 px", 100, 1),
        ("within 5 px, %", "H 5 px", 100, 1),
    ):
        cells = " | ".join(f"{times * mean[column]:.{digits}f}" for mean in means)
        assert f"| {name} | {cells} |" in page("match.md")


@pytest.mark.parametrize("scene", ["sceaux", "fountain"])
def test_reconstructions(scene):
    for name, row in json.loads((RESULTS / f"colmap_{scene}.json").read_text()).items():
        numbers = f"{row['points']:,} | {row['track_length']:.2f} | {row['error']:.3f}"
        shown = name if "COLMAP" in name else f"`{name}`"
        line = f"| {shown} | {row['keypoints']:,} | {row['registered']} of {row['images']} | {numbers} |"
        assert line in page("adapters.md")


def test_speed_of_training():
    rows = json.loads((ROOT / "benchmarks" / "results" / "training.json").read_text())["rows"]
    for row in rows.values():
        patches = float(f"{row['patches_per_s']:.3g}")
        cells = f"| {row['paper_run_s']:.0f} s | {patches:,.0f} |"
        assert cells in page("training.md")
        assert f"| {row['ratio']:.1f} | {row['share_of_floor']:.2f} |" in page("training.md")


def test_statistics_by_size():
    folder = ROOT / "experiments" / "2026-11-15-mixed-sizes"
    for row in json.loads((folder / "result.json").read_text())["rows"]:
        scores = " | ".join(f"{100 * row[task]:.2f}" for task in ("verification", "matching", "retrieval"))
        line = f"| {row['size']} px | {row['statistics']} | {scores} |"
        assert line in (folder / "README.md").read_text(encoding="utf-8")


def test_scores_of_the_shipped_models_in_the_readme():
    results = {e: json.loads((RESULTS / f"{e}.json").read_text()) for e in ("ship", "baselines")}
    shown = {f"`{name}`": results["ship"][job] for name, job in PACKAGE.items()}
    shown |= {"the same `fc` with our recipe (not shipped)": results["ship"]["fc-by-our-recipe"]}
    shown["RootSIFT"] = results["baselines"]["rootsift"]
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for name, result in shown.items():
        row = next(line for line in lines if line.startswith((f"| {name} |", f"| {name},")))
        scores = [f"{100 * result['scores']['test'][task]:.1f}" for task in ("verification", "matching", "retrieval")]
        assert row.endswith(f"| {' | '.join(scores)} |"), row
