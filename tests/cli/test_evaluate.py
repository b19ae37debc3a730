"""matchkernel evaluate and report, as a user meets them: what is kept, the page, and every mistake in one line."""

import shutil
from pathlib import Path

from commands import good, run


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
        assert "phototourism-one-sift.json: contains another result (retrieval_" in result.stderr
    assert "test_set differs" in run(*common[:2], "two", *common[3:5], "-o", tmp_path / names()[0]).stderr
    assert (tmp_path / "phototourism-one-sift.json").read_bytes() == before
    for name in ("a b", "a/b", "a_b"):
        good(*common, "--name", name)
    assert len(names()) == 4
    strips = ("evaluate", "hpatches", "strips", "--baseline", "sift", "-o", tmp_path, "--task")
    good(*strips, "matching")
    good(*strips, "retrieval")
    assert len([name for name in names() if name.startswith("hpatches-strips-full-sift-")]) == 2


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
    (PATCHES, "either a model"),
    ((*PATCHES, "--baseline", "sift", "--model", "seed0.safetensors"), "either a model"),
    ((*PATCHES, "--baseline", "surf"), "no baseline 'surf'"),
    ((*PATCHES, "--baseline", "tfeat"), "tfeat needs a weight file"),
    ((*PATCHES, "--baseline", "tfeat"), "needs a weight file: give its path as weights (--baseline-weights)"),
    ((*PATCHES, "--baseline", "sift", "--baseline-weights", "x"), "takes no weight file (--baseline-weights)"),
    ((*PATCHES, "--baseline", "sift", "--training-set", "two"), "(--training-set) are for mkd only"),
    ((*PATCHES, "--model", "seed0.safetensors", "--training-set", "two"), "--training-set need --baseline"),
    ((*PATCHES, "--model", "three=seed0.safetensors"), "its card says it was trained on one, not on three"),
    ((*PATCHES, "--model", "untold0.safetensors", "--model", "sum.safetensors", "--name", "x"), "two configurations"),
    ((*evaluate("phototourism", "A=one", "A=one", "--baseline", "sift"),), "one and one contain the same patches"),
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
    ((*PATCHES, "--model", "seed0.safetensors"), "was trained on every set"),
    ((*PATCHES, "--model", "seed0.safetensors", "--device", "abacus"), "device 'abacus'"),
    ((*evaluate("phototourism", "nowhere", "--baseline", "sift"),), "nowhere: no such folder"),
    ((*evaluate("phototourism", "one", "./one", "--baseline", "sift"),), "two sets have the name 'one'"),
    ((*evaluate("phototourism", "one", "two", "--baseline", "sift", "-o", "x.json"),), "several results need a folder"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "seed0.safetensors/x.json"),), "is not a folder"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "seed0.safetensors"),), "another file"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "one"),), "one: is one of the inputs"),
    ((*evaluate("phototourism", "A=one", "--baseline", "sift", "-o", "one/new"),), "inside the input one"),
    ((*evaluate("phototourism", "one", "--baseline", "sift", "-o", "sum.safetensors/new"),), "is not a folder"),
    ((*evaluate("phototourism", "two", "--model", "seed0.json", "-o", "seed0.json"),), "is one of the inputs"),
    ((*evaluate("hpatches", "strips", "--baseline", "sift", "-o", "strips/new"),), "inside the input strips"),
    ((*evaluate("hpatches", "strips", "--baseline", "sift", "--write-csv", "strips/x"),), "inside the input strips"),
    ((*evaluate("hpatches", "one", "--baseline", "sift"),), "is a patch set, not a set in the HPatches layout"),
    ((*evaluate("hpatches", "--baseline", "sift"),), "give the folder of a set"),
    (STRIPS, "either a model"),
    ((*STRIPS, "--baseline", "sift", "--bits"), "--bits needs --descriptors"),
    ((*STRIPS, "--baseline", "sift", "--split", "a"), "has no split 'a', only full"),
    ((*STRIPS, "--baseline", "sift", "--split", "full", "--split", "full"), "each split must be given once"),
    ((*STRIPS, "--baseline", "sift", "--tasks", "one"), "splits.json: cannot be read"),
    ((*STRIPS, "--baseline", "sift", "--task", "detection"), "tasks are"),
    ((*STRIPS, "--baseline", "sift", "--whitening", "zca"), "none or pcapl"),
    ((*STRIPS, "--baseline", "sift", "--whitening", "pcapl"), "split 'full' has none"),
    ((*STRIPS, "--baseline", "orb", "--distance", "l1"), "Hamming"),
    ((*STRIPS, "--baseline", "sift", "--write-csv", "one"), "already exists"),
    ((*STRIPS, "--baseline", "sift", "--descriptors", "csv"), "--descriptors cannot be combined"),
    ((*CSV, "nowhere"), "nowhere: no such folder"),
    ((*evaluate("hpatches", "--descriptors", "csv"),), "--tasks"),
    (("report", "one", "-o", "new"), "manifest.json: not a result"),
    (("report", "nothing.json", "-o", "new"), "cannot be read"),
]


def test_a_mistake_is_one_line_and_exit_2(here):
    shutil.copy("seed0.safetensors", "seed0.json")
    before = sorted(here.rglob("*"))
    for arguments, words in MISTAKES:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), (arguments, result.output)
        assert result.stderr.startswith("error: "), arguments
        assert result.stderr.count("\n") == 1, arguments
        assert words in result.stderr, arguments
        assert sorted(here.rglob("*")) == before, arguments
    Path("seed0.json").unlink()


def test_a_full_disk_is_exit_1_and_leaves_nothing(here, tmp_path, small_disk):
    """Made real: a file system of one page."""
    mount = small_disk("4k")
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
