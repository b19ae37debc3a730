"""matchkernel match-pairs, as a user meets it."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from commands import good, run
from made_images import save, texture, turned
from rich.console import Console

from matchkernel.cli import console
from matchkernel.photos.files import read_matches


@pytest.fixture
def features(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in range(3):
        save(turned(texture(0, 150, 180), 9 * number)[0], Path(f"photos/{number}.png"))
    good("extract", "photos", "-o", "features.h5", "--model", "sift", "--keypoints", 60)
    Path("pairs.txt").write_text("0.png 1.png\n1.png 2.png\n0.png 9.png\n")
    return "features.h5"


def test_pairs_are_matched_counted_and_kept(features):
    given = ("match-pairs", features, "pairs.txt", "-o", "m.h5", "-o", "m.txt", "--geometry", "homography")
    result = good(*given, "--json")
    found = json.loads(result.stdout)
    assert (found["pairs"], found["done"], found["kept"], found["on"]) == (3, 2, 0, "local")
    assert list(found["skipped"]) == ["9.png"]
    assert found["pairs_per_second"] == pytest.approx(2 / found["elapsed"], rel=0.02)
    assert result.stderr.splitlines()[0] == "skipped features.h5: contains no features of 9.png"
    assert "2 pairs done, 0 already there, 1 images or pairs skipped" in result.stderr.splitlines()[1]
    assert found["matches"] == sum(
        len(read_matches("m.h5", *pair).indices) for pair in (("0.png", "1.png"), ("1.png", "2.png"))
    )
    assert "0 pairs done, 2 already there" in good(*given).stderr


def test_mistakes_take_one_line(features):
    Path("empty.txt").write_text("\n")
    for arguments in (
        (features, "nowhere.txt", "-o", "m.h5"),
        (features, "empty.txt", "-o", "m.h5"),
        (features, "pairs.txt", "-o", "m.csv"),
        (features, "pairs.txt", "-o", "m.h5", "--filter", "odd"),
        (features, "pairs.txt", "-o", "m.h5", "--on", "cluster"),
        ("nothing", "pairs.txt", "-o", "m.h5"),
    ):
        result = run("match-pairs", *arguments)
        assert result.exit_code == 2, arguments
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    assert not Path("m.h5").exists()


def test_a_list_of_other_names_is_refused_and_the_names_are_shown(features):
    Path("other.txt").write_text("photos/0.png photos/1.png\n")
    result = run("match-pairs", features, "other.txt", "-o", "m.h5", "-o", "m.txt")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "error: features.h5: has the features of no pair; it has 0.png, 1.png, ..."
    )
    assert not list(Path().glob("m.*"))


def test_names_that_a_match_list_cannot_hold_are_all_named(features):
    Path("spaced.txt").write_text("0.png\ta b.png\n0.png\tc d.png\n")
    result = run("match-pairs", features, "spaced.txt", "-o", "m.txt")
    assert result.exit_code == 2
    assert "rename 'a b.png', 'c d.png', write an .h5 instead, or use `matchkernel colmap`" in result.stderr


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ("collection.extract.extract_images", ("extract", "photos", "-o", "f.h5", "--model", "sift")),
        ("collection.match.match_pairs", ("match-pairs", "features.h5", "pairs.txt", "-o", "f.h5")),
        ("collection.reconstruct.reconstruct", ("colmap", "photos", "-o", "f.h5", "--model", "sift")),
        ("data.synthetic.build_synthetic", ("data", "synthetic", "-o", "f.h5")),
    ],
)
def test_ctrl_c_says_how_to_go_on(where, command, features, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"matchkernel.{where}", interrupted)
    result = run(*command)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted: run the same command again to resume f.h5"


def test_the_bar_shows_pairs_per_second(features, monkeypatch):
    terminal = Console(file=StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(console, "stderr", terminal)
    good("match-pairs", features, "pairs.txt", "-o", "m.txt")
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.file.getvalue())
    assert "2/2" in shown
