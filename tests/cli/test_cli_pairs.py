"""matchkernel pairs, as a user meets it."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import good, run
from made_images import save, texture

from matchkernel.photos.files import read_pairs


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Photos of two walls, three of each, parts of it that overlap; a name has spaces and brackets."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for wall in range(2):
        whole = texture(wall, 150, 240)
        for part, left in enumerate((0, 20, 40)):
            name = f"{part}{'ab'[wall]}.png" if part else f"wall ({'ab'[wall]}).png"
            save(whole[:, left : left + 200], Path("photos") / name)
    return Path("photos")


FEATURES = ("--model", "rootsift", "--keypoints", 150)


def walls(pairs):
    return {tuple(sorted("a" in name.removeprefix("wall") for name in pair)) for pair in pairs}


def test_similar_photos_are_paired(photos):
    result = good("pairs", photos, "-o", "pairs.txt", "--top", 2, *FEATURES, "--json")
    assert json.loads(result.stdout) == {"images": 6, "pairs": 6, "possible": 15, "choice": "top:2"}
    assert "vocabulary: shipped for rootsift" in result.stderr
    assert "6 pairs of 6 images (40.0% of all) -> pairs.txt" in result.stderr
    pairs = read_pairs("pairs.txt")
    assert walls(pairs) == {(False, False), (True, True)}
    assert any("wall (a).png" in pair for pair in pairs)
    assert sorted(path.name for path in Path().iterdir()) == ["pairs.txt", "photos"]


@pytest.mark.parametrize("place", ["rows", "rows.h5"])
def test_features_are_taken_as_they_are(photos, place):
    good("extract", photos, "-o", place, *FEATURES)
    good("pairs", place, "-o", "pairs.txt", "--top", 1)
    good("pairs", photos, "-o", "again.txt", "--top", 1, "--features", place, *FEATURES)
    assert Path("pairs.txt").read_text() == Path("again.txt").read_text()


def test_a_model_of_ones_own_gets_a_vocabulary_of_its_own(photos):
    result = good("pairs", photos, "-o", "pairs.txt", "--model", "sum", "--untrained", "--keypoints", 50)
    assert "vocabulary: learned from" in result.stderr
    assert len(read_pairs("pairs.txt")) == 15


def test_names_are_enough_for_all_pairs_and_neighbours(photos):
    """A broken photo does no harm: nothing is opened."""
    (photos / "9.png").write_bytes(b"not an image")
    good("pairs", photos, "-o", "all.txt", "--exhaustive")
    assert len(read_pairs("all.txt")) == 21
    Path("more.txt").write_text("9.png\twall (b).png\n")
    good("pairs", photos, "-o", "some.txt", "--sequential", 1, "--add", "more.txt")
    assert len(read_pairs("some.txt")) == 7
    assert read_pairs("some.txt")[0] == ("9.png", "wall (b).png")


def test_a_broken_photo_is_named_and_left_out(photos):
    (photos / "9.png").write_bytes(b"not an image")
    result = good("pairs", photos, "-o", "pairs.txt", *FEATURES)
    assert "skipped photos/9.png: not a whole image" in result.stderr
    assert "15 pairs of 6 images" in result.stderr


def test_global_descriptors_of_hloc(photos):
    with h5py.File("global.h5", "w") as file:
        for path in photos.iterdir():
            row = np.array([1.0, 0.1 * len(path.name)] if "a" in path.stem.removeprefix("wall") else [0.1, 1.0])
            file.create_group(path.name).create_dataset("global_descriptor", data=row)
    good("pairs", photos, "-o", "pairs.txt", "--retrieval", "global.h5", "--top", 1)
    assert 3 <= len(read_pairs("pairs.txt")) <= 6
    save(texture(0, 90, 90), photos / "new.png")
    result = run("pairs", photos, "-o", "pairs.txt", "--retrieval", "global.h5")
    assert result.exit_code == 2
    assert "contains no global descriptor of new.png (1 images have none)" in " ".join(result.stderr.split())


def test_pairs_of_a_colmap_model(rendered):
    out = rendered.parent / "pairs.txt"
    good("pairs", rendered / "images", "-o", out, "--from-colmap", rendered / "sparse", "--top", 2)
    assert 6 <= len(read_pairs(out)) <= 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent", "-o", "p.txt"), "no such folder"),
        (("photos", "-o", "photos/p.txt"), "inside the input"),
        (("photos", "-o", "p.txt", "--add", "absent.txt"), "absent.txt: cannot be read"),
        (("photos", "-o", "p.txt", "--from-colmap", "photos"), "no such file; a sparse model has"),
        (("photos", "-o", "p.txt", "--retrieval", "absent.h5"), "absent.h5: no such file"),
        (("empty", "-o", "p.txt"), "contains neither photos nor features"),
    ],
)
def test_mistakes_are_one_line(photos, arguments, message):
    Path("empty").mkdir()
    result = run("pairs", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stderr.count("\n") == 1
    assert not Path("p.txt").exists()
