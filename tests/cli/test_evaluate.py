"""matchkernel evaluate and report, as a user meets them: real runs on tiny sets, and every fault in one line."""

import json
import shutil
import subprocess

import kornia
import numpy as np
import pytest
import torch
from helpers import write_sequence
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app
from matchkernel.data.from_homographies import HomographySettings, build_from_homographies
from matchkernel.data.hpatches_tasks import draw_verification, write_tasks
from matchkernel.data.packed import open_patch_set
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.evaluation.results import read_result

SETS = ("one", "two", "three")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three patch sets with pairs, an HPatches-layout set of two sequences with a split of its own, weights."""
    folder = tmp_path_factory.mktemp("evaluate")
    for seed, name in enumerate(SETS):
        build_synthetic(folder / name, SyntheticSettings(points=20, patches=3, size=32, seed=seed))
        labels = open_patch_set(folder / name).labels
        a, b = np.random.default_rng(seed).integers(len(labels), size=(2, 800))
        a[:100], b[:100] = np.repeat(np.arange(0, 60, 3), 5), np.repeat(np.arange(1, 60, 3), 5)
        pairs = np.column_stack([a, b, labels[a] == labels[b]]).astype(np.int64)
        (folder / name / "pairs").mkdir()
        np.save(folder / name / "pairs" / "m50_100_700_0.npy", pairs)
    for seed, name in enumerate(("i_light", "v_turn")):
        write_sequence(folder / "sequences" / name, seed=seed)
    build_from_homographies(folder / "sequences", folder / "strips", HomographySettings(most=25, verification=200))
    for seed in (0, 1):
        model = matchkernel.build("cartesian", s=1, d=4, D=8, generator=torch.Generator().manual_seed(seed))
        card = {"trained_on": "one", "training": json.dumps({"seed": 7 + seed})}
        matchkernel.save(model, folder / f"seed{seed}.safetensors", card)
        matchkernel.save(model, folder / f"untold{seed}.safetensors")
    matchkernel.save(matchkernel.build("sum", d=4), folder / "sum.safetensors")
    (folder / "lists").mkdir()
    pairs = draw_verification({"i_light": 25}, ["i_light"], 60)
    write_tasks(folder / "lists", "mine", pairs, pairs.first, pairs.first)
    for path in (folder / "lists").glob("retr_*"):
        path.unlink()
    (folder / "lists" / "splits.json").write_text(json.dumps({"mine": {"test": ["i_light"], "train": ["v_turn"]}}))
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


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
    assert "8 results; 4 not scored: trained on the test set" in result.stderr
    assert {part["configuration"] for part in found} == {"cartesian-s1-n32-D=8-d=4"}
    assert all(part["parameters"] > 0 and not part["hand_crafted"] for part in found)
    assert (tmp_path / "phototourism-two-cartesian-s1-n32-D=8-d=4-three-seed1.json").is_file()
    good("report", tmp_path, "-o", tmp_path / "page")
    text = (tmp_path / "page" / "report.md").read_text()
    assert "one → three" in text
    assert "±" in text


def test_sets_of_one_name_are_joined(here):
    found = json.loads(good("evaluate", "phototourism", "B=one", "B=two", "--baseline", "sift", "--json").stdout)
    alone = json.loads(good("evaluate", "phototourism", "one", "two", "--baseline", "sift", "--json").stdout)
    (pairs,) = found[0]["pairs"].values()
    assert found[0]["patches"] == 120
    for key in ("matches", "non_matches"):
        assert pairs[key] == sum(part["pairs"]["m50_100_700_0"][key] for part in alone)
    assert found[0]["retrieval_map"] <= max(part["retrieval_map"] for part in alone)


def test_hpatches_baselines_and_their_files(here, tmp_path):
    result = good(
        "evaluate", "hpatches", "strips", "--baseline", "orb", "-o", tmp_path, "--write-csv", tmp_path / "csv"
    )
    found = read_result(tmp_path / "hpatches-strips-full-orb.json")
    assert (found["distance"], found["dimension"], found["split"], found["set"]) == ("hamming", 256, "full", "strips")
    assert found["lists"] == {"verification": "read", "retrieval": "read"}
    assert set(found["matching"]["per_pair"]) == {"i_light", "v_turn"}
    assert f"{100 * found['retrieval']['matlab']['mean']['all']['ap_step']:.2f}" in result.stdout
    assert f"{100 * found['matching']['mean']['all']['ap_trapezoid']:.2f}" in result.stdout
    assert "warning: orb on full: retrieval: tied distances raise" in result.stderr
    csv = ("evaluate", "hpatches", "--descriptors", tmp_path / "csv", "--bits", "--tasks", "strips/tasks", "--json")
    (again,) = json.loads(good(*csv).stdout)
    for task in ("verification", "matching", "retrieval"):
        assert again[task] == found[task]
    assert again["patches_sha256"] is None  # the files alone do not tell
    (told,) = json.loads(good(*csv, "strips").stdout)
    assert [told[key] for key in ("data_sha256", "patches_sha256")] == [
        found[key] for key in ("data_sha256", "patches_sha256")
    ]
    strips = shutil.copytree("strips", tmp_path / "other" / "strips")
    shutil.copy(strips / "i_light" / "e1.png", strips / "i_light" / "e2.png")
    (other,) = json.loads(good("evaluate", "hpatches", strips, "--baseline", "orb", "--json").stdout)
    assert other["set"] == found["set"]
    assert len({part["data_sha256"] for part in (found, again, other)}) == 3
    assert other["patches_sha256"] != found["patches_sha256"]
    result = run("evaluate", "hpatches", strips, "--baseline", "orb", "-o", tmp_path)
    assert "hpatches-strips-full-orb.json: holds another result (data_sha256 differs), it is not" in result.stderr


def test_hpatches_options(here, tmp_path):
    common = ("evaluate", "hpatches", "strips", "--model", "seed0.safetensors", "--device", "cpu", "--json")
    (plain,) = json.loads(good(*common, "--name", "mine").stdout)
    assert (plain["descriptor"], plain["train_set"], plain["seed"]) == ("mine", "one", 7)
    assert plain["configuration"] == "cartesian-s1-n32-D=8-d=4"
    (l1,) = json.loads(good(*common, "--distance", "l1", "--task", "matching").stdout)
    assert l1["distance"] == "l1"
    assert "retrieval" not in l1
    assert l1["matching"] != plain["matching"]
    whitened = good(*common, "--tasks", "lists", "--split", "mine", "--whitening", "pcapl", "-o", tmp_path)
    (whitened,) = json.loads(whitened.stdout)
    assert (whitened["whitening"], whitened["sequences"]) == ("pcapl", ["i_light"])
    assert whitened["lists"] == {"verification": "read", "retrieval": "drawn, seed 42"}
    assert (tmp_path / "hpatches-strips-mine-cartesian-s1-n32-D=8-d=4-pcapl-one-seed7.json").is_file()


def test_mkd_says_what_it_learned_on(here, tmp_path):
    build_synthetic(tmp_path / "many", SyntheticSettings(points=100, patches=3, size=32, seed=9))
    words = ("--baseline", "mkd", "--training-set", tmp_path / "many", "--json")
    (found,) = json.loads(good("evaluate", "phototourism", "one", *words).stdout)
    assert (found["train_set"], found["parameters"]) == ("many", 238 + 238 * 128)
    result = run("evaluate", "phototourism", tmp_path / "many", *words)
    assert result.exit_code == 2
    assert "mkd was trained on each set" in result.stderr


def test_results_never_take_the_place_of_others(here, tmp_path):
    names = lambda: sorted(path.name for path in tmp_path.iterdir())  # noqa: E731
    common = ("evaluate", "phototourism", "one", "--baseline", "sift", "-o", tmp_path)
    good(*common)
    before = (tmp_path / "phototourism-one-sift.json").read_bytes()
    good(*common)  # the same again
    for other in (("--queries", "5"), ("--seed", "3")):
        result = run(*common, *other)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert "phototourism-one-sift.json: holds another result (retrieval_" in result.stderr
    assert "test_set differs" in run(*common[:2], "two", *common[3:5], "-o", tmp_path / names()[0]).stderr
    assert (tmp_path / "phototourism-one-sift.json").read_bytes() == before
    for name in ("a b", "a/b", "a_b"):
        good(*common, "--name", name)
    assert len(names()) == 4
    strips = ("evaluate", "hpatches", "strips", "--baseline", "sift", "-o", tmp_path, "--task")
    good(*strips, "matching")
    good(*strips, "retrieval")
    assert len([name for name in names() if name.startswith("hpatches-strips-full-sift-")]) == 2


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
    assert "1 result; 1 not scored: trained on the test set" in result.stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["phototourism-one-tfeat-two.json"]
    result = good(*common, "--baseline-weights", tmp_path / "w.pth")
    assert "warning: tfeat on two: what these weights were trained on is not known" in result.stderr
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_report(here, tmp_path):
    for name in ("sift", "orb"):
        good("evaluate", "hpatches", "strips", "--baseline", name, "-o", tmp_path / "in")
        good("evaluate", "phototourism", "one", "two", "--baseline", name, "-o", tmp_path / "in")
    result = good("report", tmp_path / "in", "-o", tmp_path / "out", "--title", "Mine")
    assert result.stdout == ""
    assert result.stderr == f"-> {tmp_path / 'out/report.html'}\n"
    page = (tmp_path / "out/report.html").read_text()
    for words in (
        "<title>Mine</title>",
        "ROC, one",
        "HPatches tasks, strips, split full",
        "orb on full: retrieval: tied",
    ):
        assert words in page
    good("report", *sorted((tmp_path / "in").iterdir()), "-o", tmp_path / "again", "--title", "Mine")
    assert (tmp_path / "again/report.html").read_text() == page


def evaluate(*arguments):
    return ("evaluate", *arguments)


PATCHES, STRIPS = evaluate("phototourism", "one", "-o", "new"), evaluate("hpatches", "strips", "-o", "new")
CSV = evaluate("hpatches", "--tasks", "strips/tasks", "-o", "new", "--descriptors")
MISTAKES = [
    (PATCHES, "one thing to score"),
    ((*PATCHES, "--baseline", "sift", "--model", "seed0.safetensors"), "one thing to score"),
    ((*PATCHES, "--baseline", "surf"), "no baseline 'surf'"),
    ((*PATCHES, "--baseline", "binboost"), "CSV folder"),
    ((*PATCHES, "--baseline", "tfeat"), "needs a weight file: give its path as weights (--baseline-weights)"),
    ((*PATCHES, "--baseline", "sift", "--baseline-weights", "x"), "takes no weight file (--baseline-weights)"),
    ((*PATCHES, "--baseline", "sift", "--training-set", "two"), "(--training-set) are for mkd alone"),
    ((*PATCHES, "--model", "seed0.safetensors", "--training-set", "two"), "--training-set go with --baseline"),
    ((*PATCHES, "--model", "three=seed0.safetensors"), "its card says it was trained on one, not on three"),
    ((*PATCHES, "--model", "untold0.safetensors", "--model", "sum.safetensors", "--name", "x"), "two configurations"),
    ((*evaluate("phototourism", "A=one", "A=one", "--baseline", "sift"),), "one and one hold the same patches"),
    (
        (*PATCHES, "--baseline", "tfeat", "--baseline-weights", "seed0.safetensors"),
        "seed0.safetensors: not weights of TFeat",
    ),
    ((*PATCHES, "--baseline", "mkd"), "give training_patches (--training-set)"),
    ((*PATCHES, "--baseline", "mkd", "--training-set", "two"), "do not span 128"),
    ((*PATCHES, "--baseline", "sift", "--distance", "cosine"), "must be one of l2, l1, hamming"),
    ((*PATCHES, "--baseline", "orb", "--distance", "l2"), "Hamming"),
    ((*PATCHES, "--model", "absent.safetensors"), "no such file"),
    ((*PATCHES, "--model", "seed0.safetensors", "--model", "./seed0.safetensors"), "a second one of"),
    ((*PATCHES, "--model", "seed0.safetensors"), "was trained on each set"),
    ((*PATCHES, "--model", "seed0.safetensors", "--device", "abacus"), "device 'abacus'"),
    ((*evaluate("phototourism", "nowhere", "--baseline", "sift"),), "nowhere: no such folder"),
    ((*evaluate("phototourism", "one", "./one", "--baseline", "sift"),), "two sets have the name 'one'"),
    ((*evaluate("phototourism", "one", "two", "--baseline", "sift", "-o", "x.json"),), "several results need a folder"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "no/x.json"),), "its folder does not exist"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "seed0.safetensors"),), "another file"),
    ((*evaluate("hpatches", "one", "--baseline", "sift"),), "no sequences here"),
    ((*evaluate("hpatches", "--baseline", "sift"),), "give the folder of a set"),
    (STRIPS, "one thing to score"),
    ((*STRIPS, "--baseline", "sift", "--bits"), "--bits goes with --descriptors"),
    ((*STRIPS, "--baseline", "sift", "--split", "a"), "has no split 'a', only full"),
    ((*STRIPS, "--baseline", "sift", "--split", "full", "--split", "full"), "named once each"),
    ((*STRIPS, "--baseline", "sift", "--tasks", "one"), "splits.json: cannot be read"),
    ((*STRIPS, "--baseline", "sift", "--task", "detection"), "tasks are"),
    ((*STRIPS, "--baseline", "sift", "--whitening", "zca"), "none or pcapl"),
    ((*STRIPS, "--baseline", "sift", "--whitening", "pcapl"), "split 'full' has none"),
    ((*STRIPS, "--baseline", "orb", "--distance", "l1"), "Hamming"),
    ((*STRIPS, "--baseline", "sift", "--write-csv", "one"), "exists already"),
    ((*STRIPS, "--baseline", "sift", "--descriptors", "csv"), "--descriptors goes without"),
    ((*CSV, "nowhere"), "nowhere: no such folder"),
    ((*evaluate("hpatches", "--descriptors", "csv"),), "--tasks"),
    (("report", "one", "-o", "new"), "manifest.json: not a result"),
    (("report", "nothing.json", "-o", "new"), "cannot be read"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=lambda part: part if isinstance(part, str) else "")
def test_a_mistake_is_one_line_and_exit_2(arguments, words, here):
    before = sorted(here.iterdir())
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert sorted(here.iterdir()) == before


@pytest.fixture(scope="module")
def csv(place):
    """Descriptor files of the strips."""
    good("evaluate", "hpatches", place / "strips", "--baseline", "rootsift", "--write-csv", place / "csv")
    return place / "csv"


def change_line(path, row, line):
    lines = path.read_text().splitlines()
    lines[row - 1 : row] = [] if line is None else [line(lines[row - 1])]
    path.write_text("\n".join(lines) + "\n")


FAULTS = {
    "nan": (lambda c: change_line(c / "v_turn/h3.csv", 4, lambda s: "nan" + s[s.index(",") :]), "v_turn/h3.csv, row 4"),
    "ragged": (lambda c: change_line(c / "i_light/t5.csv", 2, lambda s: s + ",1"), "i_light/t5.csv, row 2: 129 values"),
    "word": (lambda c: change_line(c / "i_light/e1.csv", 3, lambda s: "x" + s[1:]), "i_light/e1.csv, row 3"),
    "width": (lambda c: (c / "v_turn/e2.csv").write_text("1,2\n" * 25), "v_turn/e2.csv, row 1: 2 values"),
    "count": (lambda c: change_line(c / "v_turn/e2.csv", 1, None), "v_turn/e2.csv, row 25: missing"),
    "image": (lambda c: (c / "v_turn/t1.csv").unlink(), "t1.csv is missing"),
    "sequence": (lambda c: shutil.rmtree(c / "i_light"), "i_light: the sequence is missing"),
    "empty": (lambda c: (c / "i_light/ref.csv").write_text(""), "i_light/ref.csv: is empty"),
    "binary": (lambda c: (c / "i_light/ref.csv").write_bytes(bytes(range(256))), "i_light/ref.csv: not a text file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_descriptor_files_are_named(fault, csv, here, tmp_path):
    folder = shutil.copytree(csv, tmp_path / "bad")
    FAULTS[fault][0](folder)
    result = run("evaluate", "hpatches", "strips", "--descriptors", folder, "-o", tmp_path / "out.json", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert FAULTS[fault][1] in result.stderr
    assert not (tmp_path / "out.json").exists()


def test_the_set_says_how_many_rows_there_must_be(csv, here, tmp_path):
    """All images of a sequence short by the same row: only the set itself can tell."""
    folder = shutil.copytree(csv, tmp_path / "short")
    for path in (folder / "v_turn").iterdir():
        change_line(path, 25, None)
    result = run("evaluate", "hpatches", "strips", "--descriptors", folder)
    assert result.exit_code == 2
    assert "v_turn/ref.csv, row 25: missing; it has 24 rows, wanted 25" in result.stderr


@pytest.mark.parametrize(
    ("name", "row", "line", "words"),
    [
        ("verif_neg_inter", 8, "i_light,0,3,v_turn,1,25", "row 7: v_turn has 25 patches, the list names patch 25"),
        ("retr_distractors", 3, "v_nowhere,1", "row 2: sequence 'v_nowhere' is not in the set"),
        ("retr_queries", 2, "i_light,one", "line 2: not a whole number"),
        ("verif_pos", 5, "i_light,0,3,i_light,6,3", "line 5: image 6"),
    ],
)
def test_lists_that_name_what_is_not_there(name, row, line, words, here, tmp_path):
    tasks = shutil.copytree("strips/tasks", tmp_path / "tasks")
    path = tasks / f"{name}_split-full.csv"
    if name.startswith("verif_neg"):  # its first patch must stay that of verif_pos
        line = ",".join(path.read_text().splitlines()[row - 1].split(",")[:3] + line.split(",")[3:])
    change_line(path, row, lambda _: line)
    result = run("evaluate", "hpatches", "strips", "--baseline", "sift", "--tasks", tasks, "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert path.name in result.stderr
    assert words in result.stderr
    assert not (tmp_path / "x.json").exists()


def test_constant_descriptors_are_scored_with_a_warning(csv, here, tmp_path):
    folder = tmp_path / "constant"
    for path in csv.glob("*/*.csv"):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / path.parent.name / path.name).write_text("0,0,0\n" * len(path.read_text().splitlines()))
    result = good("evaluate", "hpatches", "strips", "--descriptors", folder, "-o", tmp_path / "x.json")
    found = read_result(tmp_path / "x.json")
    assert found["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid"] == 1
    assert found["retrieval"]["python"]["mean"]["20000"]["ap_trapezoid_tie_safe"] < 0.2
    assert found["blank"] == 800
    assert "warning: constant on full: retrieval: tied distances raise" in result.stderr
    assert "from 1" in result.stderr or "to 100.000 by their order alone" in result.stderr
    assert "800 of 800 patches have no description" in result.stderr


def test_a_broken_strip_is_named(here, tmp_path):
    strips = shutil.copytree("strips", tmp_path / "strips")
    (strips / "v_turn" / "h2.png").write_bytes(b"\x89PNG")
    result = run("evaluate", "hpatches", strips, "--baseline", "sift", "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "v_turn/h2.png" in result.stderr
    (strips / "v_turn" / "h2.png").unlink()
    assert "h2.png is missing" in run("evaluate", "hpatches", strips, "--baseline", "sift").stderr
    assert not (tmp_path / "x.json").exists()


def test_a_pair_list_of_one_class_is_named(here, tmp_path):
    folder = shutil.copytree("one", tmp_path / "half")
    path = folder / "pairs" / "m50_100_700_0.npy"
    np.save(path, np.load(path)[:100])
    result = run("evaluate", "phototourism", folder, "--baseline", "sift", "-o", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "half, m50_100_700_0: all 100 pairs are matches" in result.stderr
    np.save(path, np.array([[0, 60, 1]]))
    assert "m50_100_700_0.npy: pairs are" in run("evaluate", "phototourism", folder, "--baseline", "sift").stderr
    assert not (tmp_path / "x.json").exists()


def test_a_full_disk_is_exit_1_and_leaves_nothing(here, tmp_path):
    """Made real: a file system of one page."""
    mount = tmp_path / "tiny"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", mount], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small tmpfs here")
    try:
        common = ("evaluate", "hpatches", "strips", "--baseline", "sift")
        good(*common, "-o", tmp_path / "whole.json")
        for arguments in (
            (*common, "-o", mount / "x.json"),
            (*common, "--write-csv", mount / "csv"),
            ("report", tmp_path / "whole.json", "-o", mount),
        ):
            result = run(*arguments)
            assert result.exit_code == 1, result.output
            assert "could not be written" in result.stderr
            assert result.stderr.splitlines()[-1].startswith("error: ")
            assert not list(mount.iterdir())
    finally:
        subprocess.run(["umount", mount], check=True)
