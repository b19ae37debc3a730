"""COLMAP's files: real ones of versions 3.8 and 4.2, and fixtures written here from its documentation."""

import contextlib
import json
import os
import shutil
import sqlite3
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from damage import damaged
from helpers import needs_colmap, projection_errors, refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.colmap import database as database_module
from matchkernel.colmap.database import MatchCounts, count_matches, read_database_keypoints
from matchkernel.colmap.model import CAMERA_MODELS, NO_POINT, read_reconstruction
from matchkernel.errors import FileError


def write_binary(folder, rigs=False):
    """A model of two cameras, two images and two points, byte by byte after COLMAP's documentation."""
    folder.mkdir(exist_ok=True)
    cameras = struct.pack("<Q", 2)
    cameras += struct.pack("<iiQQ3d", 1, 0, 640, 480, 500.0, 320.0, 240.0)  # SIMPLE_PINHOLE
    cameras += struct.pack("<iiQQ8d", 7, 4, 800, 600, 700.0, 710.0, 400.0, 300.0, 0.1, -0.02, 0.001, 0.002)  # OPENCV
    (folder / "cameras.bin").write_bytes(cameras)
    images = struct.pack("<Q", 2)
    for number, camera, name, points in (
        (1, 1, b"a.jpg", ((10.5, 20.5, 5), (30.0, 40.0, -1))),
        (4, 7, b"sub/b.png", ()),
    ):
        images += struct.pack("<i7di", number, 1.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3, camera) + name + b"\0"
        images += struct.pack("<Q", len(points)) + b"".join(struct.pack("<ddq", *point) for point in points)
    (folder / "images.bin").write_bytes(images)
    points = struct.pack("<Q", 2)
    for number, track in ((5, ((1, 0),)), (9, ())):
        points += struct.pack("<Q3d3BdQ", number, 1.0, 2.0, 3.0, 9, 8, 7, 0.5, len(track))
        points += b"".join(struct.pack("<ii", *entry) for entry in track)
    (folder / "points3D.bin").write_bytes(points)
    if rigs:  # newer versions put these beside; written here from the published description, not by COLMAP
        (folder / "rigs.bin").write_bytes(struct.pack("<QIIii", 1, 1, 1, 0, 1))
        (folder / "frames.bin").write_bytes(struct.pack("<Q", 0))
    return folder


TEXT = {
    "cameras.txt": "# Camera list\n1 SIMPLE_PINHOLE 640 480 500 320 240\n"
    "7 OPENCV 800 600 700 710 400 300 .1 -.02 .001 .002\n",
    "images.txt": "# Image list\n1 1 0 0 0 .1 .2 .3 1 a.jpg\n10.5 20.5 5 30 40 -1\n4 1 0 0 0 .1 .2 .3 7 sub/b.png\n\n",
    "points3D.txt": "# Points\n5 1 2 3 9 8 7 .5 1 0\n9 1 2 3 9 8 7 .5\n",
}


KINDS = {"cameras": "cameras", "images": "images", "points3D": "points"}


def write_text(folder, counted=False):
    """The same model as text; newer versions write the number of entries into a comment."""
    folder.mkdir(exist_ok=True)
    for name, content in TEXT.items():
        count = f"# Number of {KINDS[Path(name).stem]}: 2, mean: 1\n" if counted else ""
        (folder / name).write_text(count + content)
    return folder


@pytest.mark.parametrize("is_newer", [False, True])
@pytest.mark.parametrize("write", [write_binary, write_text])
def test_both_formats_give_the_same_model(write, is_newer, tmp_path):
    model = read_reconstruction(write(tmp_path / "sparse", is_newer))
    assert {number: (camera.model, camera.width) for number, camera in model.cameras.items()} == {
        1: ("SIMPLE_PINHOLE", 640),
        7: ("OPENCV", 800),
    }
    assert model.cameras[7].parameters.tolist() == [700, 710, 400, 300, 0.1, -0.02, 0.001, 0.002]
    first, second = model.images[1], model.images[4]
    assert (first.name, second.name, second.camera) == ("a.jpg", "sub/b.png", 7)
    assert np.array_equal(first.R, np.eye(3))
    assert first.t.tolist() == [0.1, 0.2, 0.3]
    assert first.places.tolist() == [[10.5, 20.5], [30, 40]]
    assert first.points.tolist() == [5, NO_POINT]
    assert second.places.shape == (0, 2)
    assert {number: point.tolist() for number, point in model.points.items()} == {5: [1, 2, 3], 9: [1, 2, 3]}


def test_a_model_written_by_a_newer_colmap(golden, tmp_path):
    """Version 4.2.1: one camera of each model (ids 0 to 17), one image each, rigs and frames beside them."""
    written = json.loads((golden / "colmap_4.2" / "projections.json").read_text())["cameras"]
    for suffix in ("bin", "txt"):
        folder = tmp_path / suffix
        folder.mkdir()
        for path in (golden / "colmap_4.2").glob(f"*.{suffix}"):
            shutil.copy(path, folder)
        model = read_reconstruction(folder)
        assert {camera.model: camera.parameters.tolist() for camera in model.cameras.values()} == {
            name: camera["parameters"] for name, camera in written.items()
        }
        assert [image.name for image in model.images.values()] == [f"{name.lower()}.png" for name in written]
        assert model.images[3].t.tolist() == pytest.approx([0.3, -0.2, 0.3])
        assert [image.points.tolist() for image in model.images.values()] == [[1], [1], *[[NO_POINT]] * 16]
        assert model.points[1].tolist() == [1, 2, 3]


def test_a_real_model_projects_onto_its_keypoints(photos_cc0):
    """0.6 pixels are what bundle adjustment leaves."""
    errors = projection_errors(photos_cc0)
    assert len(errors) == 3 * 300 - 60
    assert np.median(errors) < 0.6


@needs_colmap
def test_colmap_itself_converts_between_the_formats(tmp_path):
    """Text written here, read and written as binary by the real program, reads back the same."""
    write_text(tmp_path / "text")
    (tmp_path / "binary").mkdir()
    folders = ["--input_path", tmp_path / "text", "--output_path", tmp_path / "binary"]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = ["colmap", "model_converter", *folders, "--output_type", "BIN"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    ours, theirs = read_reconstruction(tmp_path / "text"), read_reconstruction(tmp_path / "binary")
    assert ours.cameras.keys() == theirs.cameras.keys()
    assert theirs.images[1].points.tolist() == [5, NO_POINT]
    assert np.allclose(theirs.images[1].t, ours.images[1].t)


@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_a_binary_file_that_is_cut_at_any_byte_too_long_or_claims_too_much_is_refused(name, tmp_path):
    folder = write_binary(tmp_path / "sparse")
    content = (folder / name).read_bytes()
    cut = [content[:length] for length in range(len(content))]
    for broken in (*cut, content + b"\0", struct.pack("<Q", 10**12) + content[8:]):
        (folder / name).write_bytes(broken)
        with refuses(FileError):
            read_reconstruction(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("cameras.txt", "OPENCV", "TELESCOPE"),
        ("cameras.txt", "640", "wide"),
        ("cameras.txt", "640", "0"),
        ("images.txt", "10.5", "ten"),
        ("images.txt", ".3 1 a", ".3 2 a"),  # a camera that is not listed
        ("images.txt", "1 1 0 0 0", "1 0 0 0 0"),  # no rotation
        ("points3D.txt", "5 1 2", "5 nan 2"),
        *((f"{name}.txt", "#", f"# Number of {what}: 3, mean: 1\n#") for name, what in KINDS.items()),
        *((f"{name}.txt", None, None) for name in KINDS),
    ],
)
def test_text_files_that_are_refused(name, old, new, tmp_path):
    path = write_text(tmp_path / "sparse") / name
    if old is None:
        path.unlink()
    else:
        path.write_text(TEXT[name].replace(old, new, 1))
    with refuses(FileError):
        read_reconstruction(tmp_path / "sparse")


def write_database(path, columns=6, rows=3, data=None):
    """The two tables that are read, as every version of COLMAP has them."""
    values = np.arange(rows * columns, dtype="<f4")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE images (image_id INTEGER, name TEXT, camera_id INTEGER)")
        connection.execute("CREATE TABLE keypoints (image_id INTEGER, rows INTEGER, cols INTEGER, data BLOB)")
        connection.execute("INSERT INTO images VALUES (1, 'a.jpg', 1)")
        connection.execute(
            "INSERT INTO keypoints VALUES (1, ?, ?, ?)", (rows, columns, values.tobytes() if data is None else data)
        )
    return path


@pytest.mark.parametrize("columns", [2, 4, 6])
def test_keypoints_of_every_width_are_read_from_the_newer_schema_too(columns, tmp_path):
    """Tables and a column that newer versions add (from their published schema) change nothing."""
    path = write_database(tmp_path / "database.db", columns)
    expected = np.arange(3 * columns).reshape(3, columns)
    assert np.array_equal(read_database_keypoints(path)["a.jpg"], expected)
    descriptors = "descriptors (image_id INTEGER, type INTEGER, rows INTEGER, cols INTEGER, data BLOB)"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for table in ("rigs (rig_id INTEGER)", "frames (frame_id INTEGER)", "pose_priors (id INTEGER)", descriptors):
            connection.execute(f"CREATE TABLE {table}")
    assert np.array_equal(read_database_keypoints(path)["a.jpg"], expected)


def test_matches_are_counted_before_and_after_verification(tmp_path):
    """A pair that was not verified has a row of 0 inliers (so COLMAP 3.8 writes it), and is not counted."""
    path = write_database(tmp_path / "database.db")
    with refuses(FileError):
        count_matches(path)  # such tables are not in it yet
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for table, rows in (("matches", (21, 30, 0)), ("two_view_geometries", (15, 0))):
            connection.execute(f"CREATE TABLE {table} (pair_id INTEGER, rows INTEGER)")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", enumerate(rows))
    assert count_matches(path) == MatchCounts(pairs=2, matches=51, verified=1, inliers=15)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM matches")
        connection.execute("DELETE FROM two_view_geometries")
    assert count_matches(path) == MatchCounts(0, 0, 0, 0)


@pytest.mark.parametrize("content", [{"columns": 5}, {"data": b"abc"}, {"data": ""}, b"no database", None])
def test_databases_that_are_refused(content, tmp_path):
    path = tmp_path / "database.db"
    if isinstance(content, bytes):
        path.write_bytes(20 * content)
    elif content:
        write_database(path, **content)
    with refuses(FileError):
        read_database_keypoints(path)


@given(data=st.data())
def test_damaged_models_and_any_camera_give_a_model_or_our_error(tmp_path, data):
    folder = tmp_path / "sparse"
    shutil.rmtree(folder, ignore_errors=True)
    if data.draw(st.booleans()):
        write_text(folder)
    else:
        write_binary(folder)
        camera = struct.pack("<QiiQQ", 1, 1, data.draw(st.integers(-3, 20)), 640, 480)
        if data.draw(st.booleans()):
            (folder / "cameras.bin").write_bytes(camera + data.draw(st.binary(max_size=160)))
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    path.write_bytes(damaged(data, path.read_bytes()))
    with contextlib.suppress(FileError):
        for camera in read_reconstruction(folder).cameras.values():
            assert camera.model in CAMERA_MODELS


def test_a_database_that_another_process_is_writing_is_read_with_its_log_or_not_at_all(
    photos_cc0, tmp_path, monkeypatch
):
    database = tmp_path / "database.db"
    shutil.copy(photos_cc0 / "database.db", database)
    before = len(read_database_keypoints(database))
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with refuses(FileError):
            read_database_keypoints(database)
        connection.rollback()
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("DELETE FROM keypoints")
        connection.commit()
        assert len(read_database_keypoints(database)) == 0 != before
        shutil.copytree(tmp_path, tmp_path / "copied")  # with the log, but not with the index that it needs
        (tmp_path / "copied" / "database.db-shm").unlink()
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK)
    rows = database_module._rows
    failing = iter([sqlite3.OperationalError("unable to open database file")] * 2)

    def cannot_be_written(path, mode, query):
        if "immutable" not in mode and (error := next(failing, None)):
            raise error
        return rows(path, mode, query)

    monkeypatch.setattr(database_module, "_rows", cannot_be_written)
    with refuses(FileError):
        read_database_keypoints(tmp_path / "copied" / "database.db")
    for log in (tmp_path / "copied").glob("database.db-*"):
        log.unlink()
    assert len(read_database_keypoints(tmp_path / "copied" / "database.db")) == before  # a read-only disk, at rest
