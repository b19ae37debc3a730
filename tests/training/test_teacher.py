"""Learning from trained models: what the copied rows are, and that a run copies them."""

import numpy as np
import pytest
import torch
from helpers import refuses
from made_runs import config

from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.evaluation.methods import model_methods
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save, state_digest
from matchkernel.runtime.weights import read_card
from matchkernel.training.loop import train
from matchkernel.training.teacher import Teacher


def model(seed, **settings):
    return build("cartesian", s=1, d=8, patch_size=16, generator=torch.Generator().manual_seed(seed), **settings).eval()


def patches(count=60):
    return torch.rand(count, 1, 16, 16, generator=torch.Generator().manual_seed(1)) * 255


@pytest.fixture
def pair():
    models = [model(0, D=12), model(1, D=12)]
    return models, Teacher([one.fold() for one in models], ["a", "b"])


def test_the_product_of_joined_rows_is_the_mean_similarity(pair):
    models, teacher = pair
    with torch.no_grad():
        expected = sum(one(patches()) @ one(patches()).T for one in models) / 2
    joined = teacher(patches())
    assert joined.shape == (60, 24)
    assert (joined @ joined.T - expected).abs().max() < 1e-5


def test_the_basis_is_orthonormal_and_keeps_the_most_of_the_rows(pair):
    _, teacher = pair
    joined = teacher(patches())
    kept = []
    for D in (24, 12, 6):
        teacher.find_basis(patches(), D)
        assert (teacher.basis.T @ teacher.basis - torch.eye(D)).abs().max() < 1e-5
        kept.append(float((joined @ teacher.basis).square().sum(1).mean()))
    assert kept[0] == pytest.approx(1, abs=1e-5)  # all of it
    random = torch.linalg.qr(torch.randn(24, 12, generator=torch.Generator().manual_seed(0)))[0]
    assert kept[0] > kept[1] > kept[2] > 0
    assert kept[1] > float((joined @ random).square().sum(1).mean())


def test_a_student_equal_to_its_teacher_has_nothing_to_learn_and_another_has():
    one, two = model(0), model(1)
    teacher = Teacher([one.fold()], ["a"])
    teacher.find_basis(patches(2000), 128)
    joined = teacher(patches()).chunk(2)
    with torch.no_grad():
        same, other = one(patches()) @ teacher.basis, two(patches())  # the copied rows are the teacher's, rotated
    assert float(teacher.loss(same.chunk(2), joined, 1.0)) < 1e-4
    once, twice = (float(teacher.loss(other.chunk(2), joined, weight)) for weight in (1.0, 2.0))
    assert once > 0.1
    assert twice == pytest.approx(2 * once)


def test_the_signs_of_the_basis_are_the_same_on_every_machine(pair, monkeypatch):
    _, teacher = pair
    teacher.find_basis(patches(), 12)
    basis, found = teacher.basis, torch.linalg.eigh
    signs = torch.tensor([1.0, -1.0]).double().repeat(12)

    def other_signs(matrix):
        values, vectors = found(matrix)
        return values, vectors * signs

    monkeypatch.setattr(torch.linalg, "eigh", other_signs)
    teacher.find_basis(patches(), 12)
    assert torch.equal(teacher.basis, basis)


@pytest.fixture
def taught(small, small_sets, tmp_path):
    """Nested tables of a run that copies rows only, from a model of random weights with statistics of the patches.

    With others its rows would have a mean, which the student's BatchNorm takes away.
    """
    teacher = model(5, D=16).train()
    for module in teacher.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.momentum = 1.0
    teacher.embed(teacher.feature_maps(training_patches(small_sets)))
    save(teacher.eval(), tmp_path / "teacher.safetensors")
    teacher = {"weights": [str(tmp_path / "teacher.safetensors")], "rows": 1.0, "pairs": 0.0}
    narrow = {"widths": [4, 8], "halvings": [1, 2], "d": 16, "D": 16}
    return {**small, "model": {**small["model"], **narrow}, "teacher": teacher}


def training_patches(sets):
    patches = torch.from_numpy(np.array(open_patch_set(sets / "train").patches))[:, None].float()
    return resize_patches(patches, 8)


@pytest.mark.slow
def test_a_run_copies_its_teacher(taught, small_sets, tmp_path):
    taught["sampling"] = {**taught["sampling"], "steps": 200}
    taught["optimizer"] = {"rate": 1.0}
    train(config(taught), tmp_path / "run", device="cpu")
    teacher = Teacher([load(taught["teacher"]["weights"][0]).fold()], ["a"])
    seen = training_patches(small_sets)
    teacher.find_basis(seen, 16)
    wanted = torch.nn.functional.normalize(teacher(seen) @ teacher.basis)
    trained = load(tmp_path / "run" / "final.safetensors")
    untrained = build(**trained.config.to_dict(), generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        before, after = ((one(seen) * wanted).sum(1).mean() for one in (untrained, trained))
    assert after > before + 0.1  # nine pairs of seeds: by 0.15 to 0.24
    card = read_card(tmp_path / "run" / "final.safetensors")
    file = taught["teacher"]["weights"][0]
    assert card.other["teacher_weights"] == f"teacher {state_digest(load(file))[:16]}"
    assert card.config.widths == (4, 8)


def test_a_student_has_seen_what_its_teacher_was_trained_on(taught, tmp_path):
    file = taught["teacher"]["weights"][0]
    save(load(file), file, {"training_sets": '[{"name": "notredame", "patches_sha256": "12"}]'})
    train(config(taught), tmp_path / "run", device="cpu")
    card = read_card(tmp_path / "run" / "final.safetensors")
    assert card.trained_on == "train"
    assert [name for name, _ in card.training_sets] == ["train", "notredame"]


@pytest.mark.parametrize(("card", "seen", "unknown"), [
    ({"trained_on": "syn"}, {"train", "syn"}, None),
    ({}, {"train"}, "base "),
    ({"trained_on": "syn", "unknown_from": "elder 12"}, {"train", "syn"}, "base "),
])  # fmt: skip
@pytest.mark.parametrize("how", ["teacher", "start"])
def test_what_was_learned_from_is_passed_on_and_so_is_that_it_is_unknown(how, card, seen, unknown, small, tmp_path):
    base = tmp_path / "base.safetensors"
    save(build(**small["model"]), base, card)
    train(config(small, **{how: {"weights": [str(base)] if how == "teacher" else str(base)}}), tmp_path, device="cpu")
    (method,) = model_methods([(None, tmp_path / "final.safetensors")])
    assert method.trained_on == seen
    assert [unknown in warning for warning in method.warnings] == [True] * bool(unknown)


def test_another_teacher_is_refused_on_resuming_but_the_same_elsewhere_is_not(taught, tmp_path):
    train(config(taught), tmp_path / "run", device="cpu")
    (tmp_path / "moved.safetensors").write_bytes((tmp_path / "teacher.safetensors").read_bytes())
    moved = config(taught, teacher={"weights": [str(tmp_path / "moved.safetensors")]})
    assert train(moved, tmp_path / "run", device="cpu", resume=True).is_finished
    save(model(6, D=16), tmp_path / "moved.safetensors")
    for changed in (moved, config(taught, teacher={"rows": 2.0})):
        with refuses(ArgumentError):
            train(changed, tmp_path / "run", device="cpu", resume=True)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"model": {"D": 32}}, ArgumentError), ({"teacher": {"weights": ["nowhere.safetensors"]}}, WeightsError)],
)
def test_a_teacher_that_cannot_teach_is_refused(changes, error, taught, tmp_path):
    with refuses(error):
        train(config(taught, **changes), tmp_path / "run", device="cpu")
