"""Defaults of the package are what the experiments found, and the pages that users read first show them."""

import inspect
import json
from dataclasses import replace
from pathlib import Path

import adapt_tables
import leave_one_out
import rules
from candidates import BUDGET, DECIDE_FILTERS, LATER
from data import RESULTS
from own_jobs import PACKAGE

from matchkernel import available
from matchkernel.adapt import learn
from matchkernel.adapt.settings import AdaptSettings
from matchkernel.collection.reconstruct import reconstruct
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import SIFTS, open_describer
from matchkernel.photos.filters import LEARNED_RATIO, RATIO
from matchkernel.photos.pipeline import MatchSettings, match_images
from matchkernel.runtime.card import read_card

ROOT = Path(__file__).parents[2]


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_ratios_and_distances():
    """The pages show the limits that the package uses, and these are the calibrated ones."""
    calibrated, limits = rules.taken_filters(), dict(SIFTS)
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


def test_speed_of_training():
    rows = json.loads((ROOT / "benchmarks" / "results" / "training.json").read_text())["rows"]
    for row in rows.values():
        patches = float(f"{row['patches_per_s']:.3g}")
        cells = f"| {row['paper_run_s']:.0f} s | {patches:,.0f} |"
        assert cells in page("training.md")
        assert f"| {row['ratio']:.1f} | {row['share_of_floor']:.2f} |" in page("training.md")


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


def test_the_package_uses_what_the_rules_take():
    default = rules.taken_model()
    assert (replace(Detector(), keypoints=BUDGET), Detector().magnification) == (
        default.detector,
        default.changes["magnification"],
    )
    for function in (match_images, reconstruct):
        assert inspect.signature(function).parameters["model"].default == default.method
    assert default.filter == f"{MatchSettings().filter}:{open_describer(default.method).settings[RATIO]}"


def test_adapt_uses_what_its_rule_takes():
    results = leave_one_out.read_results(RESULTS / "adapt.json")
    assert adapt_tables.chosen(results) == "remembering"
    assert results["aerial 0 remembering"]["settings"]["optimizer"]["rate"] == AdaptSettings().rate
    longest = results["aerial 0 long"]["settings"]["sampling"]
    assert longest["steps"] * longest["pairs"] >= learn.MOST
    assert (AdaptSettings().layers, AdaptSettings().remember) == ("all", 1.0)
    assert "teacher.rows=1.0" in leave_one_out.WAYS["remembering"]
