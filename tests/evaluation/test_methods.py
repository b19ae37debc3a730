"""What a result says of the descriptor scored, and sets joined to test on."""

import dataclasses
import json
import shutil
from pathlib import Path

import kornia
import numpy as np
import pytest
import torch
from helpers import copied_from_scene, refuses

from matchkernel.data.patch_set import PatchSet, join_patch_sets, open_patch_set, open_test_sets
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.method import SAME_NAME
from matchkernel.evaluation.methods import UNKNOWN, baseline, choose_methods, configuration_name, model_methods
from matchkernel.evaluation.patch_sets import evaluate_patch_sets, retrieval_map
from matchkernel.model.descriptors import build
from matchkernel.model.weights import save
from matchkernel.runtime.config import DescriptorConfig


def test_no_two_configurations_share_a_name():
    settings = [
        {"variant": "dual"}, {"variant": "dual", "s": 1}, {"variant": "dual", "kappa_polar": 2.0},
        {"variant": "dual", "kappa_cartesian": 2.0}, {"variant": "dual", "d": 64}, {"variant": "dual", "D": 64},
        {"variant": "dual", "patch_size": 64}, {"variant": "dual", "grid": "endpoints"},
        {"variant": "dual", "center_weight": False}, {"variant": "dual", "dropout": 0.1}, {"variant": "fc"},
        {"variant": "dual", "encoding_norm": True}, {"variant": "dual", "output_norm": "none"}, {"variant": "sum"},
        {"variant": "sum", "d": 64}, {"variant": "concat"}, {"variant": "fc", "dropout": 0.0},
    ]  # fmt: skip
    names = [configuration_name(DescriptorConfig(**entry)) for entry in settings]
    assert len(set(names)) == len(names)
    assert names[0] == "dual-s2-n32"
    assert names[2] == "dual-s2-n32-kappa_polar=2.0"
    assert names[14] == "sum-n32-d=64"


def test_models_say_how_they_were_trained(tmp_path):
    for number, card in enumerate(
        [{"trained_on": "a, b"}, {"trained_on": "a, b"}, {"trained_on": "a, b", "seed": "9"}, {}]
    ):
        save(build("sum", d=8), tmp_path / f"{number}.safetensors", card)
    files = [tmp_path / f"{number}.safetensors" for number in range(4)]
    methods = model_methods([(None, file) for file in files])
    assert [m.facts.get("train_set") for m in methods] == ["a, b", "a, b", "a, b", None]
    assert [m.facts["seed"] for m in methods] == [0, 1, 9, 0]
    assert methods[0].trained_on >= {"a", "b"}
    assert methods[3].trained_on == frozenset()
    assert methods[0].warnings == ()
    assert methods[3].warnings == (UNKNOWN,)
    named = model_methods([("c", files[3])], name="mine")[0]
    assert (named.name, named.facts["train_set"], named.facts["configuration"]) == ("mine", "c", "sum-n32-d=8")
    assert (named.trained_on, named.warnings) == ({"c"}, ())
    assert model_methods([("b,a", files[0])])[0].facts["train_set"] == "a, b"
    with refuses(ArgumentError):
        model_methods([("c", files[0])])
    with refuses(ArgumentError):
        model_methods([(None, files[2]), (None, files[2])])


def test_one_name_is_for_one_configuration(tmp_path):
    for d in (8, 16):
        save(build("sum", d=d), tmp_path / f"{d}.safetensors", {})
    with refuses(ArgumentError):
        model_methods([(None, tmp_path / "8.safetensors"), (None, tmp_path / "16.safetensors")], name="mine")


def test_weights_of_different_names_are_different_methods_also_of_one_configuration_and_seed():
    found = model_methods([(None, name) for name in ("light", "light-wide")])
    assert [method.name for method in found] == ["light", "light-wide"]
    assert found[0].facts["configuration"] == found[1].facts["configuration"]
    with refuses(ArgumentError):
        model_methods([(None, "light"), (None, "light-wide")], name="mine")


@pytest.mark.parametrize(("changes", "is_same"), [
    ({"seed": 1}, True),
    ({"preset": "mine"}, True),
    ({"data": {"train": ["there"], "mix": ["x"], "synthetic": {"points": 9, "seed": 1}}}, True),
    ({"data": {"synthetic": {"points": 8, "seed": 0}}}, False),
    ({"loop": {"precision": "bf16", "log_every": 7}, "start": {"weights": "b", "layers": "all"}}, True),
    ({"loop": {"precision": "fp32", "log_every": 1}}, False),
    ({"optimizer": {"rate": 0.1}}, False),
])  # fmt: skip
def test_results_record_the_recipe_which_runs_share(changes, is_same, tmp_path):
    training = {
        "data": {"train": ["here"], "synthetic": {"points": 9, "seed": 0}}, "optimizer": {"rate": 10.0}, "seed": 0,
        "loop": {"precision": "bf16", "log_every": 1}, "start": {"weights": "a", "layers": "all"},
    }  # fmt: skip
    recipes = []
    for number, settings in enumerate((training, {**training, **changes})):
        file = tmp_path / f"{number}.safetensors"
        save(build("sum", d=8), file, {"training": json.dumps(settings)})
        recipes.append(model_methods([(None, file)])[0].facts["recipe"])
    assert (recipes[0] == recipes[1]) == is_same


def card_of(*sets):
    return {"training_sets": json.dumps([{"name": name, "patches_sha256": sha} for name, sha in sets])}


def test_a_model_knows_its_training_patches_under_any_name(sets, tmp_path):
    file = tmp_path / "x.safetensors"
    sha = open_patch_set(sets / "a").manifest["sha256"]["patches.npy"]
    save(build("sum", d=8), file, card_of(("elsewhere", sha)))
    (method,) = model_methods([(None, file)])
    assert (method.facts["train_set"], method.warnings) == ("elsewhere", ())
    renamed = shutil.copytree(sets / "a", tmp_path / "renamed")
    assert method.was_trained_on("test", open_patch_set(renamed))
    assert method.was_trained_on("test", open_test_sets([("test", sets / "b"), ("test", renamed)])["test"])
    assert not method.was_trained_on("b", open_patch_set(sets / "b"))
    (tmp_path / "link").symlink_to(sets / "a")
    by_name = dataclasses.replace(method, trained_on=frozenset({"a"}), trained_sha256=frozenset())
    assert by_name.was_trained_on("test", open_patch_set(tmp_path / "link"))
    assert not by_name.was_trained_on("test", open_patch_set(renamed))


def test_a_set_cut_anew_from_a_training_scene_is_recognised(sets, tmp_path):
    save(build("sum", d=8), tmp_path / "x.safetensors", card_of(("fountain", "")))
    (method,) = model_methods([(None, tmp_path / "x.safetensors")])
    other = open_patch_set(sets / "b")
    again = dataclasses.replace(other, manifest={**other.manifest, "source": {"name": "fountain"}})
    assert method.was_trained_on("x", again)
    assert method.was_trained_on("x", join_patch_sets("x", [open_patch_set(sets / "a"), again]))
    assert not method.was_trained_on("x", other)


def test_a_set_that_shares_only_its_name_with_a_training_set_is_scored_with_a_warning(sets, tmp_path):
    """A scene of the same name, or a set whose patches are not known, is not such a set."""
    sha = open_patch_set(sets / "b").manifest["sha256"]["patches.npy"]
    weights = [("other", [("a", "0" * 64)]), ("same", [("c", sha)]), ("scene", [("a", "0" * 64), ("a", "")])]
    for name, entries in [*weights, ("name", [("a", "")])]:
        save(build("sum", d=8), tmp_path / f"{name}.safetensors", {**card_of(*entries), "seed": str(len(name))})
    methods = {p.stem: model_methods([(None, p)])[0] for p in tmp_path.glob("*.safetensors")}
    tests = {name: open_patch_set(sets / name) for name in "ab"}
    skipped = {(m, t) for m in methods for t in tests if methods[m].was_trained_on(t, tests[t])}
    assert skipped == {("same", "b"), ("scene", "a"), ("name", "a")}
    found = evaluate_patch_sets([methods["other"]], tests)
    assert [result["warnings"][-1:] for result in found] == [[SAME_NAME.format("a")], []]


def test_mkd_knows_its_training_patches(tmp_path):
    build_synthetic(tmp_path / "many", SyntheticSettings(points=100, patches=3, size=32, seed=9))
    method = baseline("mkd", training_set=open_patch_set(tmp_path / "many"))
    assert method.was_trained_on("x", open_patch_set(shutil.copytree(tmp_path / "many", tmp_path / "renamed")))


def test_mkd_knows_its_training_scene(sets, tmp_path):
    build_synthetic(tmp_path / "many", SyntheticSettings(points=100, patches=3, size=32, seed=9))
    six = copied_from_scene(tmp_path / "many", tmp_path / "six", "church")
    twelve = copied_from_scene(sets / "b", tmp_path / "twelve", "church")
    method, test = baseline("mkd", training_set=open_patch_set(six)), open_patch_set(twelve)
    assert not method.was_trained_on("twelve", test)  # perhaps other points of it
    assert method.doubts("twelve", test) == [SAME_NAME.format("church")]
    assert method.facts["train_set"] == "six"


def test_weights_of_a_baseline_say_what_they_were_trained_on(sets, tmp_path):
    torch.save(kornia.feature.TFeat(pretrained=False).state_dict(), tmp_path / "w.pth")
    unknown = baseline("tfeat", weights=tmp_path / "w.pth")
    assert (unknown.warnings, unknown.trained_on) == ((UNKNOWN,), frozenset())
    (told,) = choose_methods([], "kornia:TFeat", ("a", tmp_path / "w.pth"))
    assert (told.warnings, told.facts["train_set"]) == ((), "a")
    assert told.was_trained_on("x", open_patch_set(sets / "a"))
    opened = open_patch_set(sets / "b")
    (found,) = evaluate_patch_sets([unknown], {"b": opened})
    assert found["warnings"][-1] == UNKNOWN
    with refuses(ArgumentError):
        evaluate_patch_sets([told], {"a": open_patch_set(sets / "a")})


def test_distances_go_by_method_not_by_name(sets):
    methods = [dataclasses.replace(baseline(name), name="same") for name in ("orb", "sift")]
    found = evaluate_patch_sets(methods, {"a": open_patch_set(sets / "a")})
    assert [result["distance"] for result in found] == ["hamming", "l2"]


def test_a_set_is_joined_once(sets, tmp_path):
    copy = shutil.copytree(sets / "a", tmp_path / "copy")
    for other in (sets / "a", copy):
        with refuses(ArgumentError):
            open_test_sets([("x", sets / "a"), ("x", sets / "b"), ("x", other)])


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for seed, name in enumerate(("a", "b")):
        build_synthetic(folder / name, SyntheticSettings(points=10 + seed, patches=2, size=16, seed=seed))
    return folder


def test_joined_sets_keep_labels_and_pairs_apart(sets):
    parts = []
    for name in ("a", "b"):
        opened = open_patch_set(sets / name)
        pairs = np.array([[0, 1, 1], [0, 2, 0], [4, 5, 1]])
        parts.append(dataclasses.replace(opened, labels=opened.labels * 7 + 3, pairs={"m50_2_1_0": pairs}))
    joined = join_patch_sets("both", parts)
    assert len(joined) == 42
    assert len(np.unique(joined.labels)) == 21
    assert list(joined.pairs) == ["m50_6_6_0"]
    for a, b, same in joined.pairs["m50_6_6_0"]:
        assert (joined.labels[a] == joined.labels[b]) == same
    assert np.array_equal(joined.patches[20:], parts[1].patches)
    rows = np.random.default_rng(0).normal(size=(42, 4))
    assert retrieval_map(rows[:20], joined.labels[:20]) == retrieval_map(rows[:20], parts[0].labels)
    with refuses(ArgumentError):
        join_patch_sets("both", [parts[0], dataclasses.replace(parts[1], pairs={})])
    other = PatchSet(Path("c"), np.zeros((2, 8, 8), np.uint8), np.zeros(2, np.int64), {}, {}, {})
    with refuses(ArgumentError):
        join_patch_sets("both", [parts[0], other])


def test_sets_share_a_name_only_where_it_was_given_and_are_intact(sets, tmp_path):
    assert list(open_test_sets([(None, sets / "a"), ("x", sets / "b")])) == ["a", "x"]
    changed = Path(shutil.copytree(sets / "a", tmp_path / "changed"))
    stack = np.load(changed / "patches.npy")
    stack[-1, -1, -1] ^= 1
    np.save(changed / "patches.npy", stack)
    with refuses(FileError):
        open_test_sets([("a", changed)])
    joined = open_test_sets([("x", sets / "a"), ("x", sets / "b")])
    assert len(joined["x"]) == 42
    for clash in ([(None, sets / "a"), (None, sets / "a")], [("a", sets / "b"), (None, sets / "a")]):
        with refuses(ArgumentError):
            open_test_sets(clash)
    method = dataclasses.replace(baseline("sift"), trained_on=frozenset({"b"}))
    assert method.was_trained_on("x", joined["x"])
    assert not method.was_trained_on("a", open_patch_set(sets / "a"))
