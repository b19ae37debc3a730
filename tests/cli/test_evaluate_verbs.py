"""evaluate and report do their work on tiny sets, and never overwrite another result."""

import json
import re
import shlex
import shutil

import kornia
import torch
from commands import good, refused, run
from helpers import write_sequence

from matchkernel.evaluation.results import read_result

FEW = ("--most-pairs", "2", "--keypoints", "150", "--repeats", "1", "--workers", "1")


def test_phototourism_scores_a_baseline(here, tmp_path):
    result = good("evaluate", "phototourism", "one", "zwei=two", "--baseline", "sift", "-o", tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["phototourism-one-sift.json", "phototourism-zwei-sift.json"]
    found = read_result(tmp_path / "new" / names[1])
    assert (found["descriptor"], found["test_set"], found["dimension"]) == ("sift", "zwei", 128)
    assert f"{100 * found['pairs']['m50_100_700_0']['fpr95']:.2f}" in result.stdout
    assert f"{100 * found['retrieval_map']:.2f}" in result.stdout
    again = good("evaluate", "phototourism", "zwei=two", "--baseline", "sift", "-o", tmp_path / "b.json", "--json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "new" / names[1]).read_bytes()
    assert json.loads(again.stdout) == [found]


def test_phototourism_scores_weights_where_they_were_not_trained(here, tmp_path):
    models = ["seed0.safetensors", "seed1.safetensors", "three=untold0.safetensors", "three=untold1.safetensors"]
    options = [text for model in models for text in ("--model", model)]
    result = good(
        "evaluate", "phototourism", "one", "two", "three", *options, "-o", tmp_path, "--json", "--device", "cpu"
    )
    found = json.loads(result.stdout)
    assert {tuple(part[key] for key in ("train_set", "test_set", "seed")) for part in found} == {
        *(("one", test, seed) for test in ("two", "three") for seed in (7, 8)),
        *(("three", test, seed) for test in ("one", "two") for seed in (0, 1)),
    }
    assert "4 not scored" in result.stderr
    assert (tmp_path / "phototourism-two-cartesian-s1-n8-D=8-d=4-three-seed1.json").is_file()
    good("report", tmp_path, "-o", tmp_path / "page", "--title", "Mine")
    assert "<title>Mine</title>" in (tmp_path / "page" / "report.html").read_text()
    assert "one → three" in (tmp_path / "page" / "report.md").read_text()


def test_phototourism_warns_of_weights_whose_training_set_is_not_known(here, tmp_path):
    torch.save(kornia.feature.TFeat(pretrained=False).state_dict(), tmp_path / "w.pth")
    common = ("evaluate", "phototourism", "one", "two", "--baseline", "tfeat", "-o", tmp_path / "new")
    good(*common, "--baseline-weights", f"two={tmp_path / 'w.pth'}")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["phototourism-one-tfeat-two.json"]
    assert "warning: tfeat on two" in good(*common, "--baseline-weights", tmp_path / "w.pth").stderr


def test_hpatches_scores_a_baseline_and_its_own_files_alike(here, tmp_path):
    csv = tmp_path / "csv"
    result = good("evaluate", "hpatches", "strips", "--baseline", "orb", "-o", tmp_path, "--write-csv", csv)
    found = read_result(tmp_path / "hpatches-strips-full-orb.json")
    assert (found["distance"], found["dimension"], found["split"], found["set"]) == ("hamming", 256, "full", "strips")
    assert f"{100 * found['matching']['mean']['all']['ap_trapezoid']:.2f}" in result.stdout
    assert "warning: orb on full" in result.stderr  # tied distances
    words = ("evaluate", "hpatches", "--descriptors", csv, "--bits", "--tasks", "strips/tasks", "--json")
    (again,), (with_set,) = (json.loads(good(*words, *more).stdout) for more in ((), ("strips",)))
    for task in ("verification", "matching", "retrieval"):
        assert again[task] == found[task]
    assert again["patches_sha256"] is None  # the files alone do not tell
    assert [with_set[key] for key in ("data_sha256", "patches_sha256")] == [
        found[key] for key in ("data_sha256", "patches_sha256")
    ]
    strips = shutil.copytree("strips", tmp_path / "other" / "strips")
    shutil.copy(strips / "i_light" / "e1.png", strips / "i_light" / "e2.png")
    refused("evaluate", "hpatches", strips, "--baseline", "orb", "-o", tmp_path)  # another set of that name


def test_hpatches_options(here, tmp_path):
    common = ("evaluate", "hpatches", "strips", "--model", "seed0.safetensors", "--device", "cpu", "--json")
    (plain,) = json.loads(good(*common, "--name", "mine").stdout)
    assert (plain["descriptor"], plain["train_set"], plain["seed"]) == ("mine", "one", 7)
    (l1,) = json.loads(good(*common, "--distance", "l1", "--task", "matching").stdout)
    assert (l1["distance"], "retrieval" in l1, l1["matching"] == plain["matching"]) == ("l1", False, False)
    whitened = good(*common, "--tasks", "lists", "--split", "mine", "--whitening", "pcapl", "-o", tmp_path)
    (whitened,) = json.loads(whitened.stdout)
    assert (whitened["whitening"], whitened["sequences"]) == ("pcapl", ["i_light"])
    assert (tmp_path / "hpatches-strips-mine-cartesian-s1-n8-D=8-d=4-pcapl-one-seed7.json").is_file()


def test_a_narrow_window_cuts_no_number(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    command = ("evaluate", "hpatches", "strips", "--model", "tiny", "--task", "matching", "--device", "cpu")
    row = next(line for line in good(*command).stdout.splitlines() if line.startswith(" tiny "))
    (found,) = json.loads(good(*command, "--json").stdout)
    assert row.split()[-1] == f"{100 * found['matching']['mean']['all']['ap_trapezoid']:.2f}"


def test_photos_are_scored_by_several_filters_and_budgets_on_scenes_of_both_kinds(rendered, tmp_path):
    sequence = write_sequence(tmp_path / "v_texture", side=150)
    words = ("evaluate", "photos", rendered, sequence, "--model", "rootsift", "--filter", "ratio", "--filter", "none")
    result = good(*words, *FEW, "--budget", "100", "--budget", "150", "-o", tmp_path / "results")
    for text in ("planes", "v_texture", "Apache-2.0", "rootsift, 100 keypoints, ratio"):
        assert text in result.stdout
    files = sorted((tmp_path / "results").iterdir())
    assert [file.name.rpartition("-")[0] for file in files] == [
        f"photos-rootsift-{budget}-{kept}" for budget in (100, 150) for kept in ("none", "ratio")
    ]
    assert read_result(files[0])["scenes"]["planes"]["pairs"][0]["keypoints"] == [100, 100]
    assert not (tmp_path / "results.work").exists()
    said = re.search(r"matchkernel (report .*) -o report\n", result.stderr)[1]
    good(*shlex.split(said), "-o", tmp_path / "page")
    assert "rootsift, 150 keypoints, none" in (tmp_path / "page" / "report.html").read_text()


def test_photos_with_names_pairs_of_a_file_and_a_folder_of_work(rendered, tmp_path):
    (tmp_path / "pairs.txt").write_text("004.png 001.png\n")
    words = ("evaluate", "photos", rendered, *FEW, "--pairs", tmp_path / "pairs.txt", "--work", tmp_path / "work")
    shown = json.loads(good(*words, "--model", "first=sift", "--model", "second=sift", "--json").stdout)
    assert [found["descriptor"] for found in shown] == ["first", "second"]
    assert [row["images"] for row in shown[0]["scenes"]["planes"]["pairs"]] == [["004.png", "001.png"]]
    for name in ("a.json", "b.json"):  # from the folder of work: the same seconds, too
        good(*words, "--model", "sift", "-o", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_guided_matching_finds_more(rendered):
    words = ("evaluate", "photos", rendered, "--model", "rootsift", *FEW, "--matcher", "ratio:0.7", "--json")
    (plain,), (guided,) = (json.loads(good(*words, *more).stdout) for more in ((), ("--guided",)))
    for count in ("matches", "inliers"):
        assert guided["scenes"]["planes"][count] > plain["scenes"]["planes"][count]


def test_results_never_take_the_place_of_others(here, tmp_path):
    common = ("evaluate", "phototourism", "one", "--baseline", "sift", "-o", tmp_path)
    for _ in range(2):  # the same again is fine
        good(*common)
    path = tmp_path / "phototourism-one-sift.json"
    before = path.read_bytes()
    refused(*common, "--queries", "5")
    refused(*common, "--seed", "3")
    refused("evaluate", "phototourism", "two", "--baseline", "sift", "-o", path)
    assert path.read_bytes() == before
    for name in ("a b", "a/b", "a_b"):
        good(*common, "--name", name)
    for task in ("matching", "retrieval"):
        good("evaluate", "hpatches", "strips", "--baseline", "sift", "-o", tmp_path, "--task", task)
    assert len(list(tmp_path.iterdir())) == 6


def test_a_full_disk_is_exit_1_and_leaves_nothing(here, tmp_path, small_disk):
    mount, common = small_disk("4k"), ("evaluate", "hpatches", "strips", "--baseline", "sift")
    good(*common, "-o", tmp_path / "whole.json")
    for arguments in (
        (*common, "-o", mount / "x.json"),
        (*common, "--write-csv", mount / "csv"),
        ("report", tmp_path / "whole.json", "-o", mount),
    ):
        result = run(*arguments)
        assert result.exit_code == 1, result.output
        assert result.stderr.splitlines()[-1].startswith("error: ")
        assert not list(mount.iterdir())
