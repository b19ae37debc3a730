import numpy as np
from helpers import refuses

from matchkernel.errors import FileError
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import Features, save_features
from matchkernel.photos.files import open_features, write_features


def some_features(seed):
    rows = np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32)
    frames = Frames.turned_squares(np.arange(6.0).reshape(3, 2), np.ones(3), np.zeros(3))
    return Features(frames, rows, np.ones(3, np.float32), (9, 9), "sift", {"magnification": 1.0})


def test_a_folder_and_a_file_hold_the_same_images(tmp_path):
    named = {"b (2).jpg": some_features(0), "day/a.jpg": some_features(1)}
    for name, features in named.items():
        save_features(features, tmp_path / "folder" / f"{name}.npz")
    (tmp_path / "folder" / ".b.1.2.part.npz").write_bytes(b"unfinished")
    write_features(tmp_path / "f.h5", named.items())
    for place in ("folder", "f.h5"):
        files = open_features(tmp_path / place)
        assert files.names == sorted(named)
        for name, features in named.items():
            assert (files.load(name).descriptors == features.descriptors).all()


def test_places_that_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    for place in ("", "absent", "a.txt", "x.h5"):
        with refuses(FileError):
            open_features(tmp_path / place)
