"""Scenes with true cameras in their three layouts, and what is refused."""

import shutil

import numpy as np
import pytest
from helpers import refuses, write_sequence
from PIL import Image

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.photos.scenes import read_cameras, read_scene, read_scenes

IDENTITY, ORIGIN = "1 0 0 0 1 0 0 0 1", "0 0 0"
LINE = f"a.png 500 510 320 240 {IDENTITY} {ORIGIN}"
TURNED = "b.png 500 0 320 0 510 240 0 0 1 0 -1 0 1 0 0 0 0 1 1.5 -2 1e-3"


@pytest.fixture
def written(tmp_path):
    """A scene of two images with a cameras.txt of these lines."""

    def write(*lines, pairs=None):
        folder = tmp_path / "scene"
        (folder / "images").mkdir(parents=True)
        for name in ("a.png", "b.png", "c.png"):
            Image.new("L", (64, 48)).save(folder / "images" / name)
        (folder / "cameras.txt").write_text("\n".join(lines) + "\n")
        if pairs is not None:
            (folder / "pairs.txt").write_text(pairs)
        return folder

    return write


def test_a_colmap_scene(rendered):
    """Six photos on an arc; every camera is that of the model, and pairs share enough points."""
    scene = read_scene(rendered, shared_points=20)
    assert (scene.name, scene.kind) == ("planes", "poses")
    assert list(scene.images) == [f"{k:03}.png" for k in range(6)]
    assert all(a < b for a, b in scene.pairs)
    assert scene.pairs == sorted(set(scene.pairs))
    fewer = read_scene(rendered, shared_points=100)
    assert 0 < len(fewer.pairs) < len(scene.pairs)
    camera = scene.cameras["000.png"]
    assert (camera.model, camera.size) == ("PINHOLE", (400, 300))
    assert pytest.approx(np.eye(3)) == camera.R @ camera.R.T


def test_at_most_so_many_pairs_from_few_to_many_points(rendered):
    every = read_scene(rendered, shared_points=5).pairs
    some = read_scene(rendered, shared_points=5, most_pairs=4).pairs
    assert len(some) == 4
    assert set(some) < set(every)
    assert some == read_scene(rendered, shared_points=5, most_pairs=4).pairs
    few, many = (set(read_scene(rendered, shared_points=n).pairs) for n in (5, 100))
    assert set(some) & many
    assert set(some) & (few - many)


def test_cameras_in_a_text_file(written):
    scene = read_scene(written("# name, intrinsics, R, t", "", LINE, TURNED, f"c.png - {IDENTITY} {ORIGIN}"))
    assert scene.pairs == [("a.png", "b.png"), ("a.png", "c.png"), ("b.png", "c.png")]
    assert scene.cameras["a.png"].parameters.tolist() == [500, 510, 320.5, 240.5]  # COLMAP's origin
    assert scene.cameras["b.png"].parameters.tolist() == [500, 510, 320.5, 240.5]
    assert scene.cameras["b.png"].R.tolist() == [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    assert scene.cameras["b.png"].t.tolist() == [1.5, -2, 1e-3]
    assert scene.cameras["c.png"].model is None


def test_a_rounded_rotation_becomes_the_nearest_one(tmp_path):
    (tmp_path / "cameras.txt").write_text("a - 0.8660 -0.5 0 0.5 0.8660 0 0 0 1 0 0 0")
    R = read_cameras(tmp_path / "cameras.txt")["a"].R
    assert pytest.approx(np.eye(3), abs=1e-12) == R @ R.T


def test_pairs_are_given(written, tmp_path):
    folder = written(LINE, TURNED, f"c.png - {IDENTITY} {ORIGIN}", pairs="c.png a.png\n\na.png c.png\n# no\n")
    scene = read_scene(folder)
    assert scene.pairs == [("c.png", "a.png")]
    assert list(scene.images) == ["a.png", "c.png"]
    (tmp_path / "own.txt").write_text("a.png b.png\n")
    assert read_scene(folder, pairs=tmp_path / "own.txt").pairs == [("a.png", "b.png")]


def test_a_sequence_with_homographies(tmp_path):
    scene = read_scene(write_sequence(tmp_path / "v_texture", side=100))
    assert scene.kind == "homographies"
    assert scene.pairs == [("1.png", f"{k}.png") for k in range(2, 7)]
    assert scene.homographies["1.png", "6.png"] == pytest.approx(np.eye(3))
    with refuses(ArgumentError):
        read_scene(tmp_path / "v_texture", pairs="x")
    folder = tmp_path / "v_texture"
    scene = read_scene(folder, most_pairs=2)
    assert scene.pairs == list(scene.homographies) == [("1.png", "3.png"), ("1.png", "5.png")]
    assert list(scene.images) == ["1.png", "3.png", "5.png"]
    assert list(read_scene(folder, most_pairs=9).images) == [f"{k}.png" for k in range(1, 7)]


@pytest.mark.parametrize(
    "line",
    [
        f"a.png 500 510 320 240 2 0 0 0 1 0 0 0 1 {ORIGIN}",
        f"a.png 500 510 320 240 1 0 0 0 1 0 0 0 -1 {ORIGIN}",
        f"a.png 500 510 320 240 0 0 0 0 0 0 0 0 0 {ORIGIN}",
        f"a.png 0 510 320 240 {IDENTITY} {ORIGIN}",
        f"a.png 500 -1 320 240 {IDENTITY} {ORIGIN}",
        f"a.png 500 9 320 0 510 240 0 0 1 {IDENTITY} {ORIGIN}",
        f"a.png 500 0 320 0 510 240 0 0 2 {IDENTITY} {ORIGIN}",
        f"a.png 0 0 0 0 0 0 0 0 0 {IDENTITY} {ORIGIN}",
        f"a.png 500 510 nan 240 {IDENTITY} {ORIGIN}",
        f"a.png 500 510 320 240 {IDENTITY} 0 inf 0",
        f"a.png 500 510 x 240 {IDENTITY} {ORIGIN}",
        f"a.png 500 510 320 {IDENTITY} {ORIGIN}",
        f"a.png {IDENTITY} {ORIGIN}",
        "a.png",
        TURNED,
    ],
)
def test_a_bad_camera_is_refused(written, line):
    with refuses(FileError):
        read_scene(written(TURNED, line))


@pytest.mark.parametrize("pairs", ["a.png d.png", "a.png b.png c.png", "a.png a.png", "# nothing\n"])
def test_a_list_without_pairs_of_images_with_cameras_is_refused(written, pairs):
    with refuses(FileError):
        read_scene(written(LINE, TURNED, pairs=pairs))


def test_a_scene_that_cannot_be_scored_is_refused(written, rendered, photos_cc0, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder, options in (
        (tmp_path / "nowhere", {}),
        (tmp_path / "empty", {}),
        (written(LINE), {}),
        (rendered, {"shared_points": 10**6}),
    ):
        with refuses(FileError):
            read_scene(folder, **options)
    with refuses(ArgumentError):
        read_scenes([photos_cc0, photos_cc0])
    with refuses(ArgumentError):
        read_scenes([photos_cc0, rendered], pairs="x")


def without_images(path):
    path.write_text("\n".join(path.read_text().split("\n")[:2]) + "\n")


def with_camera(line):
    def change(path):
        path.write_text("\n".join([line, *path.read_text().split("\n")[1:]]))

    return change


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("images/003.png", lambda path: path.write_bytes(b"not an image")),
        ("images/003.png", lambda path: path.unlink()),
        ("images/003.png", lambda path: Image.new("L", (400, 200)).save(path)),  # of another shape than its camera
        ("sparse/images.txt", without_images),
        ("sparse/cameras.txt", with_camera("1 PINHOLE 400 300 0 0 200 150")),  # no focal length
        ("sparse/cameras.txt", with_camera("1 EQUIRECTANGULAR 400 300 400 300")),
    ],
)
def test_a_colmap_scene_with_a_fault_is_refused(file, change, rendered, tmp_path):
    shutil.copytree(rendered, tmp_path / "scene")
    change(tmp_path / "scene" / file)
    with refuses(FileError):
        read_scene(tmp_path / "scene")


def test_a_sequence_with_faults(tmp_path):
    folder = write_sequence(tmp_path / "v_texture", side=60)
    (folder / "H_1_3").write_text("0 0 0 0 0 0 0 0 0")
    with refuses(FileError):
        read_scene(folder)
    (folder / "H_1_3").unlink()
    with refuses(FileError):
        read_scene(folder)
    for path in folder.glob("[13456].png"):
        path.unlink()
    with refuses(FileError):
        read_scene(folder)


def test_other_things_beside_the_images_of_a_sequence_are_passed_over(tmp_path):
    folder = write_sequence(tmp_path / "v_texture", side=60)
    (folder / "8").mkdir()
    for name in ("0.png", "7", "\N{SUPERSCRIPT TWO}.png", "1.jpg.txt", "1.TXT"):
        (folder / name).write_text("no image")
    assert read_scene(folder).pairs == [("1.png", f"{k}.png") for k in range(2, 7)]


@pytest.mark.parametrize("name", ["0{}.png", "{}", "\N{FULLWIDTH DIGIT ONE}{}.png", "{}.txt"])
def test_a_sequence_without_an_image_1_is_refused(name, tmp_path):
    for number in (1, 2):
        (tmp_path / name.format(number)).write_text("x")
    (tmp_path / "H_1_2").write_text("1 0 0 0 1 0 0 0 1")
    with refuses(FileError):
        read_scene(tmp_path)
