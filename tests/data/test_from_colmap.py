"""Patch sets from a reconstruction: a rendered scene whose truth is known."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import projection_errors, refuses
from made_scene import PLANES, TEXTURE, measure_label_noise
from PIL import Image
from rendering import Plane, intersect

from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import read_scene
from matchkernel.data.from_colmap import CutSettings, build_from_colmap, build_parts
from matchkernel.data.phototourism import read_mosaic, read_phototourism
from matchkernel.data.positives import Tolerances, find_geometric_positives
from matchkernel.data.split import PARTS
from matchkernel.data.summary import verify
from matchkernel.errors import ArgumentError, FileError

QUICK = CutSettings(pairs=300)
TRACKS = CutSettings(geometric=False, pairs=0, mosaics=False)


def cut(folder, target, settings=QUICK, **options):
    return build_from_colmap(folder / "images", folder / "sparse", folder / "database.db", target, settings, **options)


@pytest.fixture(scope="module")
def patch_set(rendered, tmp_path_factory):
    return cut(rendered, tmp_path_factory.mktemp("set") / "planes")


@pytest.fixture(scope="module")
def tracks(rendered, tmp_path_factory):
    """The tracked patches only, which takes a third of the time."""
    return cut(rendered, tmp_path_factory.mktemp("set") / "tracks", TRACKS)


@pytest.fixture
def copied(rendered, tmp_path):
    """A copy of the rendered scene to break."""
    return Path(shutil.copytree(rendered, tmp_path / "scene"))


def correlation(a, b):
    a, b = (values.astype(float) - values.mean() for values in (a, b))
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def test_counts_add_up(patch_set, rendered):
    counts, chosen = patch_set.manifest["counts"], patch_set.manifest["selection"]
    assert counts["patches"] == len(patch_set) == chosen["from tracks"] + chosen["from geometry"]
    assert chosen["from geometry"] == patch_set.columns["geometric"].sum() > 50
    assert np.array_equal(np.unique(patch_set.labels), np.arange(counts["points"]))
    observations = (rendered / "sparse" / "images.txt").read_text().splitlines()[1::2]
    tracked = sum(word != "-1" for line in observations for word in line.split()[2::3])
    assert chosen["tracked keypoints"] == tracked
    assert tracked == chosen["from tracks"] + sum(chosen["tracked keypoints left out"].values())
    assert min(chosen["tracked keypoints left out"].values()) >= 0
    _, sizes = np.unique(patch_set.labels, return_counts=True)
    assert sizes.min() >= 2
    assert chosen["photos"] == 6


def test_patches_of_a_point_look_alike(patch_set):
    """Frames, orientation and half pixels are right: patches of a track correlate, others do not."""
    tracked = ~np.asarray(patch_set.columns["geometric"])
    same, other = [], []
    for members in patch_set.groups().members():
        group = [k for k in members if tracked[k]]
        same += [correlation(patch_set.patches[group[0]], patch_set.patches[k]) for k in group[1:]]
        if group:
            other.append(correlation(patch_set.patches[group[0]], patch_set.patches[(group[0] + 500) % len(patch_set)]))
    assert np.median(same) > 0.9
    assert np.median(other) < 0.4


def test_a_scene_has_the_name_of_its_folder(patch_set, rendered, tmp_path):
    """Two scenes beside each other have two names: sets of one are not skipped as those of the other."""
    photos = shutil.copytree(rendered / "images", tmp_path / "church")
    flat = build_from_colmap(photos, rendered / "sparse", rendered / "database.db", tmp_path / "set", TRACKS)
    assert [built.manifest["source"]["name"] for built in (patch_set, flat)] == [rendered.name, "church"]


def test_half_a_pixel_is_respected(rendered):
    """The 3-D point of a keypoint, projected with COLMAP's origin, is where the frame is."""
    scene = read_scene(rendered / "images", rendered / "sparse", rendered / "database.db")
    offsets = []
    for photo in scene.photos:
        tracked = photo.points != NO_POINT
        in_camera = scene.points[photo.points[tracked]] @ photo.pose.R.T + photo.pose.t
        f, cx, cy = photo.camera.parameters[[0, 2, 3]]
        offsets.append(in_camera[:, :2] / in_camera[:, 2:] * f + (cx, cy) - 0.5 - photo.frames.centers[tracked])
    assert np.abs(np.median(np.concatenate(offsets), axis=0)).max() < 0.05  # a forgotten half pixel would be 0.5
    assert np.median(projection_errors(rendered)) < 0.5  # the keypoints of the database have COLMAP's own origin


def test_geometric_positives_are_right(rendered):
    """Label noise against exact truth: the share of found keypoints whose true place is off by a quarter patch."""
    noise = measure_label_noise(rendered)
    assert noise.found > 100
    assert noise.wrong_share < 0.02
    assert noise.median_offset < 0.05
    assert noise.recall > 0.5  # of the keypoints that were left out of their tracks on purpose


def hidden_points_found(folder, tolerances):
    """How many keypoints were given to a point that something stands before, by the exact planes of the scene."""
    scene = read_scene(folder / "images", folder / "sparse", folder / "database.db")
    planes = [Plane(*shape, np.zeros((TEXTURE, TEXTURE), np.float32)) for shape in PLANES]
    count = 0
    for photo, points in zip(scene.photos, find_geometric_positives(scene, tolerances), strict=True):
        centre = -photo.pose.R.T @ photo.pose.t
        X = scene.points[points[points != NO_POINT]]
        first, _ = intersect(planes, centre, X - centre)
        count += int((np.linalg.norm(first - centre, axis=1) < 0.95 * np.linalg.norm(X - centre, axis=1)).sum())
    return count


def test_visibility_is_what_keeps_hidden_points_out(rendered):
    """Where nothing else is looked at, points would be found through the board that hides them."""
    loose = Tolerances(pixels=6, share=1, octaves=9, degrees=180, view_degrees=180)
    assert hidden_points_found(rendered, replace(loose, depth=1e9)) >= 10
    assert hidden_points_found(rendered, loose) <= 2
    assert hidden_points_found(rendered, Tolerances()) == 0


def test_tracked_keypoints_stay_with_their_point(rendered):
    scene = read_scene(rendered / "images", rendered / "sparse", rendered / "database.db")
    for photo, found in zip(scene.photos, find_geometric_positives(scene), strict=True):
        assert (found[photo.points != NO_POINT] == NO_POINT).all()
        taken = found[found != NO_POINT]
        assert len(np.unique(taken)) == len(taken)
        assert not set(taken) & set(photo.points[photo.points != NO_POINT])


def test_without_geometry_only_tracks_are_cut(patch_set, tracks):
    # A point with one usable tracked patch is dropped here, and kept there if geometry finds it a second one.
    assert 0.95 < len(tracks) / patch_set.manifest["selection"]["from tracks"] <= 1
    assert not tracks.columns["geometric"].any()
    assert not tracks.pairs
    assert not list(tracks.folder.glob("*.png"))


def test_it_is_a_phototourism_folder_too(patch_set):
    verify(patch_set.folder)
    read = read_phototourism(patch_set.folder)
    assert np.array_equal(read.labels, patch_set.labels)
    assert np.array_equal(read_mosaic(read.mosaics[0]), patch_set.patches[:256])
    assert read.pairs.keys() == patch_set.pairs.keys()
    assert all(np.array_equal(pairs, patch_set.pairs[name]) for name, pairs in read.pairs.items())


def test_pairs_are_distinct_and_tracked_and_hard_negatives_look_alike(patch_set):
    likeness = {}
    for name, pairs in patch_set.pairs.items():
        same = patch_set.labels[pairs[:, 0]] == patch_set.labels[pairs[:, 1]]
        assert np.array_equal(same, pairs[:, 2].astype(bool))
        assert pairs[:, 2].sum() * 2 == len(pairs) == 600
        assert len(np.unique(np.sort(pairs[:, :2], 1), axis=0)) == len(pairs)
        assert (pairs[:, 0] != pairs[:, 1]).all()
        assert not patch_set.columns["geometric"][pairs[:, :2]].any()
        negative, photos = pairs[pairs[:, 2] == 0], patch_set.columns["photo"]
        kind = name.split("_")[0]
        if kind == "m50hard":
            assert (photos[negative[:, 0]] == photos[negative[:, 1]]).all()
        likeness[kind] = np.median([correlation(patch_set.patches[a], patch_set.patches[b]) for a, b, _ in negative])
    assert likeness["m50hard"] > likeness["m50"] + 0.1


def test_photos_of_half_the_size_give_nearly_the_same_patches(copied, tracks, tmp_path):
    """A rendered scene sampled at half the resolution: scaled frames, softer patches."""
    for path in (copied / "images").iterdir():
        with Image.open(path) as image:
            small = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
        small.save(path)
    halved, whole = cut(copied, tmp_path / "set", TRACKS), tracks
    assert halved.manifest["selection"]["photos"] == 6
    assert halved.columns["frame"].shape == whole.columns["frame"].shape
    assert np.allclose(halved.columns["frame"][:, 2:], whole.columns["frame"][:, 2:] / 2)
    # The centre of the first pixel of the small photo is the corner of four pixels of the large one: half a pixel.
    assert np.allclose(2 * halved.columns["frame"][:, :2] + 0.5, whole.columns["frame"][:, :2], atol=1e-3)
    same = [correlation(halved.patches[k], whole.patches[k]) for k in range(0, len(whole), 37)]
    assert np.median(same) > 0.95


def test_photos_and_points_that_cannot_be_used_are_left_out_and_counted(copied, tmp_path):
    images, points = copied / "images", copied / "sparse" / "points3D.txt"
    points.write_text("\n".join(points.read_text().splitlines()[10:]) + "\n")
    (images / "000.png").unlink()
    (images / "001.png").write_bytes((images / "001.png").read_bytes()[:2000])
    (images / "002.png").write_text("no image")
    with Image.open(images / "003.png") as opened:
        opened.resize((400, 200)).save(images / "003.png")
    built = cut(copied, tmp_path / "set", TRACKS)
    chosen, left_out = (built.manifest["selection"][name] for name in ("from tracks", "tracked keypoints left out"))
    assert built.manifest["selection"]["photos left out"] == {
        "missing": 1,
        "cannot be read": 2,
        "of another shape than its camera": 1,
    }
    assert left_out["in a photo that is left out"] > 10
    assert left_out["of a 3-D point that is not in the model"] > 5
    assert built.manifest["selection"]["tracked keypoints"] == chosen + sum(left_out.values())
    assert built.manifest["source"]["photos"] == ["004.png", "005.png"]


def test_photos_of_any_camera_model_are_cut(copied, tmp_path, patch_set):
    """Patches need no projection. A panorama's photo only gets no geometric positives, and the manifest names it."""
    path = copied / "sparse" / "cameras.txt"
    lines = path.read_text().splitlines()
    lines[1] = "2 EQUIRECTANGULAR 400 300 400 300"
    lines[3] = f"4 EUCM 400 300 {' '.join(lines[3].split()[4:])} 0 1"  # a pinhole, written in another way
    path.write_text("\n".join(lines) + "\n")
    built = cut(copied, tmp_path / "set", CutSettings(pairs=50, mosaics=False))
    assert built.manifest["selection"]["photos without geometric positives"] == ["001.png"]
    assert built.manifest["selection"]["from tracks"] > 0.95 * patch_set.manifest["selection"]["from tracks"]
    found, before = (set_.columns["photo"][set_.columns["geometric"]] for set_ in (built, patch_set))
    assert (found == 1).sum() == 0 < (before == 1).sum()
    assert (found == 3).sum() > 0.5 * (before == 3).sum()
    assert {len(pairs) for pairs in built.pairs.values()} == {100}


def stored_keypoints(connection, image):
    """(N, 6) float32 of an image in a COLMAP database."""
    data = connection.execute("SELECT data FROM keypoints WHERE image_id = ?", (image,)).fetchone()[0]
    return np.frombuffer(data, "<f4").reshape(-1, 6)


def store_keypoints(connection, image, rows):
    values = (*rows.shape, rows.astype("<f4").tobytes(), image)
    connection.execute("UPDATE keypoints SET rows = ?, cols = ?, data = ? WHERE image_id = ?", values)


def test_keypoints_that_do_not_fit_are_left_out_and_counted(copied, tmp_path):
    with closing(sqlite3.connect(copied / "database.db")) as connection, connection:
        connection.execute("DELETE FROM keypoints WHERE image_id = 1")
        store_keypoints(connection, 2, stored_keypoints(connection, 2)[:, :2])
        store_keypoints(connection, 3, stored_keypoints(connection, 3)[1:])
        four = stored_keypoints(connection, 4)
        scale, angle = np.sqrt(np.abs(np.linalg.det(four[:, 2:].reshape(-1, 2, 2)))), np.arctan2(four[:, 4], four[:, 2])
        store_keypoints(connection, 4, np.column_stack([four[:, :2], scale, angle]))
    built = cut(copied, tmp_path / "set", TRACKS)
    assert built.manifest["selection"]["photos left out"] == {
        "with keypoints that are not the model's": 1,
        "with keypoints that have no scale (2 columns)": 1,
        "without keypoints in the database": 1,
    }
    assert built.manifest["source"]["photos"] == ["003.png", "004.png", "005.png"]  # 003 has keypoints of 4 columns


def test_scenes_with_nothing_to_cut_are_refused(copied, tmp_path):
    (copied / "sparse" / "points3D.txt").write_text("# none\n")
    with refuses(FileError):
        cut(copied, tmp_path / "set")
    shutil.rmtree(copied / "images")
    (copied / "images").mkdir()
    with refuses(FileError):
        cut(copied, tmp_path / "set")
    assert not list(tmp_path.glob("set*"))


def test_all_keypoints_from_another_database(copied, patch_set, tmp_path):
    """The model's own database has the tracked keypoints only; the rest comes from the other one."""
    shutil.copy(copied / "database.db", copied / "all.db")
    lines = (copied / "sparse" / "images.txt").read_text().splitlines()
    with closing(sqlite3.connect(copied / "database.db")) as connection, connection:
        for number in range(6):
            observed = np.array(lines[2 * number + 1].split()).reshape(-1, 3)
            is_tracked = observed[:, 2] != "-1"
            lines[2 * number + 1] = " ".join(observed[is_tracked].ravel())
            store_keypoints(connection, number + 1, stored_keypoints(connection, number + 1)[is_tracked])
    (copied / "sparse" / "images.txt").write_text("\n".join(lines) + "\n")
    settings = CutSettings(pairs=0, mosaics=False)
    alone = cut(copied, tmp_path / "alone", settings)
    assert alone.manifest["selection"]["from geometry"] == 0
    joined = cut(copied, tmp_path / "joined", settings, all_keypoints=copied / "all.db")
    assert joined.manifest["selection"]["from geometry"] == patch_set.manifest["selection"]["from geometry"]
    with closing(sqlite3.connect(copied / "all.db")) as connection, connection:
        connection.execute("UPDATE images SET name = 'of another scene ' || name")
    with refuses(FileError):
        cut(copied, tmp_path / "other", settings, all_keypoints=copied / "all.db")


def test_regions_of_too_few_pixels_are_left_out(rendered, patch_set, tmp_path):
    def sides(built):
        shapes = built.columns["frame"][:, 2:].reshape(-1, 2, 2)
        return 2 * np.sqrt(np.abs(np.linalg.det(shapes)))

    least = float(np.median(sides(patch_set)))
    large = cut(rendered, tmp_path / "large", CutSettings(pairs=0, mosaics=False, least_side=least))
    assert sides(large).min() >= least - 1e-3
    assert 0 < len(large) < len(patch_set)
    assert np.bincount(large.labels).min() >= 2  # a point with one region left has no pair


SETTINGS = CutSettings(geometric=False, pairs=50, mosaics=False)


def parts_of(scene, target, **options):
    return build_parts(scene / "images", scene / "sparse", scene / "database.db", target, SETTINGS, **options)


def found_again(part, whole):
    """(K,) rows of the whole set: the patch of the same photo whose region is nearest to that of each patch."""
    rows = []
    for photo, frame in zip(part.columns["photo"], part.columns["frame"], strict=True):
        name = part.manifest["source"]["photos"][photo]
        there = np.flatnonzero(whole.columns["photo"] == whole.manifest["source"]["photos"].index(name))
        rows.append(there[np.linalg.norm(whole.columns["frame"][there] - frame, axis=1).argmin()])
    return np.array(rows)


@pytest.fixture(scope="module")
def parts(rendered, tmp_path_factory):
    counts = []
    sets = parts_of(rendered, tmp_path_factory.mktemp("parts") / "sets", name="church", counted=counts.append)
    return sets, counts[0]


def test_the_parts_are_disjoint_pieces_of_the_whole_set(parts, rendered, tmp_path):
    sets, counts = parts
    whole = build_from_colmap(
        rendered / "images", rendered / "sparse", rendered / "database.db", tmp_path / "whole", SETTINGS
    )
    seen, points = set(), set()
    assert list(sets) == list(PARTS)
    assert {part.manifest["source"]["name"] for part in sets.values()} == {"church"}
    for name, part in sets.items():
        rows = found_again(part, whole)
        same = (part.patches == whole.patches[rows]).all((1, 2))
        moved = np.linalg.norm((part.columns["frame"] - whole.columns["frame"][rows])[:, :2], axis=1)
        if name == "training":
            assert same.all()
            assert not moved.any()
        else:  # regions of validation and test are moved, by less than their size
            assert same.mean() < 0.2
            assert (moved < np.linalg.norm(whole.columns["frame"][rows, 2:], axis=1)).all()
        theirs = set(whole.labels[rows].tolist())
        assert len(theirs) == len(np.unique(part.labels)) == counts[name].points
        assert len(part) == counts[name].patches > 0
        photos = {part.manifest["source"]["photos"][photo] for photo in part.columns["photo"]}
        assert not seen & photos
        assert not points & theirs
        seen |= photos
        points |= theirs
        assert any(key.startswith("m50hard") for key in part.pairs)
        left_out = part.manifest["selection"]["tracked keypoints left out"]
        assert part.manifest["selection"]["tracked keypoints"] == len(part) + sum(left_out.values())
        verify(part.folder)


def test_parts_that_are_there_are_kept_and_a_refusal_leaves_nothing(parts, rendered, tmp_path):
    sets, _ = parts
    before = {name: (part.folder / "manifest.json").stat().st_mtime_ns for name, part in sets.items()}
    parts_of(rendered, sets["test"].folder.parent)
    assert before == {name: (part.folder / "manifest.json").stat().st_mtime_ns for name, part in sets.items()}

    def refuse(counts):
        raise ArgumentError("too little")

    with refuses(ArgumentError):
        parts_of(rendered, tmp_path / "none", counted=refuse)
    assert not (tmp_path / "none").exists()
