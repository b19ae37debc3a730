import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import refuses

from matchkernel.collection import pairs_file
from matchkernel.errors import ArgumentError, FileError, MissingExtraError
from matchkernel.geometry.frames import Frames
from matchkernel.photos import files, hloc
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features
from matchkernel.photos.files import (
    PairMatches,
    append_features,
    image_names,
    read_features,
    read_matches,
    write_features,
    write_matches,
)


def some_features(K=50, seed=0, model="dual", magnification=6.0):
    random = np.random.default_rng(seed)
    frames = Frames.turned_squares(
        random.uniform(0, 4000, (K, 2)), random.uniform(5, 200, K), random.uniform(-3.1, 3.1, K)
    )
    rows = random.normal(size=(K, 128))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = random.uniform(0, 1, K).astype(np.float32)
    settings = {"magnification": magnification, "detector": "made up"}
    return Features(frames, rows.astype(np.float32), scores, (4000, 3000), model, settings)


def hloc_reader(path, name):
    """What hloc's FeaturePairsDataset does with a group: every entry must become an array of numbers."""
    with h5py.File(path, "r") as file:
        return {key: np.asarray(value) for key, value in file[name].items()}


@pytest.mark.parametrize("K", [0, 1, 50])
def test_there_and_back(tmp_path, K):
    """float32: 4,000 px to 2e-4 px. Angles pass through degrees."""
    path, before = tmp_path / "features.h5", some_features(K)
    append_features(path, "db/day 1/a.jpg", before)
    after = read_features(path, "db/day 1/a.jpg")
    assert np.abs(after.keypoints - before.keypoints).max(initial=0) < 3e-4
    assert np.abs(after.frames.shapes - before.frames.shapes).max(initial=0) < 1e-3
    assert np.array_equal(after.descriptors, before.descriptors)
    assert np.array_equal(after.scores, before.scores)
    assert (after.image_size, after.model, after.settings) == (before.image_size, before.model, before.settings)
    assert after.descriptors.shape == (K, 128)


def test_the_layout_is_hlocs(tmp_path):
    path, features = tmp_path / "features.h5", some_features(7, magnification=3.0)
    append_features(path, "db/a.jpg", features)
    found = hloc_reader(path, "db/a.jpg")
    assert {key: value.shape for key, value in found.items()} == {
        "keypoints": (7, 2), "descriptors": (128, 7), "scores": (7,), "scales": (7,), "oris": (7,), "image_size": (2,)
    }  # fmt: skip
    assert found["keypoints"].dtype == found["descriptors"].dtype == np.float32
    assert found["scales"] == pytest.approx(features.frames.half_widths / 3.0, rel=1e-6)
    assert np.deg2rad(found["oris"]) == pytest.approx(features.frames.angles, abs=1e-5)
    assert found["image_size"].tolist() == [4000, 3000]
    with h5py.File(path, "r") as file:
        assert file["db/a.jpg/keypoints"].attrs["uncertainty"] == 1.0


def test_a_blob_is_where_it_was_drawn(tmp_path):
    """Drawn at (70, 52), found there in the file: hloc has our origin and adds its half pixel later (0.01 px)."""
    y, x = np.mgrid[:100, :140]
    image = np.round(30 + 200 * np.exp(-((x - 70) ** 2 + (y - 52) ** 2) / 50)).astype(np.uint8)
    append_features(tmp_path / "f.h5", "blob.png", extract(image, "rootsift", keypoints=1))
    assert hloc_reader(tmp_path / "f.h5", "blob.png")["keypoints"][0].tolist() == pytest.approx([70, 52], abs=0.01)
    assert read_features(tmp_path / "f.h5", "blob.png").keypoints[0].tolist() == pytest.approx([70, 52], abs=0.01)


def test_regions_that_are_no_squares_keep_their_shape(tmp_path):
    features = some_features(5)
    stretched = Frames(features.frames.centers, features.frames.shapes @ np.array([[1.0, 0.4], [0.0, 0.6]]))
    append_features(tmp_path / "f.h5", "a.jpg", Features(stretched, *list(vars(features).values())[1:]))
    after = read_features(tmp_path / "f.h5", "a.jpg")
    assert after.frames.shapes == pytest.approx(stretched.shapes, rel=1e-6, abs=1e-5)
    assert hloc_reader(tmp_path / "f.h5", "a.jpg")["shapes"].shape == (5, 2, 2)


def test_the_paths_that_were_documented_before_still_import():
    assert (hloc.read_features, hloc.write_matches, pairs_file.write_pairs) == (
        read_features, write_matches, files.write_pairs
    )  # fmt: skip


def test_several_images_and_replacing_one(tmp_path):
    path = tmp_path / "features.h5"
    write_features(path, [("b.jpg", some_features(3)), ("a/c.jpg", some_features(4, 1)), ("a/b.jpg", some_features(0))])
    assert image_names(path) == ["a/b.jpg", "a/c.jpg", "b.jpg"]
    append_features(path, "b.jpg", some_features(9, 2))
    assert len(read_features(path, "b.jpg")) == 9
    assert len(read_features(path, "a/c.jpg")) == 4


def test_a_file_written_by_hloc_is_read(tmp_path):
    """float16, no facts of ours: hloc's own DoG extractor."""
    with h5py.File(tmp_path / "f.h5", "w", libver="latest") as file:
        group = file.create_group("a.jpg")
        group.create_dataset("keypoints", data=np.array([[10.0, 20.0], [30.5, 40.0]], np.float16))
        group.create_dataset("descriptors", data=np.full((128, 2), 0.0883883, np.float16))
        group.create_dataset("scales", data=np.array([2.0, 3.0], np.float16))
        group.create_dataset("oris", data=np.array([0.0, 90.0], np.float16))
        group.create_dataset("image_size", data=np.array([640, 480]))
    features = read_features(tmp_path / "f.h5", "a.jpg")
    assert features.keypoints.tolist() == [[10, 20], [30.5, 40]]
    assert features.frames.half_widths == pytest.approx([12, 18])
    assert features.frames.angles == pytest.approx([0, np.pi / 2], abs=1e-6)
    assert features.model == "unknown"
    with h5py.File(tmp_path / "f.h5", "a") as file:
        del file["a.jpg/scales"]
    with refuses(FileError):
        read_features(tmp_path / "f.h5", "a.jpg")


def hloc_get_matches(path, name0, name1):
    """As hloc/utils/io.py reads them, whatever whole number type they have."""
    with h5py.File(path, "r") as file:
        matches0 = np.asarray(file[f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"]["matches0"])
        scores0 = np.asarray(file[f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"]["matching_scores0"])
    rows = np.where(matches0 != -1)[0]
    return np.stack([rows, matches0[rows]], -1), scores0[rows]


def test_matches_there_and_back(tmp_path):
    path, pairs = tmp_path / "matches.h5", np.array([[0, 5], [3, 1], [4, 4]])
    write_matches(path, [(PairMatches(("db/a.jpg", "b.jpg"), pairs, np.array([0.5, 0.75, 1.0])), 6)])
    indices, scores = hloc_get_matches(path, "db/a.jpg", "b.jpg")
    assert indices.tolist() == pairs.tolist()
    assert scores.tolist() == [0.5, 0.75, 1.0]
    assert read_matches(path, "db/a.jpg", "b.jpg").indices.tolist() == pairs.tolist()
    assert read_matches(path, "b.jpg", "db/a.jpg").indices.tolist() == [[1, 3], [4, 4], [5, 0]]
    write_matches(path, [(PairMatches(("b.jpg", "db/a.jpg"), pairs[:1], np.ones(1)), 2)])  # the other way round
    assert read_matches(path, "b.jpg", "db/a.jpg").indices.tolist() == [[0, 5]]
    with h5py.File(path, "r") as file:
        assert file["b.jpg/db-a.jpg/matches0"].dtype == np.int16
        assert "db-a.jpg/b.jpg" not in file
    with refuses(FileError):
        read_matches(path, "a.jpg", "b.jpg")


@pytest.mark.parametrize(("scores", "wanted"), [([0.5, 0.75, 1], [[0, 2], [1, 1]]), ([0.5, 0.5, 1], [[0, 2], [1, 0]])])
def test_matches_that_are_not_mutual_read_the_other_way_round(tmp_path, scores, wanted):
    """Each row of the image named first once, in order, with its best match; of equal ones the first."""
    path, pairs = tmp_path / "matches.h5", np.array([[0, 1], [1, 1], [2, 0]])
    write_matches(path, [(PairMatches(("a", "b"), pairs, np.array(scores)), 3)])
    turned = read_matches(path, "b", "a")
    assert turned.indices.tolist() == wanted
    assert turned.scores.tolist() == [scores[row] for _, row in wanted]
    write_matches(path, [(turned, 2)])
    assert read_matches(path, "b", "a").indices.tolist() == wanted


def test_more_keypoints_than_int16_counts(tmp_path):
    """hloc's writer would make -25,536 of 40,000; int32 passes through its reader unharmed."""
    path, pairs = tmp_path / "matches.h5", np.array([[1, 40_000], [32_768, 32_767]])
    write_matches(path, [(PairMatches(("a", "b"), pairs, np.ones(2)), 50_000)])
    assert hloc_get_matches(path, "a", "b")[0].tolist() == pairs.tolist()
    assert read_matches(path, "a", "b").indices.tolist() == pairs.tolist()


def test_no_matches(tmp_path):
    write_matches(tmp_path / "m.h5", [(PairMatches(("a", "b"), np.empty((0, 2), int), np.empty(0)), 0)])
    found = read_matches(tmp_path / "m.h5", "a", "b")
    assert found.indices.shape == (0, 2)
    assert found.scores.shape == (0,)


@pytest.mark.parametrize(
    ("indices", "scores"), [([[6, 0]], [1]), ([[-1, 0]], [1]), ([[1, 2], [1, 3]], [1, 1]), ([[1, 2]], [1, 1])]
)
def test_matches_that_are_refused(tmp_path, indices, scores):
    with refuses(ArgumentError):
        write_matches(tmp_path / "m.h5", [(PairMatches(("a", "b"), np.array(indices), np.array(scores)), 6)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "/a.jpg", "a//b.jpg", "../a.jpg", "a/.", "a\0b"])
def test_names_that_are_refused(tmp_path, name):
    with refuses(ArgumentError):
        append_features(tmp_path / "f.h5", name, some_features(1))
    assert not list(tmp_path.iterdir())


def test_an_image_cannot_be_a_folder(tmp_path):
    append_features(tmp_path / "f.h5", "a/b.jpg", some_features(1))
    before = (tmp_path / "f.h5").read_bytes()
    with refuses(ArgumentError):
        append_features(tmp_path / "f.h5", "a", some_features(1))
    with refuses(ArgumentError):
        append_features(tmp_path / "f.h5", "a/b.jpg/c.jpg", some_features(1))
    assert (tmp_path / "f.h5").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["f.h5"]


def test_files_that_are_refused(tmp_path):
    with refuses(FileError):
        image_names(tmp_path / "absent.h5")
    (tmp_path / "text.h5").write_text("not HDF5")
    for act in (
        lambda path: image_names(path),
        lambda path: read_features(path, "a"),
        lambda path: append_features(path, "a", some_features(1)),
    ):
        with refuses(FileError):
            act(tmp_path / "text.h5")
    assert (tmp_path / "text.h5").read_text() == "not HDF5"


def test_a_dataset_that_claims_the_world_takes_no_memory(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        group = file.create_group("a.jpg")
        group.create_dataset("keypoints", (10**12, 2), np.float32, chunks=(1000, 2))
    with refuses(FileError):
        read_features(tmp_path / "f.h5", "a.jpg")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("keypoints", np.zeros((3, 3))), ("keypoints", np.full((3, 2), np.nan)), ("descriptors", np.zeros((3, 128))),
        ("scales", np.zeros(4)), ("oris", np.array([b"a", b"b", b"c"])), ("image_size", np.zeros(3)),
        ("scales", np.full(3, np.inf)), ("image_size", np.full(2, np.nan)),
    ],
)  # fmt: skip
def test_wrong_contents_are_named(tmp_path, key, values):
    append_features(tmp_path / "f.h5", "a.jpg", some_features(3))
    with h5py.File(tmp_path / "f.h5", "a") as file:
        del file["a.jpg"][key]
        file["a.jpg"].create_dataset(key, data=values)
    with refuses(FileError):
        read_features(tmp_path / "f.h5", "a.jpg")


FUZZ = """
import resource, sys
import numpy as np
from matchkernel.errors import FileError
from matchkernel.photos.files import image_names, read_features, read_matches
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
path, kind, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
whole = open(path, "rb").read()
random, refused = np.random.default_rng(seed), 0
for trial in range(count):
    content = bytearray(whole)
    if random.random() < 0.3:
        content = content[: random.integers(0, len(content))]
    else:
        for _ in range(random.integers(1, 8)):
            content[random.integers(0, len(content))] = random.integers(0, 256)
    with open(path + ".bad", "wb") as file:
        file.write(content)
    with open(path + ".trial", "w") as file:
        file.write(str(trial))
    try:
        if kind == "matches":
            read_matches(path + ".bad", "a.jpg", "b.jpg")
        else:
            for name in image_names(path + ".bad"):
                read_features(path + ".bad", name)
    except FileError as error:
        refused += 1
        assert "\\n" not in str(error), error
print(refused)
"""


@pytest.mark.parametrize("kind", ["features", "matches"])
def test_damaged_files_give_our_error_or_the_features(tmp_path, kind):
    """Cut anywhere, bytes changed anywhere; in a process of its own, because the reader of HDF5 is C."""
    path = tmp_path / "f.h5"
    if kind == "features":
        write_features(path, [("a.jpg", some_features(20)), ("db/b.jpg", some_features(0))])
    else:
        write_matches(path, [(PairMatches(("a.jpg", "b.jpg"), np.array([[0, 5], [3, 1]]), np.ones(2)), 600)])
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(path), kind, "0", "300"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 150


def test_a_flipped_bit_in_the_numbers_is_seen(tmp_path):
    path, features = tmp_path / "f.h5", some_features(50)
    append_features(path, "a.jpg", features)
    content = bytearray(path.read_bytes())
    place = bytes(content).find(np.ascontiguousarray(features.descriptors.T).tobytes()[:64])
    assert place > 0
    content[place + 3] ^= 1
    path.write_bytes(content)
    with refuses(FileError):
        read_features(path, "a.jpg")


def test_missing_h5py_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with refuses(MissingExtraError):
        image_names(tmp_path / "f.h5")


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A real limit on the size of files, in a process of its own."""
    path = tmp_path / "f.h5"
    append_features(path, "a.jpg", some_features(10))
    before = path.read_bytes()
    code = f"""
    import resource, signal, sys
    sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
    from test_hloc_files import append_features, some_features
    from matchkernel.errors import WriteError
    features = some_features(2000)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        append_features({str(path)!r}, "b.jpg", features)
    except WriteError as error:
        print("refused:", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.startswith(f"refused: {path}: could not be written"), done.stdout + done.stderr
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.h5"]
