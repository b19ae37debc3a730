"""docs/results.md: its numbers, what it says of missing ones, its verdicts, and that it is not stale."""

import json
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

import charts
import choices
import claims
import gather
import jobs
import made_paper_results as made
import page
import pytest
import sections
import tables
from made_paper_results import EXPERIMENTS, LEVELS, PAPER, STEP
from verdicts import FAILS, HOLDS, OPEN

ROOT = Path(__file__).parents[2]


@pytest.fixture
def everything(tmp_path):
    made.write_all(tmp_path)
    return gather.read_results(tmp_path)


def read_with(folder, levels):
    made.write_all(folder, levels)
    return gather.read_results(folder)


def row_of(table, *beginnings):
    start = "| " + " | ".join(beginnings) + " |"
    return next(line for line in table.splitlines() if line.startswith(start))


def verdicts(everything, makers=claims.PAPER):
    return {claim.text: claim.verdict for claim in claims.claims_of(everything, makers)}


def test_mean_and_deviation_over_seeds(everything):
    values = [LEVELS["fc"] + STEP * seed for seed in (0, 1, 2)]
    spread = gather.score(gather.by_name(everything["descriptors"])["fc-n32"], "test", "matching")
    assert spread.mean == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert spread.std == pytest.approx(statistics.stdev(values), abs=1e-12)
    row = row_of(tables.hpatches_table(everything), "`fc`", "32")
    assert row == "| `fc` | 32 | 1,334,560 | 128 | 3 | 85.20 ± 0.20 | 55.20 ± 0.20 | 65.20 ± 0.20 |"
    assert gather.Spread((0.5,)).std is None
    assert str(gather.Spread((0.5,))) == "50.00"


def test_one_best_of_a_column_is_bold(everything):
    table = tables.hpatches_table(everything)
    assert "**63.20 ± 0.20**" in row_of(table, "`dual-s2`", "64")
    assert table.count("**") == 2 * 3
    spreads = [gather.Spread((0.2,)), gather.Spread((0.1,))]
    assert tables.markdown(["b"], [[s] for s in spreads], low=("b",)).splitlines()[2:] == ["| 20.00 |", "| **10.00** |"]


def test_kinds_are_means_of_their_sequences(tmp_path):
    (job,) = (job for job in EXPERIMENTS["descriptors"] if job.name == "fc-n32-seed0")
    result = made.result_of(job)
    for k, values in enumerate(result["scores"]["test"]["by_sequence"].values()):
        values["matching"] = 0.1 * k
    made.write(tmp_path, "descriptors", {job.name: result})
    row = row_of(tables.kinds_table(gather.read_results(tmp_path)), "`fc`", "32")
    assert row.startswith("| `fc` | 32 | 15.00 | 40.00 | 50.00 | 70.00 |")  # 0 to 3, 4, 5, 6 to 8


def test_mean_of_six_needs_all_six(tmp_path, everything):
    keys = ("fpr95", "hard")
    assert str(tables.transfer_mean(tables.transfer_runs(everything)["fc"], keys)) == "44.80 ± 0.20"
    left = {name: r for name, r in everything["transfer"].items() if name != "fc-on-B-seed1"}
    made.write(tmp_path, "transfer", left)
    found = tables.transfer_mean(tables.transfer_runs(gather.read_results(tmp_path))["fc"], keys)
    assert len(found.values) == 2
    made.write(tmp_path, "transfer", {})
    assert tables.transfer_mean(tables.transfer_runs(gather.read_results(tmp_path))["fc"], keys) is None
    assert "| A → B | 44.80" in tables.transfer_table(gather.read_results(tmp_path), "FPR@95, hard pairs")


def test_nothing_there(tmp_path):
    nothing = gather.read_results(tmp_path)
    text = page.text_of(nothing)
    for section in sections.SECTIONS:
        said = section(nothing)
        assert "ot run yet" in said or section is sections.claims, section.__name__
    for name, wanted in EXPERIMENTS.items():
        assert f"| `{name}` | 0 / {len(wanted)} | all |" in text
    assert "![" not in text
    page.write_charts(nothing, tmp_path / "images")
    assert list((tmp_path / "images").iterdir()) == []
    held = {text for text, verdict in verdicts(nothing).items() if verdict != OPEN}
    assert held == {
        "Parameter counts of Table 1",
        "The count does not depend on the patch size",
        "20.9 times less memory in aggregation",
    }


@pytest.mark.parametrize("experiment", [*EXPERIMENTS, "baselines"])
def test_any_file_may_be_missing(tmp_path, experiment):
    made.write_all(tmp_path)
    (tmp_path / f"{experiment}.json").unlink()
    assert page.text_of(gather.read_results(tmp_path)).startswith("# Results")


def test_one_job_at_a_time_without_its_extra_scores(tmp_path):
    for experiment, wanted in EXPERIMENTS.items():
        result = made.result_of(wanted[0])
        result["scores"] = {"validation": result["scores"]["validation"]}
        made.write(tmp_path, experiment, {wanted[0].name: result, "failed": {"error": "no"}})
    text = page.text_of(gather.read_results(tmp_path))
    assert "scores missing: `fc-n32`" in text
    assert "failed" not in text


def test_left_names_what_is_left(tmp_path):
    done = {job.name: made.result_of(job) for job in EXPERIMENTS["descriptors"] if "sum" not in job.name}
    done.pop("fc-n32-seed1")
    made.write(tmp_path, "descriptors", done)
    row = row_of(page.status(gather.read_results(tmp_path)), "`descriptors`")
    assert "| 29 / 39 | `sum-n32` (3), `fc-n32`, `sum-m-n32` (3), `sum-m-plain-n32` (3) |" in row


def test_every_table_says_its_length(everything):
    for section in sections.SECTIONS[:-1]:
        for part in section(everything).split("\n### "):
            if "\n|---" in part and not part.startswith(("Baselines on", "Defaults", "Pairs of photos")):
                assert re.search(r"\*[\d,]+ steps of .*from `\w+\.json`", part), part[:200]


def test_choices_say_what_changes_and_by_how_much(tmp_path):
    levels = {"base": 0.5, "photometric": 0.52, "pairs-2048": 0.47}
    found = read_with(tmp_path, levels)
    table = choices.choices_table(found["recipe"])
    assert "| `base` | – | 5,000 × 1,024 | 2 |" in table
    assert "gamma 0.4, contrast 0.3" in row_of(table, "`photometric`")
    assert "| +1.90 |" in row_of(table, "`photometric`")  # base is the mean of 0.500 and 0.502
    assert "| average 0.999 |" in row_of(table, "`average`")
    assert "| variant cartesian |" in row_of(table, "`cartesian`")
    assert "| pairs 2048 | 5,000 × 2,048 | 1 |" in row_of(table, "`pairs-2048`")
    assert "| −3.10 |" in row_of(table, "`pairs-2048`")


def test_ablations_of_any_name_are_grouped_by_seed(tmp_path):
    job = jobs.Job("kappa", "A", {"model": {"variant": "dual", "s": 1, "kappa_polar": 4.0}, "sampling": {"steps": 100}})
    made.write(tmp_path, "ablation", {f"kappa-s1-4-seed{k}": made.result_of(job) for k in range(3)})
    found = gather.read_results(tmp_path)
    row = row_of(sections.ablations(found), "`kappa-s1-4`")
    assert "s 1, kappa_cartesian 1, kappa_polar 4 | 100 × 512 | 3 | 80.00 ± 0.00 | 50.00 ± 0.00" in row
    assert f"| `ablation` | 0 / {len(EXPERIMENTS['ablation'])} |" not in page.status(found)


def test_all_claims_hold_or_fail_with_the_numbers(tmp_path, everything):
    for text, verdict in verdicts(everything).items():
        assert verdict == HOLDS, text
    turned = {name: 1 - level for name, level in LEVELS.items()}
    turned |= {"sum": 0.56, "concat": 0.99}
    after = verdicts(read_with(tmp_path, turned), (*claims.PAPER, *claims.OWN))
    for text in ("`dual` s=2 beats `fc`", "`dual` s=2 is the best on all three tasks", "`sum` is far behind"):
        assert after[text] == FAILS, text
    assert after["`concat` is no top performer in spite of 8192 numbers"] == FAILS
    assert after["`cartesian` s=1 recovers most of what `sum` loses"] == FAILS
    assert after["`dual` s=2 has a lower FPR@95 than `fc` (hard pairs)"] == FAILS


def test_sequences_that_are_won_are_counted(tmp_path, everything):
    results = dict(everything["descriptors"])
    for seed in range(3):
        results[f"fc-n32-seed{seed}"]["scores"]["test"]["by_sequence"]["oxford_bark"]["matching"] = 0.99
    made.write(tmp_path, "descriptors", results)
    claim = next(c for c in claims.claims_of(gather.read_results(tmp_path)) if c.text == "`dual` s=2 beats `fc`")
    assert claim.figures.endswith("; matching better beyond the spread in 8 of 9 sequences, worse in 1")


def test_a_difference_within_the_spread_is_none(tmp_path):
    near = verdicts(read_with(tmp_path, {**LEVELS, "dual-s2": LEVELS["fc"] + 0.9 * STEP}))
    assert near["`dual` s=2 beats `fc`"] == FAILS  # the deviation of three seeds STEP apart is STEP
    beyond = verdicts(read_with(tmp_path, {**LEVELS, "dual-s2": LEVELS["fc"] + 1.1 * STEP}))
    assert beyond["`dual` s=2 beats `fc`"] == HOLDS


def test_tolerance_claims_flip(tmp_path, everything):
    swapped = dict(everything["descriptors"])
    for seed in range(3):
        one, two = (swapped[f"{name}-s1-n32-seed{seed}"]["scores"] for name in ("cartesian", "polar"))
        one["tolerance"], two["tolerance"] = two["tolerance"], one["tolerance"]
    made.write(tmp_path, "descriptors", swapped)
    after = verdicts(gather.read_results(tmp_path))
    for text in ("`cartesian` tolerates shift", "`polar` tolerates rotation", "`polar` tolerates scale"):
        assert after[text] == FAILS


def test_one_seed_decides_nothing(tmp_path):
    made.write(
        tmp_path,
        "descriptors",
        {j.name: made.result_of(j) for j in EXPERIMENTS["descriptors"] if j.name.endswith("seed0")},
    )
    assert verdicts(gather.read_results(tmp_path))["`dual` s=2 beats `fc`"] == OPEN


def test_what_is_refuted_need_not_wait_for_the_rest(tmp_path):
    left = [job for job in EXPERIMENTS["descriptors"] if not job.name.startswith("concat")]
    worse = {**LEVELS, "dual-s1": 0.7}
    made.write(tmp_path, "descriptors", {job.name: made.result_of(job, worse) for job in left})
    after = verdicts(gather.read_results(tmp_path))
    assert after["`dual` s=2 is the best on all three tasks"] == FAILS
    assert after["`concat` is no top performer in spite of 8192 numbers"] == OPEN


def test_targets(tmp_path, everything):
    text = "`dual` s=2 is above RootSIFT, MKD and TFeat"
    assert verdicts(everything, claims.OWN)[text] == HOLDS
    made.write(tmp_path, "baselines", {name: made.baseline(0.59) for name in ("rootsift", "mkd", "tfeat")})
    assert verdicts(gather.read_results(tmp_path), claims.OWN)[text] == FAILS


def test_other_data_and_ties_are_told(tmp_path, everything):
    assert "Caution" not in page.text_of(everything)
    results = dict(everything["baselines"])
    scores = results["sift"]["scores"]["test"]
    scores |= {"data_sha256": "other", "tie_safe": {"verification": 0.6, "matching": 0.1234, "retrieval": 0.4}}
    made.write(tmp_path, "baselines", results)
    text = sections.hpatches(gather.read_results(tmp_path))
    assert "Caution" in text
    assert "`sift` 60.00 / 12.34 / 40.00" in text


def test_the_page_is_the_same_again_and_shows_every_chart(tmp_path, everything):
    text = page.text_of(everything)
    assert text == page.text_of(gather.read_results(tmp_path))
    assert all(draw(everything) is not None for draw in charts.CHARTS.values())
    assert set(charts.CHARTS) == set(re.findall(r"\(images/(results_\w+\.png)\)", text))


@pytest.mark.parametrize("experiment", ["descriptors", "recipe"])
def test_charts_are_shown_where_they_can_be_drawn(tmp_path, experiment):
    made.write_all(tmp_path)
    (tmp_path / f"{experiment}.json").unlink()
    found = gather.read_results(tmp_path)
    drawn = {name for name, draw in charts.CHARTS.items() if draw(found) is not None}
    assert drawn == set(re.findall(r"\(images/(results_\w+\.png)\)", page.text_of(found)))


@pytest.mark.slow
def test_charts_are_written_and_old_ones_removed(tmp_path, everything):
    page.write_charts(everything, tmp_path / "images")
    assert {path.name for path in (tmp_path / "images").iterdir()} == set(charts.CHARTS)
    page.write_charts({}, tmp_path / "images")
    assert list((tmp_path / "images").iterdir()) == []


def test_order_of_rows_is_that_of_the_jobs(tmp_path, everything):
    backwards = dict(reversed(everything["descriptors"].items()))
    made.write(tmp_path, "descriptors", backwards)
    assert list(gather.read_results(tmp_path)["descriptors"]) == [job.name for job in EXPERIMENTS["descriptors"]]


def test_labels_are_moved_apart_but_keep_their_order():
    moved = charts.apart({"a": 0.0, "b": 0.01, "c": 0.02, "d": 1.0}, 0.1)
    assert moved == pytest.approx({"a": -0.09, "b": 0.01, "c": 0.11, "d": 1.0})


def test_the_committed_page_is_of_the_committed_results():
    committed = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert committed == page.text_of(gather.read_results(PAPER / "results")), "stale: make results"
    drawn = {path.name for path in (ROOT / "docs" / "images").glob("results_*")}
    assert drawn == set(re.findall(r"\(images/(results_\w+\.png)\)", committed))


def test_committed_results_are_whole():
    for path in (PAPER / "results").glob("*.json"):
        assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict), path


def test_every_descriptor_has_a_colour_of_its_own():
    assert set(charts.COLOURS) == {*jobs.DESCRIPTORS, *jobs.PROJECTED_SUMS}
    assert len(set(charts.COLOURS.values())) == len(charts.COLOURS)
