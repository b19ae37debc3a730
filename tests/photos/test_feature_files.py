"""Files of features: what is written is read, and everything else is refused in one line."""

import json
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import refuses
from made_features import made_features

from matchkernel.collection import pairs_file
from matchkernel.errors import ArgumentError, FileError, MissingExtraError
from matchkernel.geometry.frames import Frames
from matchkernel.photos import hloc
from matchkernel.photos.feature_files import (
    append_features,
    image_names,
    open_features,
    read_features,
    recorded_facts,
    write_features,
)
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.match_files import PairMatches, write_matches
from matchkernel.photos.pair_lists import write_pairs

# Features of one image, .npz


@pytest.mark.parametrize("K", [0, 1, 5])
def test_an_npz_holds_every_bit(K, tmp_path):
    features = made_features(K, magnification=6.0)
    save_features(features, tmp_path / "f.npz")
    again = load_features(tmp_path / "f.npz")
    assert again.frames.centers.tobytes() == features.frames.centers.tobytes()
    assert again.descriptors.tobytes() == features.descriptors.tobytes()
    assert again.descriptors.shape == (K, 8)
    assert (again.image_size, again.model, again.settings) == ((100, 80), "ours", {"magnification": 6.0})
    save_features(again, tmp_path / "g.npz")
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "g.npz").read_bytes()


@pytest.mark.parametrize(("store", "worst", "share"), [("float16", 3e-4, 0.55), ("bytes", 2e-3, 0.32)])
def test_smaller_types_take_half_or_a_quarter_of_the_size(store, worst, share, tmp_path):
    """What was read is written with the same bytes."""
    whole = made_features(300, D=128)
    whole.descriptors[7] = 0
    for name, some in (("whole", whole), ("small", replace(whole, settings={"store": store}))):
        save_features(some, tmp_path / f"{name}.npz")
    assert (tmp_path / "small.npz").stat().st_size < share * (tmp_path / "whole.npz").stat().st_size
    again = load_features(tmp_path / "small.npz")
    assert again.descriptors.dtype == np.float32
    assert np.abs(again.descriptors - whole.descriptors).max() < worst
    assert not again.descriptors[7].any()
    assert np.abs(again.keypoints - whole.keypoints).max() < 1e-5
    save_features(again, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "small.npz").read_bytes()


def test_scales_and_orientations_are_those_of_the_frames():
    features = made_features()
    assert features.scales == pytest.approx(np.linspace(1, 10, 5))
    assert features.orientations == pytest.approx(np.linspace(-1, 1, 5))
    part = features[np.array([3, 1])]
    assert (part.keypoints == features.keypoints[[3, 1]]).all()
    assert (part.descriptors == features.descriptors[[3, 1]]).all()


@pytest.mark.parametrize(
    "change",
    [
        {"descriptors": np.ones((4, 8), np.float32)}, {"scores": np.ones(4)}, {"settings": {"store": "double"}},
        {"settings": {"store": "bytes"}, "descriptors": 2 * np.ones((5, 8), np.float32)},
    ],
)  # fmt: skip
def test_features_that_cannot_be_saved_are_refused(change, tmp_path):
    with refuses(ArgumentError):
        save_features(replace(made_features(), **change), tmp_path / "f.npz")
    assert not list(tmp_path.iterdir())


def test_features_are_not_written_under_the_name_of_another_format(tmp_path):
    with pytest.raises(ArgumentError, match="append_features"):
        save_features(made_features(), tmp_path / "f.h5")
    assert not list(tmp_path.iterdir())


def parts_of_a_file(**changed):
    """The arrays of an .npz as docs/match.md lists them; any program may write such a file."""
    arrays = {
        "centers": np.array([[3.0, 4.0]]),
        "shapes": np.array([[[6.0, 0.0], [0.0, 6.0]]]),
        "descriptors": np.ones((1, 4), np.float32),
        "scores": np.ones(1, np.float32),
        "facts": np.array(json.dumps({"image_size": [100, 80], "model": "mine", "settings": {}})),
    }
    return arrays | changed


def test_the_layout_of_an_npz_is_the_documented_one(tmp_path):
    np.savez(tmp_path / "f.npz", **parts_of_a_file())
    found = load_features(tmp_path / "f.npz")
    assert (found.keypoints.tolist(), found.model) == ([[3.0, 4.0]], "mine")
    assert found.scales == pytest.approx([1.0])


BAD_NPZ = {
    "no file": None,
    "empty": b"",
    "text": b"hello",
    "other arrays": {"a": np.ones(3)},
    "objects": parts_of_a_file(centers=np.array([{}], dtype=object)),
    "rows of another number": parts_of_a_file(descriptors=np.ones((2, 4), np.float32)),
    "text instead of numbers": parts_of_a_file(scores=np.array(["a"])),
    "facts without a model": parts_of_a_file(facts=np.array("{}")),
    "floats that should be bytes": parts_of_a_file(
        facts=np.array(json.dumps({"image_size": [9, 9], "model": "mine", "settings": {"store": "bytes"}}))
    ),
    **{
        f"{name} that are not finite": parts_of_a_file(**{name: np.full_like(parts_of_a_file()[name], np.nan)})
        for name in ("centers", "shapes", "descriptors", "scores")
    },
}


@pytest.mark.parametrize("content", BAD_NPZ.values(), ids=BAD_NPZ.keys())
def test_an_npz_that_cannot_be_read_is_refused(content, tmp_path):
    if isinstance(content, dict):
        np.savez(tmp_path / "f.npz", **content)
    elif content is not None:
        (tmp_path / "f.npz").write_bytes(content)
    with refuses(FileError):
        load_features(tmp_path / "f.npz")


# features.h5


def hloc_reader(path, name):
    """What hloc's FeaturePairsDataset does with a group: every entry must become an array of numbers."""
    with h5py.File(path, "r") as file:
        return {key: np.asarray(value) for key, value in file[name].items()}


@pytest.mark.parametrize("K", [0, 1, 50])
def test_an_h5_holds_float32(tmp_path, K):
    """Angles pass through degrees."""
    path, before = tmp_path / "features.h5", made_features(K, magnification=6.0)
    append_features(path, "db/day 1/a.jpg", before)
    after = read_features(path, "db/day 1/a.jpg")
    assert np.abs(after.keypoints - before.keypoints).max(initial=0) < 1e-5
    assert np.abs(after.frames.shapes - before.frames.shapes).max(initial=0) < 1e-3
    assert np.array_equal(after.descriptors, before.descriptors)
    assert np.array_equal(after.scores, before.scores)
    assert (after.image_size, after.model, after.settings) == (before.image_size, before.model, before.settings)


def test_the_layout_of_an_h5_is_hlocs(tmp_path):
    path, features = tmp_path / "features.h5", made_features(7, magnification=3.0)
    append_features(path, "db/a.jpg", features)
    found = hloc_reader(path, "db/a.jpg")
    assert {key: value.shape for key, value in found.items()} == {
        "keypoints": (7, 2), "descriptors": (8, 7), "scores": (7,), "scales": (7,), "oris": (7,), "image_size": (2,)
    }  # fmt: skip
    assert found["keypoints"].dtype == found["descriptors"].dtype == np.float32
    assert found["keypoints"] == pytest.approx(features.keypoints, rel=1e-6)  # hloc has our origin
    assert found["scales"] == pytest.approx(features.frames.half_widths / 3.0, rel=1e-6)
    assert np.deg2rad(found["oris"]) == pytest.approx(features.frames.angles, abs=1e-5)
    assert found["image_size"].tolist() == [100, 80]
    with h5py.File(path, "r") as file:
        assert file["db/a.jpg/keypoints"].attrs["uncertainty"] == 1.0


def test_regions_that_are_not_square_keep_their_shape(tmp_path):
    features = made_features()
    stretched = Frames(features.frames.centers, features.frames.shapes @ np.array([[1.0, 0.4], [0.0, 0.6]]))
    append_features(tmp_path / "f.h5", "a.jpg", replace(features, frames=stretched))
    after = read_features(tmp_path / "f.h5", "a.jpg")
    assert after.frames.shapes == pytest.approx(stretched.shapes, rel=1e-6, abs=1e-5)
    assert hloc_reader(tmp_path / "f.h5", "a.jpg")["shapes"].shape == (5, 2, 2)


def test_the_paths_that_were_documented_before_still_import():
    assert (hloc.read_features, hloc.write_matches) == (read_features, write_matches)
    assert pairs_file.write_pairs == write_pairs


def test_images_are_added_and_replaced(tmp_path):
    path = tmp_path / "features.h5"
    write_features(path, [("b.jpg", made_features(3)), ("a/c.jpg", made_features(4)), ("a/b.jpg", made_features(0))])
    assert image_names(path) == ["a/b.jpg", "a/c.jpg", "b.jpg"]
    append_features(path, "b.jpg", made_features(9))
    assert (len(read_features(path, "b.jpg")), len(read_features(path, "a/c.jpg"))) == (9, 4)


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


@pytest.mark.parametrize("name", ["", "/a.jpg", "a//b.jpg", "../a.jpg", "a/.", "a\0b", "a", "a/b.jpg/c.jpg", "a\udce9"])
def test_names_that_an_h5_cannot_hold_are_refused(tmp_path, name):
    append_features(tmp_path / "f.h5", "a/b.jpg", made_features(1))
    before = (tmp_path / "f.h5").read_bytes()
    with refuses(ArgumentError):
        append_features(tmp_path / "f.h5", name, made_features(1))
    assert (tmp_path / "f.h5").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["f.h5"]


def test_a_folder_of_photos_may_be_called_as_a_dataset(tmp_path):
    """As hloc, which knows an image by the dataset inside it."""
    path, names = tmp_path / "f.h5", ["a.jpg", "db/keypoints/b.jpg", "keypoints/c.jpg", "scores/keypoints/d.jpg"]
    for name in reversed(names):
        append_features(path, name, made_features(2))
    assert image_names(path) == names
    assert recorded_facts(path).keys() == set(names)
    assert all(len(read_features(path, name)) == 2 for name in names)
    for name in ("keypoints", "db", "a.jpg/keypoints"):
        with refuses(ArgumentError):
            append_features(path, name, made_features(1))
    with refuses(FileError):
        read_features(path, "db")


def test_files_that_are_not_hdf5_are_refused_and_kept(tmp_path):
    (tmp_path / "text.h5").write_text("not HDF5")
    (tmp_path / "text.txt").write_text("a")
    (tmp_path / ".b.1.2.part.npz").write_bytes(b"unfinished")  # no features
    for act in (
        *(partial(open_features, tmp_path / name) for name in ("", "absent", "text.txt", "x.h5")),
        lambda: image_names(tmp_path / "absent.h5"),
        lambda: image_names(tmp_path / "text.h5"),
        lambda: read_features(tmp_path / "text.h5", "a"),
        lambda: append_features(tmp_path / "text.h5", "a", made_features(1)),
    ):
        with refuses(FileError):
            act()
    assert (tmp_path / "text.h5").read_text() == "not HDF5"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("keypoints", np.zeros((3, 3))), ("keypoints", np.full((3, 2), np.nan)), ("descriptors", np.zeros((3, 128))),
        ("scales", np.zeros(4)), ("oris", np.array([b"a", b"b", b"c"])), ("image_size", np.zeros(3)),
        ("scales", np.full(3, np.inf)), ("image_size", np.full(2, np.nan)), ("keypoints", None),
    ],
)  # fmt: skip
def test_wrong_contents_of_an_h5_are_refused(tmp_path, key, values):
    append_features(tmp_path / "f.h5", "a.jpg", made_features(3))
    with h5py.File(tmp_path / "f.h5", "a") as file:
        del file["a.jpg"][key]
        if values is None:  # claims terabytes
            file["a.jpg"].create_dataset(key, (10**12, 2), np.float32, chunks=(1000, 2))
        else:
            file["a.jpg"].create_dataset(key, data=values)
    with refuses(FileError):
        read_features(tmp_path / "f.h5", "a.jpg")


FUZZ = """
import resource, sys
import numpy as np
from matchkernel.errors import FileError
from matchkernel.photos.feature_files import image_names, read_features
from matchkernel.photos.match_files import read_matches, recorded_matches
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
path, kind = sys.argv[1:]
whole = open(path, "rb").read()
random, refused = np.random.default_rng(0), 0


def read(path):
    if kind == "matches":
        return [recorded_matches(path, [("a.jpg", "b.jpg")]), read_matches(path, "a.jpg", "b.jpg").indices.tolist()]
    found = [(name, read_features(path, name)) for name in image_names(path)]
    arrays = lambda one: (one.scores, one.frames.shapes, one.descriptors)
    return [(name, one.settings, *(array.tolist() for array in arrays(one))) for name, one in found]


for trial in range(400):
    content, is_flipped = bytearray(whole), trial % 2
    if is_flipped:
        content[random.integers(0, len(content))] ^= 1 << random.integers(0, 8)
    elif random.random() < 0.3:
        content = content[: random.integers(0, len(content))]
    else:
        for _ in range(random.integers(1, 8)):
            content[random.integers(0, len(content))] = random.integers(0, 256)
    with open(path + ".bad", "wb") as file:
        file.write(content)
    try:
        found = read(path + ".bad")
        assert not is_flipped or found == read(path)
    except FileError as error:
        refused += 1
        assert "\\n" not in str(error), error
print(refused)
"""


@pytest.mark.parametrize("kind", ["features", "matches"])
def test_a_damaged_h5_gives_our_error_or_the_features(tmp_path, kind):
    """Cut anywhere, bytes changed anywhere; in a process of its own, because the reader of HDF5 is C.

    One flipped bit is refused, or changes nothing: no image, match or setting is lost without a word.
    """
    path = tmp_path / "f.h5"
    if kind == "features":
        write_features(path, [("a.jpg", made_features(20, D=128)), ("db/b.jpg", made_features(0))])
    else:
        write_matches(path, [(PairMatches(("a.jpg", "b.jpg"), np.array([[0, 5], [3, 1]]), np.ones(2), "k" * 40), 40)])
    done = subprocess.run([sys.executable, "-c", FUZZ, str(path), kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 150


def test_missing_h5py_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with refuses(MissingExtraError):
        image_names(tmp_path / "f.h5")


@pytest.mark.parametrize("K", [10, 2000])
def test_a_full_disk_leaves_the_old_file(K, tmp_path):
    """A real limit on file sizes, in a process of its own, met while writing or while the old file is copied."""
    path = tmp_path / "f.h5"
    append_features(path, "a.jpg", made_features(K, D=128))
    before = path.read_bytes()
    code = f"""
    import resource, signal, sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from made_features import made_features
    from matchkernel.errors import WriteError
    from matchkernel.photos.feature_files import append_features
    features = made_features(2000, D=128)
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
    assert done.stdout.startswith(f"refused: {path}: "), done.stdout + done.stderr
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.h5"]


def test_links_to_other_files_are_not_followed_and_deep_groups_are_refused_at_once(tmp_path):
    features = made_features(9)
    write_features(tmp_path / "secret.h5", [("a.png", features)])
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file["a.png"] = h5py.ExternalLink("secret.h5", "a.png")
        for name in ("descriptors", "scores", "scales", "oris", "image_size"):
            file[f"b.png/{name}"] = h5py.ExternalLink("secret.h5", f"a.png/{name}")
        file["b.png/keypoints"] = features.keypoints
    for read in (image_names, recorded_facts, lambda path: read_features(path, "a.png")):
        with refuses(FileError):
            read(tmp_path / "linked.h5")
    write_features(tmp_path / "outside.h5", [(name, features) for name in ("virtual.png", "raw.png")])
    (tmp_path / "secret.bin").write_bytes(features.keypoints.tobytes())
    with h5py.File(tmp_path / "outside.h5", "a") as file:
        layout = h5py.VirtualLayout(features.keypoints.shape, features.keypoints.dtype)
        layout[:] = h5py.VirtualSource("secret.h5", "a.png/keypoints", features.keypoints.shape)
        del file["virtual.png/keypoints"], file["raw.png/keypoints"]
        file["virtual.png"].create_virtual_dataset("keypoints", layout)
        raw = [(str(tmp_path / "secret.bin"), 0, features.keypoints.nbytes)]
        file["raw.png"].create_dataset("keypoints", features.keypoints.shape, features.keypoints.dtype, external=raw)
    for place, name in (("linked.h5", "b.png"), ("outside.h5", "virtual.png"), ("outside.h5", "raw.png")):
        with refuses(FileError):
            read_features(tmp_path / place, name)
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        file.create_group("a/" * 500)
    with h5py.File(tmp_path / "circle.h5", "w") as file:
        file["a/b"] = file.create_group("a")
        file["a/c"] = file["a"]
    for name in ("deep.h5", "circle.h5"):
        begun = time.process_time()
        with refuses(FileError):
            image_names(tmp_path / name)
        assert time.process_time() - begun < 2
