"""matchkernel evaluate phototourism, as a user meets it: real runs on tiny patch sets."""

import json
import shutil

import kornia
import numpy as np
import torch
from commands import SETS, good, run

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.evaluation.results import read_result


def test_a_baseline_on_patch_sets(here, tmp_path):
    result = good("evaluate", "phototourism", "one", "zwei=two", "--baseline", "sift", "-o", tmp_path / "new")
    assert "2 results ->" in result.stderr
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["phototourism-one-sift.json", "phototourism-zwei-sift.json"]
    found = read_result(tmp_path / "new" / names[1])
    assert (found["descriptor"], found["test_set"], found["dimension"]) == ("sift", "zwei", 128)
    assert (found["parameters"], found["hand_crafted"]) == (0, True)
    assert "SIFT_create()" in found["settings"]["call"]
    part = found["pairs"]["m50_100_700_0"]
    assert f"{100 * part['fpr95']:.2f}" in result.stdout
    assert f"{100 * found['retrieval_map']:.2f}" in result.stdout
    roc = part["roc"]
    assert 3 < len(roc["fpr"]) == len(roc["tpr"]) <= 200
    assert (roc["fpr"][0], roc["tpr"][0], roc["fpr"][-1], roc["tpr"][-1]) == (0, 0, 1, 1)
    assert min(x for x, y in zip(roc["fpr"], roc["tpr"], strict=True) if y >= 0.95) == part["fpr95"]
    again = good("evaluate", "phototourism", "zwei=two", "--baseline", "sift", "-o", tmp_path / "b.json", "--json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "new" / names[1]).read_bytes()
    assert json.loads(again.stdout) == [found]


def test_weights_over_seeds_are_tested_where_they_were_not_trained(here, tmp_path):
    files = ["--model", "seed0.safetensors", "--model", "seed1.safetensors"]
    files += ["--model", "three=untold0.safetensors", "--model", "three=untold1.safetensors"]
    result = good("evaluate", "phototourism", *SETS, *files, "-o", tmp_path, "--json", "--device", "cpu")
    found = json.loads(result.stdout)
    key = ("train_set", "test_set", "seed")
    assert {tuple(part[k] for k in key) for part in found} == {
        *(("one", test, seed) for test in ("two", "three") for seed in (7, 8)),
        *(("three", test, seed) for test in ("one", "two") for seed in (0, 1)),
    }
    assert "8 results; 4 not scored, as trained on it: " in result.stderr
    assert " on one, " in result.stderr
    assert {part["configuration"] for part in found} == {"cartesian-s1-n8-D=8-d=4"}
    assert all(part["parameters"] > 0 and not part["hand_crafted"] for part in found)
    assert (tmp_path / "phototourism-two-cartesian-s1-n8-D=8-d=4-three-seed1.json").is_file()
    good("report", tmp_path, "-o", tmp_path / "page")
    text = (tmp_path / "page" / "report.md").read_text()
    assert "one → three" in text
    assert "±" in text


def test_sets_of_one_name_are_joined(here, tmp_path):
    one = ("-o", tmp_path / "one.json")
    found = json.loads(good("evaluate", "phototourism", "B=one", "B=two", "--baseline", "sift", *one, "--json").stdout)
    assert (tmp_path / "one.json").is_file()
    alone = json.loads(good("evaluate", "phototourism", "one", "two", "--baseline", "sift", "--json").stdout)
    (pairs,) = found[0]["pairs"].values()
    assert found[0]["patches"] == 120
    for key in ("matches", "non_matches"):
        assert pairs[key] == sum(part["pairs"]["m50_100_700_0"][key] for part in alone)
    assert found[0]["retrieval_map"] <= max(part["retrieval_map"] for part in alone)


def test_mkd_says_what_it_learned_on(here, tmp_path):
    build_synthetic(tmp_path / "many", SyntheticSettings(points=100, patches=3, size=32, seed=9))
    words = ("--baseline", "mkd", "--training-set", tmp_path / "many", "--json")
    (found,) = json.loads(good("evaluate", "phototourism", "one", *words).stdout)
    assert (found["train_set"], found["parameters"]) == ("many", 238 + 238 * 128)
    result = run("evaluate", "phototourism", tmp_path / "many", *words)
    assert result.exit_code == 2
    assert "mkd was trained on every set" in result.stderr


def test_names_that_clash_within_a_run_are_found_before_the_work(here, tmp_path):
    models = ("--model", "n-b=untold0.safetensors", "--model", "b=untold1.safetensors", "--name", "n")
    result = run("evaluate", "phototourism", "a=one", "a-n=two", *models, "-o", tmp_path / "new")
    assert result.exit_code == 2
    assert "two results would have the same name, phototourism-a-n-n-b-seed0.json" in result.stderr
    assert " on a" not in result.stderr  # nothing was described
    assert not (tmp_path / "new").exists()


def test_baseline_weights_that_say_their_training_set(here, tmp_path):
    torch.save(kornia.feature.TFeat(pretrained=False).state_dict(), tmp_path / "w.pth")
    common = ("evaluate", "phototourism", "one", "two", "--baseline", "tfeat", "-o", tmp_path / "new")
    result = good(*common, "--baseline-weights", f"two={tmp_path / 'w.pth'}")
    assert "1 result; 1 not scored, as trained on it: tfeat on two" in result.stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["phototourism-one-tfeat-two.json"]
    result = good(*common, "--baseline-weights", tmp_path / "w.pth")
    assert "warning: tfeat on two: the training set of these weights is not known" in result.stderr
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_a_pair_list_of_one_class_is_named(here, tmp_path):
    folder = shutil.copytree("one", tmp_path / "half")
    path = folder / "pairs" / "m50_100_700_0.npy"
    np.save(path, np.load(path)[:100])
    result = run("evaluate", "phototourism", folder, "--baseline", "sift", "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "m50_100_700_0" in result.stderr
    np.save(path, np.array([[0, 60, 1]]))  # there are 60 patches
    assert "m50_100_700_0" in run("evaluate", "phototourism", folder, "--baseline", "sift").stderr
    assert not (tmp_path / "x.json").exists()
