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
    PATCHES,
    (*PATCHES, "--baseline", "sift", "--model", "seed0.safetensors"),
    (*PATCHES, "--baseline", "surf"),
    (*PATCHES, "--baseline", "tfeat"),
    (*PATCHES, "--baseline", "sift", "--baseline-weights", "x"),
    (*PATCHES, "--baseline", "sift", "--training-set", "two"),
    (*PATCHES, "--model", "seed0.safetensors", "--training-set", "two"),
    (*PATCHES, "--model", "three=seed0.safetensors"),
    (*PATCHES, "--model", "untold0.safetensors", "--model", "sum.safetensors", "--name", "x"),
    evaluate("phototourism", "A=one", "A=one", "--baseline", "sift"),
    (*PATCHES, "--baseline", "tfeat", "--baseline-weights", "seed0.safetensors"),
    (*PATCHES, "--baseline", "mkd"),
    (*PATCHES, "--baseline", "mkd", "--training-set", "two"),
    (*PATCHES, "--baseline", "sift", "--distance", "cosine"),
    (*PATCHES, "--baseline", "orb", "--distance", "l2"),
    (*PATCHES, "--model", "absent.safetensors"),
    (*PATCHES, "--model", "seed0.safetensors", "--model", "./seed0.safetensors"),
    (*PATCHES, "--model", "seed0.safetensors"),
    (*PATCHES, "--model", "seed0.safetensors", "--device", "abacus"),
    evaluate("phototourism", "nowhere", "--baseline", "sift"),
    evaluate("phototourism", "one", "./one", "--baseline", "sift"),
    evaluate("phototourism", "one", "two", "--baseline", "sift", "-o", "x.json"),
    evaluate("phototourism", "one", "--baseline", "sift", "-o", "seed0.safetensors/x.json"),
    evaluate("phototourism", "one", "--baseline", "sift", "-o", "seed0.safetensors"),
    evaluate("phototourism", "one", "--baseline", "sift", "-o", "one"),
    evaluate("phototourism", "A=one", "--baseline", "sift", "-o", "one/new"),
    evaluate("phototourism", "one", "--baseline", "sift", "-o", "sum.safetensors/new"),
    evaluate("phototourism", "two", "--model", "seed0.json", "-o", "seed0.json"),
    evaluate("hpatches", "strips", "--baseline", "sift", "-o", "strips/new"),
    evaluate("hpatches", "strips", "--baseline", "sift", "--write-csv", "strips/x"),
    evaluate("hpatches", "one", "--baseline", "sift"),
    evaluate("hpatches", "--baseline", "sift"),
    STRIPS,
    (*STRIPS, "--baseline", "sift", "--bits"),
    (*STRIPS, "--baseline", "sift", "--split", "a"),
    (*STRIPS, "--baseline", "sift", "--split", "full", "--split", "full"),
    (*STRIPS, "--baseline", "sift", "--tasks", "one"),
    (*STRIPS, "--baseline", "sift", "--task", "detection"),
    (*STRIPS, "--baseline", "sift", "--whitening", "zca"),
    (*STRIPS, "--baseline", "sift", "--whitening", "pcapl"),
    (*STRIPS, "--baseline", "orb", "--distance", "l1"),
    (*STRIPS, "--baseline", "sift", "--write-csv", "one"),
    (*STRIPS, "--baseline", "sift", "--descriptors", "csv"),
    (*CSV, "nowhere"),
    evaluate("hpatches", "--descriptors", "csv"),
    ("report", "one", "-o", "new"),
    ("report", "nothing.json", "-o", "new"),
]


def test_a_mistake_is_one_line_and_exit_2(here):
    shutil.copy("seed0.safetensors", "seed0.json")
    before = sorted(here.rglob("*"))
    for arguments in MISTAKES:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), (arguments, result.output)
        assert result.stderr.startswith("error: "), arguments
        assert result.stderr.count("\n") == 1, arguments
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
