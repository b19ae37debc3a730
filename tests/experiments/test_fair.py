"""The plan of the fair table: its order, its settings, its choice, and that every job starts and writes."""

import argparse
import dataclasses
import sys
from pathlib import Path

import pytest
import torch
from helpers import write_sequence

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
sys.path.insert(0, str(PAPER))
import choose  # noqa: E402
import run  # noqa: E402
from data import GROUPS  # noqa: E402

from matchkernel.data.from_homographies import HomographySettings, build_from_homographies  # noqa: E402
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic  # noqa: E402
from matchkernel.model.descriptors import Descriptor  # noqa: E402
from matchkernel.storage.files import write_json  # noqa: E402

JOBS = run.read_jobs()
FAIR = JOBS["fair"]


def settings_of(job):
    return run.configuration(job, Path("sets"), Path("keep"))


def test_what_decides_most_is_trained_first_with_all_its_seeds():
    names = [job.name for job in FAIR]
    assert names[:3] == ["dual-s2-kappa8-seed0", "fc-seed0", "dual-s1-kappa1-seed0"]
    first = [name for name in names if name.startswith(("fc-seed", "dual-s1-kappa1-seed", "dual-s2-kappa8-seed"))]
    assert max(map(names.index, first)) < min(names.index(name) for name in names if name.startswith("sum"))
    assert len(names) == len(set(names)) == 75


@pytest.mark.parametrize("job", FAIR, ids=lambda job: job.name)
def test_every_job_has_the_same_dropout_and_differs_as_its_name_says(job):
    config = settings_of(job)
    assert config.model.dropout == 0.1
    assert Descriptor(config.model).dropout.p == 0.1
    assert (config.preset, config.sampling.steps, config.sampling.pairs) == ("paper", 39_060, 512)
    for part in job.name.split("-"):
        if part.startswith("kappa"):
            assert set(config.model.kappas) == {float(part.removeprefix("kappa"))}
        if part in ("s1", "s2"):
            assert config.model.s == int(part[1])
    assert len(config.data.train) == sum(len(GROUPS[group]) for group in ("ABC" if "ABC" in job.name else "A"))
    assert "test" not in run.wanted_scores(job)


def test_a_model_without_weights_is_trained_again_only_if_asked(tmp_path, capsys):
    options = argparse.Namespace(experiments=["fair"], only=["fc-seed0", "fc-seed1"], scores=["test"], again=False)
    results = {"fair": {"fc-seed0": {"scores": {"scenes": {}, "validation": {}}}}}
    assert [(job.name, before) for _, job, before in run.left(options, results, tmp_path)] == [("fc-seed1", None)]
    assert "fc-seed0: lacks scores" in capsys.readouterr().out
    options.again = True
    names = [(job.name, before) for _, job, before in run.left(options, results, tmp_path)]
    assert names == [("fc-seed0", None), ("fc-seed1", None)]
    (tmp_path / "fair").mkdir()
    (tmp_path / "fair" / "fc-seed0.safetensors").touch()
    assert next(run.left(options, results, tmp_path))[2] is results["fair"]["fc-seed0"]


def results_of(values):
    """Results with these means on validation: FILE/JOB -> one value per seed."""
    results = {"full": {}, "fair": {}}
    for source, means in values.items():
        file, job = source.split("/")
        for seed, mean in enumerate(means):
            scores = {"validation": dict.fromkeys(choose.TASKS, mean)} | ({"test": {}} if file == "full" else {})
            results[file][f"{job}-seed{seed}"] = {"scores": scores}
    return results


def test_validation_decides_and_a_winner_without_test_scores_is_trained_again_with_its_rivals(
    tmp_path, monkeypatch, capsys
):
    values = {source: [0.5, 0.5, 0.5] for sources in choose.CANDIDATES.values() for source in sources}
    values["fair/dual-s2-kappa1"] = [0.4, 0.6, 0.6]
    values["fair/fc"] = [0.9, 0.9]  # a seed is missing
    results = results_of(values)
    winners = choose.chosen(results)
    assert "fc" not in winners
    assert winners["dual-s2"] == "fair/dual-s2-kappa1"
    assert winners["dual-s1"] == "full/dual-s1-n32"  # a tie
    for name, content in results.items():
        write_json(tmp_path / f"{name}.json", content)
    monkeypatch.setattr(sys, "argv", ["choose.py", "--names", "--results", str(tmp_path)])
    choose.main()
    names = capsys.readouterr().out.split()
    assert names == [f"dual-s2-kappa{kappa}-seed{seed}" for kappa in (1, 8) for seed in range(3)]
    assert set(names) <= {job.name for job in FAIR}


@pytest.fixture(scope="module")
def tiny_sets(tmp_path_factory):
    """The sets that training and validation need, rendered."""
    folder = tmp_path_factory.mktemp("sets")
    for seed, name in enumerate(name for group in GROUPS.values() for name in group):
        build_synthetic(folder / name, SyntheticSettings(points=6, patches=2, size=32, seed=seed))
    for seed, name in enumerate(("i_light", "v_turn")):
        write_sequence(folder / "sequences" / name, seed=seed)
    settings = HomographySettings(most=10, verification=50)
    build_from_homographies(folder / "sequences", folder / "homography_validation", settings)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [job for name in ("fair", "fair_presets") for job in JOBS[name] if "seed0" in job.name],
    ids=lambda job: job.name,
)
def test_every_job_starts_and_is_scored(job, tiny_sets, tmp_path):
    """Three updates of 16 pairs on a CPU."""
    sampling = {**job.settings.get("sampling", {}), "pairs": 16, "epoch_pairs": 0}
    small = dataclasses.replace(job, settings={**job.settings, "sampling": sampling})
    found = run.do(small, None, tiny_sets, "cpu", tmp_path / "keep" / "fair", 3, 1e12)
    assert found["scores"].keys() == {"scenes", "validation"}
    assert torch.isfinite(torch.tensor(found["loss"]))
    assert 0 < found["scores"]["validation"]["matching"] <= 1
    again = run.do(small, found, tiny_sets, "cpu", tmp_path / "keep" / "fair", 3, 1e12)
    assert again["scores"] == found["scores"]
