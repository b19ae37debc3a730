"""Features in memory and in files."""

import contextlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import Features, load_features, save_features


def made(K=5, D=8):
    generator = np.random.default_rng(0)
    frames = Frames.turned_squares(generator.uniform(0, 99, (K, 2)), np.linspace(6, 60, K), np.linspace(-1, 1, K))
    rows = generator.normal(size=(K, D)).astype(np.float32)
    return Features(frames, rows, np.ones(K, np.float32), (100, 80), "sift", {"magnification": 6.0})


@pytest.mark.parametrize("K", [0, 1, 5])
def test_what_is_written_is_read(K, tmp_path):
    features = made(K)
    save_features(features, tmp_path / "f.npz")
    again = load_features(tmp_path / "f.npz")
    assert again.frames.centers.tobytes() == features.frames.centers.tobytes()
    assert again.descriptors.tobytes() == features.descriptors.tobytes()
    assert again.descriptors.shape == (K, 8)
    assert (again.image_size, again.model, again.settings) == ((100, 80), "sift", {"magnification": 6.0})
    save_features(again, tmp_path / "g.npz")
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "g.npz").read_bytes()


@pytest.mark.parametrize(("store", "worst", "share"), [("float16", 3e-4, 0.55), ("bytes", 2e-3, 0.32)])
def test_stored_with_less(store, worst, share, tmp_path):
    """Half or a quarter of the size; what was read is written with the same bytes."""
    whole = made(300, 128)
    whole.descriptors[:] /= np.linalg.norm(whole.descriptors, axis=1, keepdims=True)
    whole.descriptors[7] = 0
    features = replace(whole, settings={"magnification": 6.0, "store": store})
    for name, some in (("whole", whole), ("small", features)):
        save_features(some, tmp_path / f"{name}.npz")
    assert (tmp_path / "small.npz").stat().st_size < share * (tmp_path / "whole.npz").stat().st_size
    again = load_features(tmp_path / "small.npz")
    assert again.descriptors.dtype == np.float32
    assert np.abs(again.descriptors - whole.descriptors).max() < worst
    assert not again.descriptors[7].any()
    assert np.abs(again.keypoints - whole.keypoints).max() < 1e-5
    save_features(again, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "small.npz").read_bytes()


def test_bytes_need_rows_of_length_one_and_come_from_bytes(tmp_path):
    features = replace(made(), settings={"store": "bytes"})
    with refuses(ArgumentError):
        save_features(features, tmp_path / "f.npz")
    with refuses(ArgumentError):
        save_features(replace(made(), settings={"store": "double"}), tmp_path / "f.npz")
    assert not list(tmp_path.iterdir())
    save_features(made(), tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz") as arrays:
        content = dict(arrays)
    content["facts"] = np.array(json.dumps({**json.loads(str(content["facts"])), "settings": {"store": "bytes"}}))
    np.savez(tmp_path / "f.npz", **content)
    with refuses(FileError):
        load_features(tmp_path / "f.npz")


def test_scales_and_orientations_are_those_of_the_frames():
    features = made()
    assert features.scales == pytest.approx(np.linspace(1, 10, 5))
    assert features.orientations == pytest.approx(np.linspace(-1, 1, 5))
    part = features[np.array([3, 1])]
    assert (part.keypoints == features.keypoints[[3, 1]]).all()
    assert (part.descriptors == features.descriptors[[3, 1]]).all()


def test_rows_must_be_as_many_as_keypoints():
    good = made()
    with refuses(ArgumentError):
        Features(good.frames, good.descriptors[:4], good.scores, (9, 9), "sift")
    with refuses(ArgumentError):
        Features(good.frames, good.descriptors, good.scores[:4], (9, 9), "sift")


def test_files_that_are_not_features(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    np.save(tmp_path / "array.npz", np.ones(3))
    (tmp_path / "array.npz.npy").rename(tmp_path / "array.npy")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "words.npz").write_text("hello")
    np.savez(tmp_path / "pickle.npz", centers=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as file:
        file.writestr("centers.npy", b"\x93NUMPY")
    for name in ("missing.npz", "other.npz", "array.npy", "empty.npz", "words.npz", "pickle.npz", "zip.npz"):
        with refuses(FileError):
            load_features(tmp_path / name)


@given(data=st.data())
def test_damaged_files_raise_our_errors_only(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "f.npz"
    features = made(2, 3)
    features.descriptors[:] /= np.linalg.norm(features.descriptors, axis=1, keepdims=True)
    store = data.draw(st.sampled_from(["float32", "float16", "bytes"]))
    save_features(replace(features, settings={"store": store}), path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
            content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(MatchKernelError):
        assert isinstance(load_features(path), Features)
    path.unlink()


def test_sizes_in_a_header_are_checked_before_memory_is_taken(tmp_path):
    save_features(made(), tmp_path / "f.npz")
    with zipfile.ZipFile(tmp_path / "f.npz") as file, zipfile.ZipFile(tmp_path / "g.npz", "w") as other:
        for name in file.namelist():
            content = file.read(name)
            if name == "descriptors.npy":
                header = io.BytesIO()
                claim = {"descr": "<f4", "fortran_order": False, "shape": (10**7, 10**7)}
                np.lib.format.write_array_header_1_0(header, claim)
                content = header.getvalue() + content[-160:]
            other.writestr(name, content)
    with refuses(FileError):
        load_features(tmp_path / "g.npz")


@pytest.mark.parametrize("name", ["centers", "shapes", "descriptors", "scores"])
def test_numbers_that_are_not_finite_are_refused(name, tmp_path):
    good = made()
    arrays = {"centers": good.frames.centers.copy(), "shapes": good.frames.shapes.copy()}
    rest = {"descriptors": good.descriptors.copy(), "scores": good.scores.copy()}
    {**arrays, **rest}[name].flat[2] = np.nan
    save_features(replace(good, frames=Frames(**arrays), **rest), tmp_path / "f.npz")
    with refuses(FileError):
        load_features(tmp_path / "f.npz")


def test_the_layout_is_the_documented_one(tmp_path):
    """docs/match.md: any program may write such a file."""
    facts = {"image_size": [100, 80], "model": "mine", "settings": {}}
    np.savez(
        tmp_path / "f.npz",
        centers=np.array([[3.0, 4.0]]),
        shapes=np.array([[[6.0, 0.0], [0.0, 6.0]]]),
        descriptors=np.ones((1, 4), np.float32),
        scores=np.ones(1, np.float32),
        facts=np.array(json.dumps(facts)),
    )
    found = load_features(tmp_path / "f.npz")
    assert (found.keypoints.tolist(), found.model) == ([[3.0, 4.0]], "mine")
    assert found.scales == pytest.approx([1.0])
