"""The jobs of the paper's experiments: all can be trained, names say what they are, and cuts are found and told."""

import json
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

import data
import jobs
import run
from jobs import EXPERIMENTS, Job
from made_scene import render_scene

from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import MatchKernelError
from matchkernel.model.descriptors import build
from matchkernel.model.weights import save
from matchkernel.training.augment import Augmentation
from matchkernel.training.config import TrainingConfig

EVERY = [pytest.param(job, id=f"{name}-{job.name}") for name, wanted in EXPERIMENTS.items() for job in wanted]
KNOWN = {"test", "strips", "groups", "sizes", "tolerance", "maps"}
SETS = Path("sets")


def job_of(experiment, name):
    (found,) = (job for job in EXPERIMENTS[experiment] if job.name == name)
    return found


def settings_of(experiment, name):
    return run.configuration(job_of(experiment, name), SETS)


@pytest.mark.parametrize("job", EVERY)
def test_every_job_can_be_trained(job):
    config = run.configuration(job, SETS)
    assert config.seed == int(job.name.split("-seed")[1] if "-seed" in job.name else 0)
    assert all(Path(folder).parent == SETS / job.train_cut for folder in config.data.train)
    assert set(job.scores) <= KNOWN
    assert run.configuration(job, SETS, steps=3).sampling.steps == 3


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_results_are_of_the_jobs_as_they_are(experiment):
    path = run.RESULTS / f"{experiment}.json"
    for name, result in json.loads(path.read_text(encoding="utf-8")).items():
        job = job_of(experiment, name)
        config = run.configuration(job, SETS)
        settings = {**result["settings"], "data": {"train": list(config.data.train)}}
        assert TrainingConfig.from_dict(settings) == config, name
        assert result["train"] == job.train


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_names_and_settings_are_different(experiment):
    wanted = EXPERIMENTS[experiment]
    assert len({job.name for job in wanted}) == len(wanted)
    assert len({repr(run.configuration(job, SETS)) for job in wanted}) == len(wanted)


def test_kappas_are_those_of_the_names():
    found = set()
    for job in EXPERIMENTS["ablation"]:
        if job.name.startswith(("kappa-", "base-")):
            model = run.configuration(job, SETS).model
            assert model.kappa_cartesian == model.kappa_polar
            found.add((model.s, model.kappa_polar))
            assert job.name.startswith(("base-", f"kappa-s{model.s}-{model.kappa_polar:g}-"))
    assert found == {(s, kappa) for s in (1, 2, 3) for kappa in (1, 2, 4, 8, 16)}


def test_ablations_change_one_thing_from_base():
    base = settings_of("ablation", "base-seed0").to_dict()
    for job in EXPERIMENTS["ablation"]:
        config = run.configuration(job, SETS).to_dict()
        assert config["sampling"]["steps"] == 5000
        other = [table for table in config if table not in ("seed", "data") and config[table] != base[table]]
        assert len(other) <= 1, job.name


def test_geometry_is_none_half_and_double_of_the_preset():
    preset = TrainingConfig.from_dict({"data": {"train": ["any"]}}).augmentation
    assert preset == Augmentation(**jobs.PRESET_GEOMETRY)
    for word, factor in {"none": 0, "half": 0.5, "double": 2}.items():
        found = settings_of("ablation", f"geometry-{word}-seed0").augmentation
        assert found.rotation_degrees == factor * preset.rotation_degrees
        assert found.scale_octaves == factor * preset.scale_octaves
        assert found.shift == factor * preset.shift
        assert found.flips == preset.flips


def test_light_is_half_whole_and_double():
    for word, factor in {"half": 0.5, "whole": 1, "double": 2}.items():
        found = settings_of("ablation", f"photometric-{word}-seed0").augmentation
        assert found == Augmentation(**jobs.PRESET_GEOMETRY, **{k: factor * v for k, v in jobs.LIGHT.items()})


def test_best_recipes_share_what_won():
    for job in EXPERIMENTS["recipe"]:
        if job.name.startswith(jobs.BEST):
            config = run.configuration(job, SETS)
            assert (config.loss.hybrid, config.loss.same_side) == (2.0, True)
            assert config.optimizer.rate == (40 if job.name.endswith("-rate-40") else 20)
            assert config.model.s == (2 if config.model.variant == "dual" and not job.name.endswith("-s1") else 1)
            assert config.sampling.pairs * config.sampling.steps == 2048 * 5000
        assert ("sizes" in job.scores) == (job.name == jobs.BEST or "mixed-sizes" in job.name)


def test_between_the_papers_recipe_and_ours_one_thing_changes_at_a_time():
    names = ("dual-paper", "dual-paper-in-4096", "dual-hynet-in-4096", "dual-x6")
    paper, batches, loss, ours = (settings_of("ship", name) for name in names)
    assert replace(batches, sampling=paper.sampling, loop=paper.loop) == paper != batches
    assert replace(loss, loss=paper.loss) == batches != loss
    assert (ours.optimizer.rate, ours.model.encoding_norm) == (40.0, True)
    assert replace(ours, optimizer=loss.optimizer, model=loss.model) == loss


def test_light_model_is_the_best_of_the_candidates_on_validation():
    results = json.loads((run.RESULTS / "recipe.json").read_text(encoding="utf-8"))
    candidates = ("cartesian", "polar", "combined")
    best = max(candidates, key=lambda v: results[f"{jobs.BEST}-{v}"]["scores"]["validation"]["matching"])
    assert jobs.PACKAGE["light"].startswith(f"light-{best}-")


@pytest.mark.parametrize("name", jobs.PROJECTED_SUMS)
def test_projected_sum_is_m_times_the_sum(name):
    model = build(**jobs.PROJECTED_SUMS[name]).eval()
    F = model.aggregations[0].position_matrix(8)
    assert F.shape == (64, 1)
    assert bool((F[0] == F).all())


def test_cuts_are_found_and_told(tmp_path):
    job = job_of("ablation", "magnification-8-seed0")
    assert (job.train_cut, job.score_cut) == ("x8", "x8")
    tracks = job_of("ablation", "positives-tracks-seed0")
    assert (tracks.train, tracks.train_cut, tracks.score_cut) == ("B", "tracks", "")
    weights = tmp_path / "any.safetensors"
    config = run.configuration(tracks, SETS).to_dict()
    save(build(variant="dual", d=4, D=4), weights, {"training": json.dumps(config), "training_sets": "[]"})
    facts = run.about(tracks, weights)
    assert facts["train_cut"] == "tracks"
    assert "score_cut" not in facts
    for part in ("scenes", "validation"):
        done = {"scenes", "validation"} - {part}
        with pytest.raises(MatchKernelError, match="x8"):
            run.measure(job, tmp_path, "cpu", weights, done)
        with pytest.raises(MatchKernelError) as refused:
            run.measure(replace(job, score_cut=""), tmp_path, "cpu", weights, done)
        assert "x8" not in str(refused.value)


def test_scenes_may_be_given_by_group(tmp_path, monkeypatch, capsys):
    for scene in (*data.GROUPS["B"], "fox"):
        (tmp_path / "cut" / scene).mkdir(parents=True)
    words = ["data.py", str(tmp_path), str(tmp_path / "cut"), "--scenes", "B", "fox", "--sequences", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", words)
    data.main()
    assert capsys.readouterr().out.split(" is there\n")[:-1] == [*data.GROUPS["B"], "fox"]


def test_sets_by_tracks_alone(tmp_path):
    render_scene(tmp_path / "scenes" / "made", photos=4, width=320, height=240)
    counts = {}
    for geometric in (True, False):
        target = tmp_path / str(geometric)
        data.build(("scene", "made", tmp_path, target, 6.0, geometric))
        counts[geometric] = len(np.asarray(open_patch_set(target).labels))
    assert 0 < counts[False] < counts[True]


def test_kept_weights_are_scored_and_not_trained_again(tmp_path, monkeypatch):
    render_scene(tmp_path / "scenes" / "made", photos=4, width=320, height=240)
    monkeypatch.setitem(data.GROUPS, "A", ("made",))
    (tmp_path / "sets").mkdir()
    data.build(("scene", "made", tmp_path, tmp_path / "sets" / "made", 6.0, True))
    monkeypatch.setattr(run, "measure", lambda job, sets, device, weights: {"sha256": run.read_card(weights)["sha256"]})
    settings = {"model": {"variant": "sum", "patch_size": 16}, "sampling": {"steps": 2, "pairs": 8}}
    job, keep = Job("small", "A", settings), tmp_path / "keep"

    def do(steps=None, until=math.inf):
        return run.do(job, tmp_path / "sets", "cpu", keep, steps, nullcontext(), until)

    assert do(until=0.0) is None  # too late
    assert not list(keep.iterdir())
    first = do()
    assert min(first["seconds"], first["loss"]) > 0
    again = do()
    assert {**again, "scoring_seconds": 0} == {**first, "scoring_seconds": 0}
    assert do(until=0.0)["scores"] == first["scores"]  # what is trained may be scored still
    (keep / "small.json").unlink()  # stopped while training: done again, and the same
    assert do()["scores"] == first["scores"]
    assert do(steps=3)["scores"] != first["scores"]  # kept weights of another length are not taken
    assert do()["scores"] == first["scores"]


def test_jobs_that_do_not_exist_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "ship", "--sets", "sets", "--only", "dual-x6", "dual-s2"])
    with pytest.raises(SystemExit):
        run.main()
    assert "no such jobs: dual-s2" in capsys.readouterr().err


def test_jobs_come_in_the_order_of_their_names():
    names = ["kappa-s1-1-seed0", "base-seed1", "best-2048"]
    found = run.wanted_jobs(["recipe", "ablation"], names)
    assert [job.name for _, job in found] == ["kappa-s1-1-seed0", "base-seed1", "base-seed1", "best-2048"]
    assert [job for _, job in run.wanted_jobs(["ship"], None)] == EXPERIMENTS["ship"]


def test_a_job_knows_its_cuts_by_default():
    job = Job("any", "A", {"sampling": {"steps": 1}})
    assert run.configuration(job, SETS).data.train[0] == str(SETS / "liberty")
