"""matchkernel evaluate photos, as a user meets it."""

import json
import shutil

import pytest
from commands import good, run
from helpers import write_sequence

from matchkernel.evaluation.results import read_result

FEW = ("--most-pairs", "2", "--keypoints", "150", "--repeats", "1", "--workers", "1")


@pytest.fixture(scope="module")
def sequence(tmp_path_factory):
    return write_sequence(tmp_path_factory.mktemp("sequences") / "v_texture", side=150)


def test_several_filters_and_budgets_on_scenes_of_both_kinds(rendered, sequence, tmp_path):
    arguments = (
        "evaluate",
        "photos",
        rendered,
        sequence,
        "--model",
        "rootsift",
        "--filter",
        "ratio",
        "--filter",
        "none",
    )
    result = good(*arguments, *FEW, "--budget", "100", "--budget", "150", "-o", tmp_path / "results")
    assert "4 results ->" in result.stderr
    for words in ("planes", "v_texture", "mAA(5°)", "mAA(10°)", "H 3 px", "to first", "s/photo", "Apache-2.0"):
        assert words in result.stdout
    assert "rootsift, 100 keypoints, ratio" in result.stdout
    files = sorted((tmp_path / "results").iterdir())
    assert [file.name.rpartition("-")[0] for file in files] == [
        f"photos-rootsift-{budget}-{kept}" for budget in (100, 150) for kept in ("none", "ratio")
    ]
    found = read_result(files[0])
    assert found["scenes"]["planes"]["pairs"][0]["keypoints"] == [100, 100]
    assert found["calibration"]["match_threshold"] > 0
    assert not (tmp_path / "results.work").exists()
    good("report", tmp_path / "results", "-o", tmp_path / "page")
    assert "rootsift, 150 keypoints, none" in (tmp_path / "page" / "report.html").read_text()


def test_guided_matching_finds_more(rendered):
    arguments = ("evaluate", "photos", rendered, "--model", "rootsift", *FEW, "--filter", "ratio:0.7", "--json")
    (plain,), (guided,) = (json.loads(good(*arguments, *more).stdout) for more in ((), ("--guided",)))
    assert (plain["filter"], guided["filter"]) == ("ratio:0.7", "guided, first ratio:0.7")
    assert guided["scenes"]["planes"]["matches"] > plain["scenes"]["planes"]["matches"]
    assert guided["scenes"]["planes"]["inliers"] > plain["scenes"]["planes"]["inliers"]


def test_json_and_the_same_bytes_again_but_for_the_seconds(rendered, tmp_path):
    arguments = ("evaluate", "photos", rendered, "--model", "sift", *FEW, "--work", tmp_path / "work")
    (shown,) = json.loads(good(*arguments, "-o", tmp_path / "a.json", "--json").stdout)
    assert read_result(tmp_path / "a.json") == shown
    assert (tmp_path / "work" / "features").is_dir()
    good(*arguments, "-o", tmp_path / "b.json")  # from the work folder: the same seconds, too
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_rows_can_be_named(rendered):
    arguments = ("evaluate", "photos", rendered, *FEW, "--model", "first=sift", "--model", "second=sift", "--json")
    assert [found["descriptor"] for found in json.loads(good(*arguments).stdout)] == ["first", "second"]


def test_pairs_from_a_file(rendered, tmp_path):
    (tmp_path / "pairs.txt").write_text("004.png 001.png\n")
    arguments = ("evaluate", "photos", rendered, "--model", "sift", *FEW, "--pairs", tmp_path / "pairs.txt", "--json")
    (shown,) = json.loads(good(*arguments).stdout)
    assert [row["images"] for row in shown["scenes"]["planes"]["pairs"]] == [["004.png", "001.png"]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--filter", "nearest"), "filter must be one of"),
        (("--filter", "ratio:2"), "ratio must be above 0"),
        (("--pixels", "0"), "pixels must be"),
        (("--repeats", "0"), "repeats must be"),
        (("--pairs", "nowhere.txt"), "nowhere.txt: cannot be read"),
        (("--model", "nobody"), "nobody"),
        (("--model", "sift", "-o", "one.json"), "several results need a folder"),
        (("--shared-points", "100000"), "no two images share 100000 points"),
    ],
)
def test_a_mistake_is_one_line(rendered, change, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("evaluate", "photos", rendered, "--model", "rootsift", *change)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_results_are_not_written_into_a_scene(rendered, tmp_path):
    shutil.copytree(rendered / "images", tmp_path / "scene" / "images")
    shutil.copytree(rendered / "sparse", tmp_path / "scene" / "sparse")
    for option, target in (("-o", "results"), ("--work", "work")):
        target = tmp_path / "scene" / target
        result = run("evaluate", "photos", tmp_path / "scene", "--model", "sift", *FEW, option, target)
        assert (result.exit_code, "is inside the input" in result.stderr) == (2, True)


def test_a_camera_without_intrinsics_is_told(rendered, tmp_path):
    shutil.copytree(rendered / "images", tmp_path / "scene" / "images")
    poses = "1 0 0 0 1 0 0 0 1 0 0 0"
    (tmp_path / "scene" / "cameras.txt").write_text(f"000.png - {poses}\n001.png - {poses}\n")
    result = good("evaluate", "photos", tmp_path / "scene", "--model", "sift", *FEW)
    assert "warning: sift: scene: 1 of 1 pairs have a camera without intrinsics" in result.stderr
