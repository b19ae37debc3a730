"""The folder that trainers of Gaussian splats read, read as their loaders do; the point cloud and the picture."""

import io
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers import on_each_colmap, refuses, tree
from made_collection import SETTINGS
from PIL import Image

from matchkernel.collection.reconstruct import reconstruct
from matchkernel.collection.undistorted import undistort_workspace
from matchkernel.colmap.converted import flat_names
from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.model import read_reconstruction, rename_images
from matchkernel.colmap.picture import draw_model
from matchkernel.colmap.points import point_cloud
from matchkernel.errors import FileError, WorkError
from matchkernel.storage.folders import locked_for_building

NAMES = ["left/a.png", "right/a.png", "b c.png", "été.v2.PNG", "d.jpg", "d.png"]


@pytest.fixture(scope="module")
def model(scene, tmp_path_factory, each_colmap):
    """A workspace of photos in folders, of equal names, with spaces, accents and dots."""
    folder = tmp_path_factory.mktemp("splat")
    for number, name in enumerate(NAMES):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".jpg"):
            with Image.open(scene / f"{number:03}.png") as image:
                image.save(path, quality=95)
        else:
            shutil.copy(scene / f"{number:03}.png", path)
    progress = []
    how = {"undistort": True, "progress": lambda done, total: progress.append((done, total))}
    summary = reconstruct(folder / "photos", folder / "model", "rootsift", SETTINGS, **how)
    assert summary.registered == 6
    return folder / "model", progress


class Fields:
    """Numbers and names of a binary file of COLMAP, read one after the other as its documentation says."""

    def __init__(self, path: Path) -> None:
        self.file = io.BytesIO(path.read_bytes())

    def __call__(self, layout: str) -> tuple:
        return struct.unpack(f"<{layout}", self.file.read(struct.calcsize(f"<{layout}")))

    def name(self) -> str:
        letters = b""
        while (letter := self.file.read(1)) != b"\0":
            letters += letter
        return letters.decode("ascii")


def read_as_trainers_do(folder: Path) -> tuple[dict, dict, int]:
    """Cameras, images and the number of points of sparse/0."""
    cameras, images = {}, {}
    fields = Fields(folder / "cameras.bin")
    for _ in range(fields("Q")[0]):
        number, kind, width, height = fields("iiQQ")
        assert kind == 1  # PINHOLE
        cameras[number] = width, height, fields("4d")
    fields = Fields(folder / "images.bin")
    for _ in range(fields("Q")[0]):
        _, *pose, camera = fields("i7di")
        name = fields.name()
        images[name] = camera, pose
        fields(f"{3 * fields('Q')[0] * 8}s")
    fields = Fields(folder / "points3D.bin")
    (count,) = fields("Q")
    for _ in range(count):
        fields("Q3d3Bd")
        fields(f"{2 * fields('Q')[0]}i")
    assert not fields.file.read()
    return cameras, images, count


def read_ply(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Positions and colours of a binary PLY of the layout that Inria's trainer reads."""
    head, _, body = path.read_bytes().partition(b"end_header\n")
    lines = head.decode("ascii").splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    kinds = {"float": "<f4", "uchar": "u1"}
    dtype = np.dtype([(line.split()[2], kinds[line.split()[1]]) for line in lines[3:]])
    assert dtype.names == ("x", "y", "z", "nx", "ny", "nz", "red", "green", "blue")
    rows = np.frombuffer(body, dtype)
    assert len(rows) == int(lines[2].split()[2])
    return np.column_stack([rows[n] for n in "xyz"]), np.column_stack([rows[n] for n in ("red", "green", "blue")])


@on_each_colmap
def test_trainers_read_the_folder(model):
    """Pinhole cameras, a file for each image as large as its camera, names that no trainer confuses."""
    folder = model[0] / "undistorted"
    cameras, images, count = read_as_trainers_do(folder / "sparse" / "0")
    assert sorted(images) == sorted(path.name for path in (folder / "images").iterdir())
    assert sorted(images) == ["_t_v2.png", "b_c.png", "d.jpg", "d_2.png", "left_a.png", "right_a.png"]
    assert len({name.split(".")[0] for name in images}) == 6
    for name, (camera, pose) in images.items():
        with Image.open(folder / "images" / name) as image:
            assert image.size == cameras[camera][:2]
            assert image.format == {"jpg": "JPEG", "png": "PNG"}[name[-3:]]
            assert image.mode == "RGB"  # gsplat takes the first three of the last axis, of gray photos too
        assert np.linalg.norm(pose[:4]) == pytest.approx(1)
    places, colours = read_ply(folder / "sparse" / "0" / "points3D.ply")
    assert len(places) == count > 200
    assert np.ptp(colours.astype(int), axis=0).min() > 100


@on_each_colmap
def test_points_project_into_the_undistorted_photos_where_their_keypoints_were(model):
    """With the pinhole cameras alone, to about the error of the model: the photos fit their cameras."""
    sparse = model[0] / "undistorted" / "sparse" / "0"
    undistorted, errors = read_reconstruction(sparse), []
    for image in undistorted.images.values():
        fx, fy, cx, cy = undistorted.cameras[image.camera].parameters
        seen = image.points >= 0
        X = np.array([undistorted.points[k] for k in image.points[seen].tolist()]) @ image.R.T + image.t
        projected = X[:, :2] / X[:, 2:] * [fx, fy] + [cx, cy]
        errors.append(np.linalg.norm(projected - image.places[seen], axis=1))
    assert np.median(np.concatenate(errors)) < 0.5


@on_each_colmap
def test_the_public_reader_of_gsplat_reads_the_folder(model):
    pycolmap = pytest.importorskip("pycolmap")
    read = pycolmap.Reconstruction(model[0] / "undistorted" / "sparse" / "0")
    assert read.num_reg_images() == 6
    assert all(image.cam_from_world().matrix().shape == (3, 4) for image in read.images.values())


@on_each_colmap
def test_the_workspace_has_a_point_cloud_a_picture_and_no_paths_that_are_gone(model):
    folder = model[0]
    places, colours = read_ply(folder / "points.ply")
    expected = point_cloud(folder / "sparse")
    np.testing.assert_allclose(places, expected[0], rtol=1e-5)
    np.testing.assert_array_equal(colours, expected[1])
    picture = draw_model(folder / "sparse", 300, 200)
    assert picture.shape == (200, 300, 3)
    assert (picture[..., 0].astype(int) - picture[..., 2] > 100).sum() > 100  # the cameras, in orange
    with Image.open(folder / "model.png") as image:
        assert image.size == (1200, 800)
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".log", ".png", ".jpg", ".npz"):
            assert b"model.part" not in path.read_bytes(), path


@on_each_colmap
def test_the_mapper_reports_every_photo_that_it_places(model):
    """The last (k, 6) before undistortion grow to 6."""
    assert {(done, 6) for done in (3, 4, 5, 6)} <= set(model[1])


@on_each_colmap
def test_undistorting_later_does_only_that(workspace, scene, tmp_path):
    target = Path(shutil.copytree(workspace[0], tmp_path / "ws"))
    before = (target / "summary.json").stat().st_mtime_ns
    said = []
    for _ in range(2):
        reconstruct(scene, target, "rootsift", SETTINGS, undistort=True, say=said.append)
    assert (target / "summary.json").stat().st_mtime_ns == before
    assert len(list((target / "undistorted" / "images").iterdir())) == 6
    assert said.count(f"{target / 'undistorted'}: is there already") == 1


@on_each_colmap
def test_photos_that_were_moved_are_undistorted_all_or_the_missing_are_named(scene, tmp_path):
    """pycolmap does not read WebP: the workspace has its JPEG, and links to where the others were."""
    images = shutil.copytree(scene, tmp_path / "images")
    with Image.open(images / "000.png") as image:
        image.save(images / "000.webp", lossless=True)
    (images / "000.png").unlink()
    reconstruct(images, tmp_path / "ws", "rootsift", SETTINGS)
    moved = images.rename(tmp_path / "moved")
    reconstruct(moved, tmp_path / "ws", "rootsift", SETTINGS, undistort=True)
    assert len(list((tmp_path / "ws" / "undistorted" / "images").iterdir())) == 6
    shutil.rmtree(tmp_path / "ws" / "undistorted")
    (moved / "001.png").unlink()
    before = sorted((tmp_path / "ws").iterdir())
    with pytest.raises(WorkError, match=r"001\.png"):
        undistort_workspace(moved, tmp_path / "ws", find_colmap(), print, lambda done, total: None)
    assert sorted((tmp_path / "ws").iterdir()) == before


@on_each_colmap
def test_undistorted_photos_go_with_their_model_unless_a_trainer_has_written_there(workspace, scene, tmp_path):
    ws, images, said = shutil.copytree(workspace[0], tmp_path / "ws"), shutil.copytree(scene, tmp_path / "images"), []
    shutil.copytree(ws / "sparse", ws / "undistorted" / "sparse" / "0")
    (images / "005.png").unlink()
    reconstruct(images, ws, "rootsift", SETTINGS, say=said.append)
    assert not (ws / "undistorted").exists()
    for name in ("undistorted/result.ply", "undistorted.old1/sparse/0/result.ply"):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).touch()
    shutil.copytree(ws / "sparse", ws / "undistorted" / "sparse" / "0")
    shutil.copy(scene / "005.png", images)
    reconstruct(images, ws, "rootsift", SETTINGS, say=said.append)
    assert not (ws / "undistorted").exists()
    assert (ws / "undistorted.old2" / "result.ply").exists()
    assert sum(line.startswith(str(ws / "undistorted")) for line in said) == 2


def test_why_undistortion_failed_stays_in_the_workspace(photos_cc0, tmp_path):
    ws, program = tmp_path / "ws", tmp_path / "colmap"
    shutil.copytree(photos_cc0 / "sparse", ws / "sparse")
    program.write_text("#!/bin/sh\necho it broke\nexit 3\n")
    program.chmod(0o755)
    log = ws / "image_undistorter.log"
    with pytest.raises(WorkError, match=re.escape(f"(full log: {log})")):
        undistort_workspace(photos_cc0 / "images", ws, (str(program),), print, lambda done, total: None)
    assert log.read_text() == "it broke\n"
    assert sorted(path.name for path in ws.iterdir()) == ["image_undistorter.log", "sparse"]


@on_each_colmap
def test_what_a_killed_undistortion_left_is_removed_by_the_next_run(workspace, scene, tmp_path):
    ws, images = shutil.copytree(workspace[0], tmp_path / "ws"), shutil.copytree(scene, tmp_path / "images")
    (images / "005.png").unlink()  # something to do
    left = ws / f".undistorted.1.{2**22 + 1}.part"  # of a process that Linux cannot have
    left.mkdir()
    reconstruct(images, ws, "rootsift", SETTINGS)
    assert not left.exists()


@on_each_colmap
def test_one_process_at_a_time_undistorts(workspace, scene, tmp_path):
    ws = shutil.copytree(workspace[0], tmp_path / "ws")
    (tmp_path / "ws.part").mkdir()  # of one that was killed
    with locked_for_building(ws), refuses(FileError):
        undistort_workspace(scene, ws, find_colmap(), print, lambda done, total: None)
    assert [path.name for path in tmp_path.iterdir()] == ["ws"]
    assert tree(ws) == tree(workspace[0])


def test_names_differ_even_where_case_does_not_count():
    named = flat_names(["A.png", "a.jpg", "x/a.png", "x_a.jpg", "日本.jpg", "中.jpg"])
    stems = [new.partition(".")[0].lower() for new in named.values()]
    assert len(set(stems)) == 6
    assert all(new.isascii() and new.count(".") == 1 and "/" not in new for new in named.values())


def test_images_that_are_cut_cannot_be_renamed(photos_cc0, tmp_path):
    source, names = photos_cc0 / "sparse" / "images.bin", {f"00{k}.jpg": f"new {k}.jpg" for k in (5, 8, 9)}
    copied = shutil.copytree(photos_cc0 / "sparse", tmp_path / "sparse")
    rename_images(source, copied / "images.bin", names)
    then, now = read_reconstruction(photos_cc0 / "sparse"), read_reconstruction(copied)
    assert [image.name for image in now.images.values()] == [names[image.name] for image in then.images.values()]
    assert all((now.images[k].places == then.images[k].places).all() for k in then.images)
    (tmp_path / "cut.bin").write_bytes(source.read_bytes()[:5000])
    with refuses(FileError):
        rename_images(tmp_path / "cut.bin", copied / "images.bin", names)
