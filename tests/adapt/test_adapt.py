"""From photos to adapted weights: every stage, resuming, refusals, faults."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import run as command
from helpers import needs_colmap, refuses
from made_scene import render_scene

from matchkernel.adapt import judge, learn, limits, page, stages
from matchkernel.adapt.judge import Adapted
from matchkernel.adapt.settings import RECORD, AdaptSettings
from matchkernel.adapt.stages import adapt, best_so_far
from matchkernel.data import split
from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation import uncertainty
from matchkernel.evaluation.photos.scenes import colmap_scene
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save, state_digest
from matchkernel.runtime.weights import read_card
from matchkernel.storage.images import read_gray
from matchkernel.training import state

DRAWN = ("_curves", "_sheets", "_matches")
QUICK = {"minutes": 5.0, "pairs": 8, "rate": 2.0, "remember": 0.0}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A weight file of a very small network with random weights."""
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    model = build("cartesian", s=1, d=8, D=16, patch_size=16, generator=torch.Generator().manual_seed(0)).train()
    with torch.no_grad():
        model(torch.rand(64, 1, 16, 16, generator=torch.Generator().manual_seed(1)) * 255)
    save(model, path, {"licence": "CC0"})
    return str(path)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A rendered scene of seven small photos with exact truth; only to be read."""
    folder = tmp_path_factory.mktemp("scene")
    render_scene(folder, photos=7, width=400, height=300)
    return folder


def quicken(patch):
    """The same in a hundredth of the time: few points are enough, few updates, few keypoints; nothing is drawn."""
    patch.setattr(split, "LEAST_POINTS", dict.fromkeys(split.PARTS, 5))
    patch.setattr(split, "LEAST_PHOTOS", dict.fromkeys(split.PARTS, 2))
    patch.setattr(learn, "MAX_PAIRS", 20 * 8)
    patch.setattr(learn, "TRIAL", 2)
    patch.setattr(stages, "PAIRS", 50)
    patch.setattr(stages, "ELSEWHERE", stages.SyntheticSettings(points=10, patches=2, size=16))
    for module in (judge, limits):
        patch.setattr(module, "KEYPOINTS", 150)
    patch.setattr(page, "KEYPOINTS", 300)
    patch.setattr(limits, "MIN_CORRECT", 1)
    for module in (judge, uncertainty):
        patch.setattr(module, "MIN_PAIRS", 2)
    for name in DRAWN:
        patch.setattr(page, name, lambda *_: iter(()))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    quicken(monkeypatch)


@pytest.fixture(scope="module")
def drawn(scene, base, tmp_path_factory):
    """A run that nothing disturbed, with its pictures and --keep, and the lines it printed: only to be read."""
    said = []
    drawn = {name: getattr(page, name) for name in DRAWN}
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        for name, draw in drawn.items():
            patch.setattr(page, name, draw)
        out = tmp_path_factory.mktemp("whole") / "out"
        found = run(scene, out, base, keep=True, say=said.append)
    return found, said


@pytest.fixture(scope="module")
def whole(drawn):
    """The result of that run."""
    return drawn[0]


def run(scene, out, base, **changes):
    say = changes.pop("say", lambda line: None)
    settings = AdaptSettings(base, **{**QUICK, **changes})
    return adapt(scene / "images", out, settings, from_colmap=scene / "sparse", device="cpu", say=say)


def cut(whole, out):
    """A folder in which the patches are cut already."""
    shutil.copytree(whole.folder / "sets", out / "sets", dirs_exist_ok=True)
    record = json.loads((whole.folder / RECORD).read_text())
    (out / RECORD).write_text(json.dumps({"made with": record["made with"]}))
    return out


def end_before_training(monkeypatch):
    monkeypatch.setattr(learn, "train", lambda *_, **__: SimpleNamespace(is_finished=False))


def test_everything_is_there(base, drawn):
    result, said = drawn
    assert set(result.counts) == set(split.PARTS)
    assert {f"{name}: {count}" for name, count in result.counts.items()} <= set(said)
    steps = [line for line in said if line.startswith("step ")]
    assert all(re.fullmatch(r"step \d+/20  (loss|validation mAP) [\d.]+  [0-5]:\d\d left", line) for line in steps)
    assert len(steps) > 10
    page = (result.folder / "report.html").read_text()
    assert result.verdict in (result.folder / "report.md").read_text()
    assert result.learned.steps == 20
    assert result.learned.best_map > result.learned.first_map  # so that there is something to judge
    card = read_card(result.weights)
    assert card.other["adapted_from"].startswith(base)
    assert card.other["started_from"].startswith("base ")
    assert result.gains[0].place == "test patches"
    assert card.metrics["retrieval mAP"].keys() == {"before", "after"}
    assert card.licence.startswith("CC0 (of the base;")
    # Two test photos are one pair: no poses.
    assert [gain.measure for gain in result.gains] == [judge.RETRIEVAL, judge.MATCHING, judge.HARD]
    assert [gain.place for gain in result.elsewhere] == ["rendered patches"]
    assert 0 < card.match_ratio <= 1
    assert page.count("data:image/png") == 5  # three contact sheets, matches before and after
    assert page.count("data:image/svg") == 3  # loss, and two scores of validation
    assert page.count(f"with a ratio below {card.match_ratio:g}") == 2  # both pictures by the same rule
    assert len(re.findall(r"\d+ of \d+ matches agree", page)) == 2  # as text: a small picture cannot be read
    found = json.loads((result.folder / "report.json").read_text())
    curve = found["sections"][2]["blocks"][2]
    assert dict(curve["curves"]["retrieval mAP"])[curve["scored"]] == pytest.approx(100 * result.learned.best_map)
    rows = [row for block in found["sections"][0]["blocks"] for row in block["rows"]]
    for row, gain in zip(rows, [*result.gains, *result.elsewhere], strict=True):
        assert row[:4] == [
            f"{gain.measure}, {gain.place}",
            gain.verdict,
            *(f"{100 * v:.2f}" for v in (gain.before, gain.after)),
        ]
    test, elsewhere = (block["note"] for block in found["sections"][0]["blocks"])
    assert all(f"{gain.measure}: " in test for gain in result.gains)
    assert "FPR@95" not in elsewhere
    assert "Poses are not scored: the 2 test photos make 1 pair " in test
    assert f"training ended after {result.learned.step} of 20 updates: {result.learned.why}" in said


def test_a_finished_run_is_not_trained_again(scene, base, whole, tmp_path, monkeypatch):
    out = shutil.copytree(whole.folder, tmp_path / "out")
    monkeypatch.setattr(learn, "train", lambda *_, **__: pytest.fail("trained again"))
    again = run(scene, out, base, keep=True)
    assert (again.gains, again.learned, again.verdict) == (whole.gains, whole.learned, whole.verdict)
    with refuses(ArgumentError):
        run(scene, out, base, rate=0.25)


def test_poses_of_good_weights_after_bad_ones_are_better(scene, base, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "KEYPOINTS", 400)
    names = {path.name for path in (scene / "images").iterdir()}
    photos = colmap_scene("test", scene / "images", scene / "sparse", names, shared_points=5, most_pairs=12)
    untrained = tmp_path / "blind.safetensors"
    model = load(base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # every patch the same
    save(model, untrained, {})
    gain = judge.pose_gain((str(untrained), "tiny"), photos, tmp_path / "work", "cpu", lambda done, total: None)
    assert gain.after > gain.before
    assert (gain.measure, gain.place, gain.verdict) == (judge.POSES, f"{len(photos.pairs)} test pairs", "better")


def test_weights_that_are_no_better_are_not_written(scene, base, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(Adapted, "is_better", False)
    out = shutil.copytree(whole.folder, tmp_path / "out")
    assert (out / stages.ADAPTED).exists()  # by --keep, which is not given now
    found = run(scene, out, base)
    assert found.weights is None
    assert not (out / stages.ADAPTED).exists()


def test_a_training_that_was_stopped_goes_on_and_ends_as_one_that_was_not(scene, base, whole, tmp_path):
    def stop(line):
        if line.startswith("step 5/"):
            raise KeyboardInterrupt

    out = cut(whole, tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        run(scene, out, base, say=stop)
    assert best_so_far(out) is not None
    result = run(scene, out, base)
    assert (result.learned.best_step, result.gains) == (whole.learned.best_step, whole.gains)
    one, two = (load(best_so_far(folder)) for folder in (whole.folder, out))
    assert state_digest(one) == state_digest(two)


def test_a_process_that_is_asked_to_end_in_the_trial_does_not_train(scene, base, whole, tmp_path, monkeypatch):
    out = cut(whole, tmp_path / "out")
    with monkeypatch.context() as patch:
        end_before_training(patch)
        assert run(scene, out, base) is None
    assert "plan" not in json.loads((out / RECORD).read_text())
    assert run(scene, out, base).learned.steps == 20


def test_updates_are_planned_for_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr(learn, "MAX_PAIRS", 100_000)
    assert learn.planned_updates(1_000.0, pairs=10, left=100.0) == 8_000  # four fifths of the time
    assert learn.planned_updates(1_000.0, pairs=10, left=1_000.0) == 10_000
    assert learn.planned_updates(1_000.0, pairs=10, left=-10.0) == learn.MIN_UPDATES


def test_a_training_is_worth_its_minutes_or_is_not_begun_unasked():
    assert learn.worthwhile_minutes(10_000.0, pairs=512, trial=5.0) == learn.MINUTES
    assert learn.worthwhile_minutes(60.0, pairs=512, trial=100.0) == 20  # 100 updates in four fifths of 18 minutes
    assert learn.worthwhile_minutes(60.0, pairs=512, trial=150.0) == 25  # the trial is taken from the time
    with pytest.raises(ArgumentError, match="--minutes 110"):
        learn.worthwhile_minutes(10.0, pairs=512, trial=5.0)


def test_other_minutes_train_again_on_the_same_patches(scene, base, whole, tmp_path, monkeypatch):
    out, said = shutil.copytree(whole.folder, tmp_path / "out"), []
    before = (out / stages.ADAPTED).read_bytes()
    monkeypatch.setattr(stages, "build_parts", lambda *_, **__: pytest.fail("cut again"))
    with monkeypatch.context() as patch:
        end_before_training(patch)
        assert run(scene, out, base, minutes=7.0) is None
    assert not [path for path in out.iterdir() if path.name.startswith("report.")]  # it was of the old training
    assert not (out / stages.ADAPTED).exists()  # nor the weights, which someone may use
    assert (out / "adapted-5-minutes.safetensors").read_bytes() == before
    again = run(scene, out, base, minutes=6.0, say=said.append)
    assert "training for at most 6 minutes" in said
    assert again.learned.steps == 20
    assert json.loads((out / RECORD).read_text())["plan"]["asked"] == 6.0


def test_training_ends_when_its_time_is_over_or_nothing_gets_better(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(learn.time, "perf_counter", lambda: now[0])
    watch = learn._Watch(60.0, 100, lambda line: None)
    assert not watch.must_stop()
    now[0] = 61.0
    assert watch.must_stop()
    patient = learn._Watch(600.0, 100, lambda line: None)
    for step, score in enumerate((0.9, 0.5, 0.6, 0.6, 0.55, 0.6)):  # the one before training does not count
        patient.judge(step, score)
        assert not patient.must_stop()
    patient.judge(6, 0.3)
    assert patient.must_stop()


@needs_colmap
def test_from_photos_alone(scene, tmp_path):
    settings = AdaptSettings("tiny", minutes=5.0, pairs=8)
    result = adapt(scene / "images", tmp_path / "out", settings, device="cpu")
    assert (tmp_path / "out" / "reconstruction" / "sparse").is_dir()
    assert sum(count.photos for count in result.counts.values()) == 7
    assert result.verdict in (tmp_path / "out" / "report.md").read_text()


def test_a_broken_photo_among_good_ones_is_left_out(scene, base, tmp_path, monkeypatch):
    end_before_training(monkeypatch)
    copied = shutil.copytree(scene, tmp_path / "scene")
    photo = copied / "images" / "002.png"
    photo.write_bytes(photo.read_bytes()[:500])
    run(copied, tmp_path / "out", base)
    parts = [open_patch_set(tmp_path / "out" / "sets" / part) for part in split.PARTS]
    assert [part.manifest["selection"]["photos left out"] for part in parts] == [{"cannot be read": 1}] * len(parts)
    assert sum(len(np.unique(part.columns["photo"])) for part in parts) == 6


def test_photos_of_the_model_that_are_missing_are_counted_first(scene, base, tmp_path):
    images = shutil.copytree(scene / "images", tmp_path / "images")
    (images / "002.png").unlink()
    few = ("--pairs", 8, "--minutes", 5, "--rate", 2)
    code, lines = words(images, "-o", tmp_path / "out", "--from-colmap", scene / "sparse", "--model", base, *few)
    assert code == 0
    assert "002.png" in lines[0]


def test_a_scene_of_which_the_weights_have_learned_is_said_before_anything_is_cut(scene, base, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "build_parts", lambda *_, **__: pytest.fail("cut before"))
    taught, said = tmp_path / "taught.safetensors", []
    save(load(base), taught, {"trained_on": f"{scene.name}, other"})
    for out, weights in (("one", str(taught)), ("two", base)):
        with pytest.raises(pytest.fail.Exception):
            run(scene, tmp_path / out, weights, say=said.append)
    assert [line for line in said if "was trained on" in line] == [said[0]]
    assert f"was trained on {scene.name}" in said[0]


def test_adapted_weights_have_learned_of_their_scene(scene, base, whole, tmp_path, monkeypatch):
    """Whatever the folder of its photos is called; the patches were cut of the folder above."""
    photos, said = shutil.copytree(scene / "images", tmp_path / "church"), []
    out, colmap = shutil.copytree(whole.folder, tmp_path / "out"), {"from_colmap": scene / "sparse", "device": "cpu"}
    found = adapt(photos, out, AdaptSettings(base, **QUICK, keep=True), **colmap)
    assert {"training", scene.name, "church"} <= read_card(found.weights).set_names
    monkeypatch.setattr(stages, "build_parts", lambda *_, **__: pytest.fail("cut before"))
    with pytest.raises(pytest.fail.Exception):
        adapt(photos, tmp_path / "again", AdaptSettings(str(found.weights), **QUICK), **colmap, say=said.append)
    assert "was trained on church" in said[0]


def test_keep_says_when_there_is_nothing_to_keep(scene, base, tmp_path, monkeypatch):
    """No rate makes sure of it: the statistics of BatchNorm move even where the weights do not."""
    monkeypatch.setattr(state, "is_better", lambda result, best, measure: not best)
    said = []
    found = run(scene, tmp_path / "out", base, rate=1e-9, keep=True, say=said.append)
    assert found.weights is None
    assert any("--keep" in line for line in said)


def words(*arguments):
    result = command("adapt", *arguments)
    return result.exit_code, result.stderr.strip().splitlines()


def test_too_few_points_are_refused_after_saying_how_many_there_are(scene, base, tmp_path, monkeypatch):
    monkeypatch.setattr(split, "LEAST_POINTS", dict.fromkeys(split.PARTS, 100))
    code, lines = words(scene / "images", "-o", tmp_path / "few", "--from-colmap", scene / "sparse", "--model", base)
    assert code == 2
    assert [line.split(":")[0] for line in lines[:-1]][-3:] == list(split.PARTS)


def test_after_a_refusal_photos_may_be_added_and_settings_changed(scene, base, tmp_path, monkeypatch):
    end_before_training(monkeypatch)
    out, photos = tmp_path / "out", tmp_path / "photos"
    photos.mkdir()
    settings = AdaptSettings(base, **QUICK)
    options = {"from_colmap": scene / "sparse", "device": "cpu"}
    with refuses(FileError):
        adapt(photos, out, settings, **options)
    assert not out.exists()
    shutil.copytree(scene / "images", photos, dirs_exist_ok=True)
    adapt(photos, out, settings, **options)
    (photos / "new.png").write_bytes((photos / "000.png").read_bytes())
    with refuses(ArgumentError):
        adapt(photos, out, settings, **options)


def test_a_folder_made_with_something_else_is_refused(scene, base, whole, tmp_path):
    out = shutil.copytree(whole.folder, tmp_path / "out")
    with refuses(ArgumentError):  # a model was given before
        adapt(scene / "images", out, AdaptSettings(base, **QUICK), device="cpu")
    begun = json.loads((out / RECORD).read_text())
    for change in ({"colmap": []}, {"colmap": ["0" * 64]}, {"model_sha256": "0" * 64}):
        (out / RECORD).write_text(json.dumps({**begun, "made with": {**begun["made with"], **change}}))
        with refuses(ArgumentError):
            run(scene, out, base)
    (out / RECORD).write_text("[[[")
    with refuses(FileError):
        run(scene, out, base)
    (out / RECORD).rename(out / "settings.json")  # as version 0.2 called it
    with refuses(FileError):
        run(scene, out, base)


def test_a_small_set_to_mix_in_makes_batches_smaller(scene, base, whole):
    sets = {name: open_patch_set(whole.folder / "sets" / name) for name in split.PARTS}
    small = whole.folder / "elsewhere"  # 10 points
    assert learn.training_config(sets, AdaptSettings(base, pairs=40), 20).sampling.pairs > 20
    assert learn.training_config(sets, AdaptSettings(base, pairs=40, mix=(str(small),)), 20).sampling.pairs == 20


def test_moved_regions_are_recorded_where_they_were_cut(scene, whole):
    part = open_patch_set(whole.folder / "sets" / "test")
    names, frames = part.manifest["source"]["photos"], part.columns["frame"]
    for row in range(0, len(part), 7):
        image = read_gray(scene / "images" / names[part.columns["photo"][row]])
        one = Frames(frames[row : row + 1, :2].astype(float), frames[row : row + 1, 2:].reshape(1, 2, 2).astype(float))
        cut = extract_patches(image, one, part.patches.shape[-1])
        assert np.abs(cut[0].astype(int) - part.patches[row]).mean() < 1
