"""matchkernel match, as a user meets it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from made_images import save, texture, turned, write_bad_images, write_odd_images

import matchkernel
from matchkernel.cli import console


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image = texture()
    copy, H = turned(image, 30)
    save(image, tmp_path / "a.png")
    save(copy, tmp_path / "b.png")
    return H


def test_a_picture_and_json(pair):
    result = run("match", "a.png", "b.png", "-o", "m.png", "--json", "--model", "rootsift")
    assert result.exit_code == 0, result.stderr
    assert "agree on a homography" in result.stderr
    found = json.loads(result.stdout)
    assert found.keys() == {
        "keypoints0", "keypoints1", "matches", "inliers", "geometry", "reason", "significance", "model",
        "descriptor", "engine",
        "seconds",
    }  # fmt: skip
    expected = pair @ [100, 80, 1]
    mapped = np.array(found["model"]) @ [100, 80, 1]
    assert mapped[:2] / mapped[2] == pytest.approx(expected[:2], abs=0.5)
    assert Path("m.png").read_bytes()[:4] == b"\x89PNG"


def test_seconds_by_stage(pair):
    stages = ["open", "read", "detect", "cut", "describe", "match", "verify", "write"]
    given = ("match", "a.png", "b.png", "-o", "m.csv", "--model", "sum", "--untrained", "--keypoints", 50)
    result = run(*given, "--profile", "--json")
    assert result.exit_code == 0, result.stderr
    seconds = json.loads(result.stdout)["seconds"]
    assert sorted(seconds) == sorted(stages)
    assert all(value > 0 for value in seconds.values())
    lines = [line.split() for line in result.stderr.splitlines()[-9:]]
    assert [line[0] for line in lines] == [*seconds, "total"]
    assert float(lines[-1][1]) == pytest.approx(sum(seconds.values()), abs=0.001)
    assert "total" not in run(*given).stderr


def test_a_weight_file_and_options(pair):
    network = matchkernel.build("sum", d=8, generator=torch.Generator().manual_seed(0))
    matchkernel.save(network, "small.safetensors")
    result = run(
        "match", "a.png", "b.png", "--json", "--model", "small.safetensors", "--keypoints", 50,
        "--geometry", "fundamental", "--filter", "ratio:0.99", "--no-mutual", "--upright",
        "--device", "cpu", "--pixels", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert len(found["keypoints0"]) == 50
    assert found["geometry"] == "fundamental"
    assert "small" in result.stderr


def test_matches_as_csv_beside_the_picture(pair):
    result = run("match", "a.png", "b.png", "-o", "m.csv", "-o", "m.png", "--json", "--model", "rootsift")
    assert result.exit_code == 0, result.stderr
    found, lines = json.loads(result.stdout), Path("m.csv").read_text().splitlines()
    assert lines[0] == "x0,y0,x1,y1,distance,ratio,inlier"
    rows = np.array([[float(value) for value in line.split(",")] for line in lines[1:]])
    indices = np.array(found["matches"])
    assert rows[:, :2] == pytest.approx(np.array(found["keypoints0"])[indices[:, 0]], abs=1e-4)
    assert rows[:, 2:4] == pytest.approx(np.array(found["keypoints1"])[indices[:, 1]], abs=1e-4)
    assert rows[:, 6].astype(bool).tolist() == found["inliers"]
    assert ((rows[:, 5] >= 0) & (rows[:, 5] <= 1)).all()
    assert Path("m.png").stat().st_size > 1000
    save(np.full((50, 60), 128, np.uint8), Path("one_colour.png"))
    result = run("match", "a.png", "one_colour.png", "-o", "none.csv", "--model", "sift")
    assert (result.exit_code, Path("none.csv").read_text()) == (0, lines[0] + "\n")


def test_guided_matching_is_an_option(pair):
    plain, guided = (
        json.loads(run("match", "a.png", "b.png", "--json", "--model", "rootsift", *option).stdout)
        for option in ([], ["--guided"])
    )
    assert sum(guided["inliers"]) >= sum(plain["inliers"])
    assert (guided["geometry"], guided["significance"]) == (plain["geometry"], plain["significance"])


def test_progress_is_shown_on_a_terminal_and_nowhere_else(pair, monkeypatch):
    options = ("match", "a.png", "b.png", "--model", "sum", "--untrained", "--keypoints", 60)
    result = run(*options)
    assert (result.stdout.count("\n"), result.stderr) == (1, "")  # the answer, also where it is piped
    seen = []
    monkeypatch.setattr(console.ProgressLines, "rename", lambda bar, what: seen.append(what))
    monkeypatch.setattr(console.ProgressLines, "__call__", lambda bar, done, total: seen.append((done, total)))
    run(*options)
    image = ["reading", "detecting", "describing", (60, 60)]
    stages = [what for what in seen if isinstance(what, str) or what[0] == what[1]]
    assert stages == [*image, *image, "matching", "verifying"]


def test_no_input_is_overwritten(pair):
    """`--json` once took a file name, here that of the weights; -o may not be a weight file either."""
    network = matchkernel.build("sum", d=8, generator=torch.Generator().manual_seed(0))
    for weights in ("small.safetensors", "small.png"):
        matchkernel.save(network, "small.safetensors")
        Path("small.safetensors").rename(weights)
        before = Path(weights).read_bytes()
        for option in ("--json", "-o"):
            result = run("match", "a.png", "b.png", option, weights, "--model", weights, "--keypoints", 50)
            assert result.exit_code == 2, (option, weights)
            assert Path(weights).read_bytes() == before, (option, weights)


def test_without_weights_the_way_on_is_said(pair):
    result = run("match", "a.png", "b.png", "--model", "sum")
    assert result.exit_code == 2
    assert "no weights of that name" in result.stderr
    assert "--untrained" in result.stderr
    assert result.stderr.count("\n") == 1
    result = run("match", "a.png", "b.png", "--model", "sum", "--untrained", "--keypoints", 30, "--geometry", "none")
    assert result.exit_code == 0
    assert "sum, untrained" in result.stdout


def test_images_without_keypoints_end_well(pair, tmp_path):
    for name, least in write_odd_images(tmp_path).items():
        result = run("match", name, "b.png", "--json", "--model", "sift")
        assert result.exit_code == 0, result.stderr
        if not least:
            found = json.loads(result.stdout)
            assert (found["matches"], found["inliers"], found["model"]) == ([], [], None)
            assert "these photos do not seem to show the same thing" in result.stderr


def test_two_identical_images(pair):
    result = run("match", "a.png", "a.png", "--json", "--model", "sift")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert all(i == j for i, j in found["matches"])
    assert np.array(found["model"]) == pytest.approx(np.eye(3), abs=1e-6)


def test_a_users_mistake_is_one_line_and_nothing_is_written(pair, tmp_path):
    names = list(write_bad_images(tmp_path))
    mistakes = [("a.png", name, "-o", "m.png", "--json", "--model", "sift") for name in names]
    mistakes += [
        ("a.png", "b.png", "--model", "mystery"),
        ("a.png", "b.png", "--model", "mystery", "--untrained"),
        ("a.png", "b.png", "--model", "sift", "--filter", "ratio:3"),
        ("a.png", "b.png", "--model", "sift", "--pixels", "0"),
        ("a.png", "b.png", "--model", "sift", "--contrast", "-1"),
        ("a.png", "b.png", "--model", "sift", "-o", "a.png/m.png"),
        ("a.png", "a.png", "--model", "sift", "-o", "a.png"),
        ("a.png", "b.png", "--model", "sift", "-o", "m.jpg"),
        ("a.png", "b.png", "--model", "sift", "-o", "m.png", "-o", "m.txt"),
        ("a.png", "b.png", "--model", "sift", "--magnification", "1e300"),
        ("a.png", "b.png", "--model", "sift", "--device", "banana"),
        ("a.png", "b.png", "--model", "sum", "--untrained", "--device", "abacus"),
    ]
    before = sorted(tmp_path.iterdir())
    for arguments in mistakes:
        result = run("match", *arguments)
        assert result.exit_code == 2, arguments
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_the_demo_prints_a_table_and_writes_pictures(tmp_path):
    result = run("demo", "-o", tmp_path / "demo")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("rootsift") == 2
    assert len(list((tmp_path / "demo").glob("*.png"))) == 6  # four pictures, two photos
    rows = [line.replace("rotated copy", "rotated").split() for line in result.stdout.splitlines() if "%" in line]
    assert [row[0] for row in rows] == ["stereo", "stereo", "rotated", "rotated"]
    for _, _, correct, share, _, known, _, _ in rows:
        assert float(share) == pytest.approx(100 * count(correct) / count(known), abs=0.05)
        assert float(share) > 50


def count(word):
    return int(word.replace(",", ""))
