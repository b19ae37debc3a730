"""The verbs for photos do their work on tiny photos: match, extract, pairs, match-pairs, explore, demo."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from commands import good, refused, run
from helpers import on_each_colmap
from made_images import save, texture, turned, write_bad_images, write_odd_images

import matchkernel
from matchkernel.cli import console
from matchkernel.collection.reconstruct import reconstruct
from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.geometry.detect import COLMAP_LIKE
from matchkernel.photos.feature_files import open_features
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.match import parse_filter
from matchkernel.photos.match_files import read_matches
from matchkernel.photos.pair_lists import read_pairs
from matchkernel.runtime.config import PHOTO_MODEL, PHOTO_MODEL_BEFORE

FEATURES = ("--model", "rootsift", "--keypoints", 150)


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy, H = turned(texture(), 30)
    save(texture(), tmp_path / "a.png")
    save(copy, tmp_path / "b.png")
    return H


@pytest.fixture
def walls(tmp_path, monkeypatch):
    """Photos of two walls, three of each, parts of it that overlap; a name has spaces and brackets."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for wall in range(2):
        whole = texture(wall, 150, 240)
        for part, left in enumerate((0, 20, 40)):
            name = f"{part}{'ab'[wall]}.png" if part else f"wall ({'ab'[wall]}).png"
            save(whole[:, left : left + 200], Path("photos") / name)
    return Path("photos")


def test_match_draws_lists_and_prints_the_matches(pair):
    result = good("match", "a.png", "b.png", "-o", "m.png", "-o", "m.csv", "--json", "--model", "rootsift")
    found, lines = json.loads(result.stdout), Path("m.csv").read_text().splitlines()
    assert found.keys() == {
        "keypoints0", "keypoints1", "matches", "inliers", "geometry", "reason", "significance", "model",
        "descriptor", "engine", "seconds",
    }  # fmt: skip
    mapped = np.array(found["model"]) @ [100, 80, 1]
    assert mapped[:2] / mapped[2] == pytest.approx((pair @ [100, 80, 1])[:2], abs=0.5)
    assert Path("m.png").read_bytes()[:4] == b"\x89PNG"
    assert lines[0] == "x0,y0,x1,y1,distance,ratio,inlier"
    rows, indices = np.array([line.split(",") for line in lines[1:]], float), np.array(found["matches"])
    assert rows[:, :2] == pytest.approx(np.array(found["keypoints0"])[indices[:, 0]], abs=1e-4)
    assert rows[:, 2:4] == pytest.approx(np.array(found["keypoints1"])[indices[:, 1]], abs=1e-4)
    assert rows[:, 6].astype(bool).tolist() == found["inliers"]


def test_match_takes_a_weight_file_and_options(pair):
    matchkernel.save(matchkernel.build("sum", d=8, generator=torch.Generator().manual_seed(0)), "small.safetensors")
    options = "--keypoints 50 --geometry fundamental --matcher ratio:0.99 --no-mutual --upright --device cpu --pixels 2"
    result = good("match", "a.png", "b.png", "--json", "--model", "small.safetensors", *options.split())
    found = json.loads(result.stdout)
    assert (len(found["keypoints0"]), found["geometry"]) == (50, "fundamental")
    assert "small" in result.stderr


@pytest.mark.parametrize(
    ("options", "engine"),
    [("--model light", "onnx-int8"), ("--model light --engine torch", "torch"), ("--model rootsift", None)],
)
def test_match_names_its_engine(options, engine, pair):
    found = json.loads(good("match", "a.png", "b.png", "--keypoints", 20, "--json", *options.split()).stdout)
    assert found["engine"] == engine


def test_match_without_matches_ends_well(pair, tmp_path):
    for name, least in write_odd_images(tmp_path).items():
        found = json.loads(good("match", name, "b.png", "-o", "none.csv", "--json", "--model", "sift").stdout)
        if not least:
            assert (found["matches"], found["inliers"], found["model"]) == ([], [], None)
            assert Path("none.csv").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        ("match a.png b.png -o m.csv", "open read detect cut describe match verify write"),
        ("extract a.png b.png -o rows", "open read detect cut describe write"),
    ],
)
def test_seconds_by_stage(words, stages, pair):
    words = (*words.split(), "--model", "sum", "--untrained", "--keypoints", 50)
    result = good(*words, "--profile", "--json")
    seconds = json.loads(result.stdout)["seconds"]
    assert sorted(seconds) == sorted(stages.split())
    lines = [line.split() for line in result.stderr.splitlines()[-len(seconds) - 1 :]]
    assert [line[0] for line in lines] == [*seconds, "total"]
    assert float(lines[-1][1]) == pytest.approx(sum(seconds.values()), abs=0.01)
    assert "total" not in good(*words).stderr


def test_progress_of_a_match_goes_nowhere_but_to_the_bar(pair, monkeypatch):
    words = ("match", "a.png", "b.png", "--model", "sum", "--untrained", "--keypoints", 60)
    result = good(*words)
    assert (result.stdout.count("\n"), result.stderr) == (1, "")  # the answer, even if it is piped
    seen = []
    monkeypatch.setattr(console.Bar, "rename", lambda bar, what: seen.append(what))
    monkeypatch.setattr(console.Bar, "__call__", lambda bar, done, total: seen.append((done, total)))
    good(*words)
    image = ["reading", "detecting", "describing", (60, 60)]
    stages = [what for what in seen if isinstance(what, str) or what[0] == what[1]]
    assert stages == [*image, *image, "matching", "verifying"]


@pytest.mark.parametrize("out", ["rows", "features.h5"])
def test_extract_and_again(out, photos):
    words = ("extract", photos, "-o", out, "--model", "sum", "--untrained", "--keypoints", 30, "--json")
    found = json.loads(good(*words).stdout)
    assert found.pop("images_per_second") == pytest.approx(3 / found.pop("elapsed"), rel=0.01)
    assert found == {
        "done": ["0.png", "1.png", "2.png"], "kept": [], "skipped": {}, "ignored": {}, "keypoints": 90,
        "descriptor": "sum, untrained", "engine": "onnx", "on": "local",
    }  # fmt: skip
    assert json.loads(good(*words).stdout)["kept"] == found["done"]
    assert open_features(Path(out)).names == found["done"]


@pytest.mark.parametrize("out", ["rows", "features.h5"])
def test_features_of_the_default_of_earlier_versions_go_on_with_it(out, photos):
    """If no model is given; other models are not mixed with it."""
    few = ("-o", out, "--keypoints", 30, "--json")
    good("extract", photos / "0.png", *few, "--model", PHOTO_MODEL_BEFORE)
    assert PHOTO_MODEL_BEFORE in refused("extract", photos, *few, "--model", PHOTO_MODEL)
    found = json.loads(good("extract", photos, *few).stdout)
    assert (found["kept"], found["done"]) == (["0.png"], ["1.png", "2.png"])
    assert found["descriptor"] == PHOTO_MODEL_BEFORE
    good("pairs", photos, "-o", "p.txt", "--features", out, "--keypoints", 30, "--top", 1)
    assert {open_features(Path(out)).load(name).model for name in found["kept"] + found["done"]} == {PHOTO_MODEL_BEFORE}


def test_what_an_interrupted_run_left_for_an_h5_goes_on_with_its_model(photos):
    parts = Path("features.h5.parts")
    good("extract", photos / "0.png", "-o", parts, "--model", PHOTO_MODEL_BEFORE, "--keypoints", 30)
    (parts / "0.png.npz").rename(parts / f"{'a' * 40}.npz")  # as shards are called
    found = json.loads(good("extract", photos, "-o", "features.h5", "--keypoints", 30, "--json").stdout)
    assert found["descriptor"] == PHOTO_MODEL_BEFORE


def test_extract_skips_and_counts_what_cannot_be_read(photos):
    bad, odd = write_bad_images(photos), write_odd_images(photos)
    words = ("extract", photos, "nothing-here.png", "-o", "rows", "--model", "sift", "--keypoints", 10, "--json")
    found = json.loads(good(*words, "--workers", 1).stdout)
    assert (len(found["done"]), len(found["skipped"]), found["on"]) == (3 + len(odd), len(bad), "local, 1 process")
    assert {path.name for path in Path("rows").iterdir()} == {f"{name}.npz" for name in found["done"]}
    done = run("extract", photos / "words.jpg", "-o", "none", "--model", "sift")
    assert (done.exit_code, Path("none").exists()) == (2, False)


def test_extract_leaves_out_masks_in_the_folder(photos):
    Path("photos/masks").mkdir()
    save(texture(0, 90, 110), Path("photos/masks/0.png.png"))
    good("extract", photos, "-o", "rows", "--model", "sift", "--keypoints", 30, "--masks", "photos/masks")
    assert sorted(path.name for path in Path("rows").rglob("*.npz")) == ["0.png.npz", "1.png.npz", "2.png.npz"]


def test_extract_records_the_options_of_the_detector_and_does_not_mix_them(photos):
    words = ("extract", photos, "-o", "rows", "--model", "rootsift", "--keypoints", 30)
    options = ("--choice", "spread", "--orientations", "one", "--pooling", "6,8,10", "--contrast", "0.01")
    good(*words, *options)
    recorded = load_features("rows/1.png.npz").settings
    assert [recorded[name] for name in ("choice", "orientations", "pooling", "contrast", "affnet")] == [
        "spread", "one", "6,8,10", 0.01, None,
    ]  # fmt: skip
    assert "choice" in refused(*words, *options[2:])


def test_extract_does_not_mix_engines_and_takes_old_features_as_those_of_torch(photos):
    words = ("extract", photos, "-o", "rows", "--model", "light", "--keypoints", 10)
    good(*words, "--engine", "torch")
    assert "--engine torch" in refused(*words)
    for path in Path("rows").iterdir():
        features = load_features(path)
        old = {key: value for key, value in features.settings.items() if key != "engine"}
        save_features(replace(features, settings=old), path)
    assert len(json.loads(good(*words, "--engine", "torch", "--json").stdout)["kept"]) == 3
    refused(*words)


def test_pairs_of_similar_photos(walls):
    result = good("pairs", walls, "-o", "pairs.txt", "--top", 2, *FEATURES, "--json")
    assert json.loads(result.stdout) == {"images": 6, "pairs": 6, "possible": 15, "choice": "top:2"}
    sides = [{"a" in name.removeprefix("wall") for name in pair} for pair in read_pairs("pairs.txt")]
    assert all(len(side) == 1 for side in sides)
    assert sorted(path.name for path in Path().iterdir()) == ["pairs.txt", "photos"]
    good("extract", walls, "-o", "rows.h5", *FEATURES)
    good("pairs", "rows.h5", "-o", "again.txt", "--top", 2)
    good("pairs", walls, "-o", "kept.txt", "--top", 2, "--features", "rows.h5", *FEATURES)
    assert len({Path(name).read_text() for name in ("pairs.txt", "again.txt", "kept.txt")}) == 1


def test_pairs_by_name_open_no_photo_and_pairs_by_content_leave_out_broken_ones(walls):
    (walls / "9.png").write_bytes(b"not an image")
    good("pairs", walls, "-o", "all.txt", "--exhaustive")
    assert len(read_pairs("all.txt")) == 21
    Path("more.txt").write_text("9.png\twall (b).png\n")
    good("pairs", walls, "-o", "some.txt", "--sequential", 1, "--add", "more.txt")
    assert (len(read_pairs("some.txt")), read_pairs("some.txt")[0]) == (7, ("9.png", "wall (b).png"))
    result = good("pairs", walls, "-o", "pairs.txt", "--model", "sum", "--untrained", "--keypoints", 50, "--json")
    assert json.loads(result.stdout)["images"] == 6
    assert "skipped photos/9.png" in result.stderr


def test_pairs_by_global_descriptors_and_by_a_colmap_model(walls, rendered):
    with h5py.File("global.h5", "w") as file:
        for path in walls.iterdir():
            row = np.array([1.0, 0.1 * len(path.name)] if "a" in path.stem.removeprefix("wall") else [0.1, 1.0])
            file.create_group(path.name).create_dataset("global_descriptor", data=row)
    good("pairs", walls, "-o", "pairs.txt", "--retrieval", "global.h5", "--top", 1)
    assert 3 <= len(read_pairs("pairs.txt")) <= 6
    good("pairs", rendered / "images", "-o", "seen.txt", "--from-colmap", rendered / "sparse", "--top", 2)
    assert 6 <= len(read_pairs("seen.txt")) <= 12


def test_match_pairs_matches_counts_and_keeps(photos):
    for number in range(3):
        save(turned(texture(0, 150, 180), 9 * number)[0], photos / f"{number}.png")
    good("extract", photos, "-o", "f.h5", "--model", "sift", "--keypoints", 60)
    Path("pairs.txt").write_text("0.png 1.png\n1.png 2.png\n0.png 9.png\n")
    words = ("match-pairs", "f.h5", "pairs.txt", "-o", "m.h5", "-o", "m.txt", "--geometry", "homography", "--json")
    found = json.loads(good(*words).stdout)
    assert (found["pairs"], found["done"], found["kept"], found["on"]) == (3, 2, 0, "local")
    assert list(found["skipped"]) == ["9.png"]
    pairs = (("0.png", "1.png"), ("1.png", "2.png"))
    assert found["matches"] == sum(len(read_matches("m.h5", *pair).indices) for pair in pairs)
    assert json.loads(good(*words).stdout)["kept"] == 2
    Path("other.txt").write_text("photos/0.png photos/1.png\n")  # no pair has features
    assert run("match-pairs", "f.h5", "other.txt", "-o", "new.h5").exit_code == 2
    Path("spaced.txt").write_text("0.png\ta b.png\n0.png\tc d.png\n")  # names that a list for COLMAP cannot hold
    assert "'c d.png'" in refused("match-pairs", "f.h5", "spaced.txt", "-o", "new.txt")


@on_each_colmap
def test_colmap_takes_over_how_features_were_made_except_what_is_given(rendered, tmp_path, monkeypatch):
    """Also a number that is given and is the default."""
    monkeypatch.chdir(tmp_path)
    good("extract", rendered / "images", "-o", "f", "--model", "rootsift", "--keypoints", 500)
    words = ("colmap", rendered / "images", "-o", "ws", "--features", "f")
    for options in (("--keypoints", 8192), ("--model", "light-wide"), ("--engine", "torch")):
        assert run(*words, *options).exit_code == 2
        assert not list(Path().glob("ws*"))
    good(*words)
    made = json.loads(Path("ws/summary.json").read_text())["settings"]
    assert (made["model"], made["detector"]["keypoints"]) == ("rootsift", 500)


@on_each_colmap
def test_a_workspace_of_the_default_of_earlier_versions_goes_on_with_it(rendered, tmp_path):
    """A finished one, and one that was begun; from the command line, and from Python. They recorded all matchers."""
    photos, how = rendered / "images", ("--keypoints", 300, "--filter", "context")
    words = ("colmap", photos, "-o", tmp_path / "ws", *how)
    good(*words, "--model", PHOTO_MODEL_BEFORE)
    summary = tmp_path / "ws" / "summary.json"
    made = json.loads(summary.read_text())
    made["settings"]["context"].insert(0, "of another model")
    summary.write_text(json.dumps(made))
    before = summary.read_bytes()
    assert PHOTO_MODEL_BEFORE in refused(*words, "--model", PHOTO_MODEL)
    nothing = tmp_path / "features"
    nothing.mkdir()
    for features in ((), ("--features", nothing)):
        assert "are in it already" in good(*words, *features).stderr
    settings = ReconstructSettings(replace(COLMAP_LIKE, keypoints=300), filter=parse_filter("context"))
    for features in (None, nothing):
        reconstruct(photos, tmp_path / "ws", settings=settings, features=features)
    assert summary.read_bytes() == before
    shutil.copytree(tmp_path / "ws" / "features", tmp_path / "new.part" / "features")
    journal = json.dumps(made["settings"], sort_keys=True)
    (tmp_path / "new.part" / "journal").write_text(f"{journal}\n", encoding="utf-8")
    assert "(0 of 6 images)" in good("colmap", photos, "-o", tmp_path / "new", *how).stderr
    assert json.loads((tmp_path / "new" / "summary.json").read_text())["settings"] == made["settings"]


def test_explore_saves_a_page_and_asks_before_it_replaces_one(tmp_path, photos_cc0):
    photos, page = [photos_cc0 / "images" / name for name in ("005.jpg", "008.jpg")], tmp_path / "p.html"
    words = ("explore", *photos, "--model", "rootsift", "--keypoints", 100, "--matches", 20, "--save", page)
    page.write_text("mine")
    for answer in ("n\n", ""):  # no, and nobody there
        assert run(*words, answers=answer).exit_code == 2
        assert page.read_text(encoding="utf-8") == "mine"
    assert run(*words, answers="y\n").exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_demo_prints_a_table_and_writes_pictures(tmp_path):
    result = good("demo", "-o", tmp_path / "demo")
    assert len(list((tmp_path / "demo").glob("*.png"))) == 6  # four pictures, two photos
    rows = [line.replace("rotated copy", "rotated").split() for line in result.stdout.splitlines() if "%" in line]
    assert [row[0] for row in rows] == ["stereo", "stereo", "rotated", "rotated"]
    for _, _, correct, share, _, known, _, _ in rows:
        counts = [int(text.replace(",", "")) for text in (correct, known)]
        assert float(share) == pytest.approx(100 * counts[0] / counts[1], abs=0.05)
        assert float(share) > 50


# A program that ends as soon as it looks for another machine.
ALONE = """
import os, sys
sys.addaudithook(lambda event, _: event in ("socket.connect", "socket.getaddrinfo") and os._exit(99))
from matchkernel.__main__ import main
main()
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder in which nobody can write")
@pytest.mark.parametrize("words", ["match a.png b.png --keypoints 50 --out m.png", "plot conventions --out m.png"])
def test_neither_a_home_nor_a_network_is_needed(words, pair):
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    environment = {**os.environ, **dict.fromkeys(names, "/proc/none")}
    command = [sys.executable, "-c", ALONE, *words.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "-> m.png\n")


def test_pairs_that_are_killed_leave_nothing_in_the_temporary_folder_and_resume(photos, tmp_path):
    code = (
        "import os, matchkernel.collection.pairs as choosing; from matchkernel.cli.app import app;"
        "choosing.make_pairs = lambda *_, **__: os.kill(os.getpid(), 9);"
        "app(['pairs', 'photos', '-o', 'p.txt', '--model', 'sift', '--keypoints', '50'])"
    )
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -9
    assert list((tmp_path / "temporary").iterdir()) == []
    good("pairs", photos, "-o", "p.txt", "--model", "sift", "--keypoints", 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.txt", "photos", "temporary"]


def test_two_folders_are_no_images_to_match_and_one_image_is_one(photos):
    assert "extract" in refused("match", photos, photos, "-o", "photos/m.png")
    for path in sorted(photos.iterdir())[1:]:
        path.unlink()
    assert good("extract", photos, "-o", "f", "--model", "sift").stderr.startswith("1 image done")
