"""The jobs of the experiments: all can be trained, results belong to them, names say what they are; running them."""

import json
import math
import os
import queue
import signal
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import data
import jobs
import numpy as np
import own_jobs
import pytest
import run
from job import Job, settings
from jobs import EXPERIMENTS

from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import MatchKernelError
from matchkernel.model.descriptors import build
from matchkernel.model.weights import save
from matchkernel.training.augment import Augmentation
from matchkernel.training.config import TrainingConfig

SETS = Path("sets")
KEEP = Path("weights")


def job_of(experiment, name):
    (found,) = (job for job in EXPERIMENTS[experiment] if job.name == name)
    return found


def settings_of(experiment, name):
    return run.configuration(job_of(experiment, name), SETS, KEEP)


@pytest.fixture
def made(tmp_path, rendered):
    """A folder as DATA, with one scene."""
    (tmp_path / "data" / "scenes").mkdir(parents=True)
    (tmp_path / "data" / "scenes" / "made").symlink_to(rendered)
    return tmp_path / "data"


UNFINISHED = (
    "full",
    "full_64",
    "full_transfer",
    "confirmed",
    "untried",
    "turned",
    "full_turned",
    "large",
    "full_large",
)  # parts may be missing


def test_every_job_can_be_trained_and_has_results():
    """Each in a configuration of its own, and the stored results are of the jobs as they are, with all their scores."""
    for experiment, wanted in EXPERIMENTS.items():
        path = data.RESULTS / f"{experiment}.json"
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        names = {job.name for job in wanted}
        assert names == set(results) or (experiment in UNFINISHED and names > set(results)), experiment
        different = set()
        for job in wanted:
            config, result = run.configuration(job, SETS, KEEP), results.get(job.name)
            assert config.seed == int(job.name.split("-seed")[1] if "-seed" in job.name else 0), job.name
            assert all(Path(folder).parent == SETS / job.train_cut for folder in config.data.train), job.name
            assert set(job.scores) <= set(run.MORE_SCORES), job.name
            different.add(repr(config))
            if result is None:
                continue
            settings = {**result["settings"], "data": {"train": list(config.data.train)}}
            if job.teachers:
                assert settings["teacher"]["weights"] == list(job.teachers), job.name
                settings["teacher"] = {**settings["teacher"], "weights": list(config.teacher.weights)}
            assert TrainingConfig.from_dict(settings) == config, job.name
            assert result["train"] == job.train, job.name
            cuts = result.get("train_cut", ""), result.get("score_cut", "")
            assert cuts == (job.train_cut, job.score_cut), job.name
            assert set(run.wanted_scores(job)) <= set(result["scores"]), job.name
        assert len(different) == len(wanted), experiment
    assert run.configuration(job_of("ship", "fc"), SETS, KEEP, steps=3).sampling.steps == 3


def test_kappas_are_those_of_the_names():
    found = set()
    for job in EXPERIMENTS["ablation"]:
        if job.name.startswith(("kappa-", "base-")):
            model = run.configuration(job, SETS, KEEP).model
            assert model.kappa_cartesian == model.kappa_polar
            found.add((model.s, model.kappa_polar))
            assert job.name.startswith(("base-", f"kappa-s{model.s}-{model.kappa_polar:g}-"))
    assert found == {(s, kappa) for s in (1, 2, 3) for kappa in (1, 2, 4, 8, 16)}


def test_ablations_change_one_thing_from_base():
    base = settings_of("ablation", "base-seed0").to_dict()
    for job in EXPERIMENTS["ablation"]:
        config = run.configuration(job, SETS, KEEP).to_dict()
        assert config["sampling"]["steps"] == 5000
        other = [table for table in config if table not in ("seed", "data") and config[table] != base[table]]
        assert len(other) <= 1, job.name


def test_amounts_of_augmentation_are_those_of_the_names():
    preset = TrainingConfig.from_dict({"data": {"train": ["any"]}}).augmentation
    for word, factor in {"none": 0, "half": 0.5, "double": 2}.items():
        found = settings_of("ablation", f"geometry-{word}-seed0").augmentation
        amounts = {name: factor * getattr(preset, name) for name in ("rotation_degrees", "scale_octaves", "shift")}
        assert found == replace(preset, **amounts)
    light = {"gamma": 0.4, "contrast": 0.3, "light_gradient": 0.2, "blur": 0.7, "noise": 4.0}
    for word, factor in {"half": 0.5, "whole": 1, "double": 2}.items():
        found = settings_of("ablation", f"photometric-{word}-seed0").augmentation
        assert found == replace(preset, **{name: factor * amount for name, amount in light.items()})
    assert isinstance(preset, Augmentation)


def test_best_recipes_share_what_won():
    for job in EXPERIMENTS["recipe"]:
        if job.name.startswith(own_jobs.BEST):
            config = run.configuration(job, SETS, KEEP)
            assert (config.loss.hybrid, config.loss.same_side) == (2.0, True)
            assert config.optimizer.rate == (40 if job.name.endswith("-rate-40") else 20)
            assert config.model.s == (2 if config.model.variant == "dual" and not job.name.endswith("-s1") else 1)
            assert config.sampling.pairs * config.sampling.steps == 2048 * 5000
        assert ("sizes" in job.scores) == (job.name == own_jobs.BEST or "mixed-sizes" in job.name)


def test_between_the_papers_recipe_and_ours_one_thing_changes_at_a_time():
    names = ("dual-paper", "dual-paper-in-4096", "dual-hynet-in-4096", "dual-x6")
    paper, batches, loss, ours = (settings_of("ship", name) for name in names)
    assert replace(batches, sampling=paper.sampling, loop=paper.loop) == paper != batches
    assert replace(loss, loss=paper.loss) == batches != loss
    assert (ours.optimizer.rate, ours.model.encoding_norm) == (40.0, True)
    assert replace(ours, optimizer=loss.optimizer, model=loss.model) == loss


def test_light_model_is_the_best_of_the_candidates_on_validation():
    results = json.loads((data.RESULTS / "recipe.json").read_text(encoding="utf-8"))
    candidates = ("cartesian", "polar", "combined")
    best = max(candidates, key=lambda v: results[f"{own_jobs.BEST}-{v}"]["scores"]["validation"]["matching"])
    assert own_jobs.PACKAGE["light"].startswith(f"light-{best}-")


def test_figure_3_is_trained_at_the_papers_length():
    """Every variant with s = 1 and s = 2, the simple ones with BatchNorm and without; seed by seed."""
    wanted = EXPERIMENTS["full"]
    seeds = [run.configuration(job, SETS, KEEP).seed for job in wanted]
    assert seeds == sorted(seeds)
    found = set()
    for job in wanted[: len(wanted) // 3]:
        config = run.configuration(job, SETS, KEEP)
        preset = TrainingConfig.from_dict({"data": {"train": list(config.data.train)}})
        assert replace(config, model=preset.model, loop=preset.loop) == preset
        assert (config.sampling.steps, config.sampling.pairs, config.model.patch_size) == (39060, 512, 32)
        found.add((config.model.variant, config.model.s, config.model.output_norm))
    encoded = {(v, s, "batch") for v in ("cartesian", "polar", "combined", "dual") for s in (1, 2)}
    simple = {(v, None, norm) for v in ("sum", "concat") for norm in (None, "batch")}
    assert found == {*encoded, *simple, ("fc", None, "batch"), ("cartesian", 0, "batch"), ("cartesian", 0, "none")}


@pytest.mark.parametrize("experiment", ["untried", "turned", "dual_grid"])
def test_new_settings_are_all_different_and_at_the_length_of_what_they_are_compared_with(experiment):
    compared = settings_of("descriptors", "dual-s2-n32-seed0").sampling
    assert all(run.configuration(job, SETS, KEEP).sampling == compared for job in EXPERIMENTS[experiment])


@pytest.mark.parametrize("name", jobs.PROJECTED_SUMS)
def test_projected_sum_is_m_times_the_sum(name):
    model = build(**settings(jobs.PROJECTED_SUMS[name])["model"]).eval()
    F = model.aggregations[0].position_matrix(8)
    assert F.shape == (64, 1)
    assert bool((F[0] == F).all())


def test_cuts_are_found_and_told(tmp_path):
    job = job_of("ablation", "magnification-8-seed0")
    assert (job.train_cut, job.score_cut) == ("x8", "x8")
    tracks = job_of("ablation", "positives-tracks-seed0")
    assert (tracks.train, tracks.train_cut, tracks.score_cut) == ("B", "tracks", "")
    weights = tmp_path / "any.safetensors"
    config = run.configuration(tracks, SETS, KEEP).to_dict()
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


def test_sets_by_tracks_only(tmp_path, made):
    counts = {}
    for geometric in (True, False):
        data.build(("scene", "made", made, tmp_path / str(geometric), 6.0, geometric, 0.0))
        counts[geometric] = len(np.asarray(open_patch_set(tmp_path / str(geometric)).labels))
    assert 0 < counts[False] < counts[True]


def test_sizes_of_regions(tmp_path, monkeypatch):
    monkeypatch.setitem(data.GROUPS, "A", ("made",))
    (tmp_path / "made").mkdir()
    shapes = np.array([[5.0, 0, 0, 5], [0, 20, -20, 0], [40, 0, 0, 40]])  # 10, 40 and 80 px across
    np.save(tmp_path / "made" / "frame.npy", np.column_stack([np.zeros((3, 2)), shapes]))
    data.measure_regions(tmp_path, tmp_path / "regions.json")
    found = json.loads((tmp_path / "regions.json").read_text())
    assert (found["regions"], found["median side"]) == (3, pytest.approx(40))
    assert found["share below"] == pytest.approx({"32": 1 / 3, "64": 2 / 3})


@pytest.fixture
def small(tmp_path, made, monkeypatch):
    """A way to run a job of two steps, whose only score is the checksum of its weights."""
    monkeypatch.setitem(data.GROUPS, "A", ("made",))
    (tmp_path / "sets").mkdir()
    data.build(("scene", "made", made, tmp_path / "sets" / "made", 6.0, True, 0.0))

    def measure(job, sets, device, weights, done=()):
        checksum = run.read_card(weights).sha256
        return {name: checksum for name in run.wanted_scores(job) if name not in done}

    monkeypatch.setattr(run, "measure", measure)
    settings = {"model": {"variant": "sum", "patch_size": 16}, "sampling": {"steps": 2, "pairs": 8}}

    def do(before=None, scores=(), steps=None, until=math.inf):
        job = Job("small", "A", settings, scores)
        return run.do(job, before, tmp_path / "sets", "cpu", tmp_path / "keep", steps, nullcontext(), until)

    return do


def test_kept_weights_are_scored_and_not_trained_again(small, tmp_path):
    assert small(until=0.0) is None  # too late
    assert not list((tmp_path / "keep").iterdir())
    first = small()
    assert min(first["seconds"], first["loss"]) > 0
    again = small()
    assert {**again, "scoring_seconds": 0} == {**first, "scoring_seconds": 0}
    assert small(until=0.0)["scores"] == first["scores"]  # what is trained may be scored still
    (tmp_path / "keep" / "small.json").unlink()  # stopped while training: done again, and the same
    assert small()["scores"] == first["scores"]
    assert small(steps=3)["scores"] != first["scores"]  # kept weights of another length are not taken
    assert small()["scores"] == first["scores"]


def test_a_training_that_is_stopped_goes_on(small, tmp_path, monkeypatch):
    whole = small(steps=4)
    (tmp_path / "keep").rename(tmp_path / "kept")
    (tmp_path / "keep" / "small.run").mkdir(parents=True)
    (tmp_path / "keep" / "small.run" / "log.jsonl").write_text("")  # of a process that was killed
    train, seen = run.train, []

    def stopped(config, folder, **options):
        def stop(line):
            seen.append(line.step)
            os.kill(os.getpid(), signal.SIGTERM)

        return train(config, folder, report=stop if not seen else None, **options)

    monkeypatch.setattr(run, "train", stopped)
    assert small(steps=4) is None
    assert seen[0] < 4
    assert not (tmp_path / "keep" / "small.safetensors").exists()
    again = small(steps=4)
    assert again["state_sha256"] == whole["state_sha256"]
    assert again["seconds"] > 0
    assert {path.name for path in (tmp_path / "keep").iterdir()} == {"small.safetensors", "small.json"}


def test_more_scores_are_added_to_results_from_the_same_weights_only(small, tmp_path):
    first = small()
    more = small(before={**first, "scores": {"scenes": "kept", "validation": "kept"}}, scores=("test",))
    assert more["scores"] == {"scenes": "kept", "validation": "kept", "test": first["scores"]["scenes"]}
    assert more["seconds"] == first["seconds"]
    other = {**first, "weights_sha256": "another"}
    with pytest.raises(MatchKernelError, match="is not the model whose results are stored under small"):
        small(before=other, scores=("test",))
    (tmp_path / "keep" / "small.safetensors").unlink()
    with pytest.raises(MatchKernelError, match="no such file"):  # never trained anew for a score
        small(before=first, scores=("test",))


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


def test_jobs_with_all_their_scores_are_not_done_again(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "work", None)  # would fail in a worker
    words = [
        "run.py",
        *(name for name in EXPERIMENTS if name not in UNFINISHED),
        "--sets",
        str(tmp_path),
        "--keep",
        str(tmp_path),
        "--workers",
        "0",
    ]
    monkeypatch.setattr(sys, "argv", words)
    run.main()
    assert capsys.readouterr().out == ""


def test_a_failed_job_is_told_and_the_others_go_on(monkeypatch, tmp_path, capsys):
    """Workers as threads; the sets of the first job are not there."""
    threads = SimpleNamespace(Queue=queue.Queue, Semaphore=threading.Semaphore, Process=threading.Thread)
    monkeypatch.setattr(run.multiprocessing, "get_context", lambda kind: threads)
    monkeypatch.setattr(run, "line", lambda name, result: name)
    done, fails = {"scores": {}}, {"error": "no such folder"}
    monkeypatch.setattr(run, "do", lambda job, *_: done if job.name == "average" else {**fails})
    words = ["run.py", "recipe", "--only", "base", "average", "--sets", "none", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        run.main()
    assert end.value.code == "1 job failed"
    assert "base: failed\nno such folder" in capsys.readouterr().err
    assert json.loads((tmp_path / "recipe.json").read_text()) == {"average": done}
