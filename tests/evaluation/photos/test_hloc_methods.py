"""Features and matches of any program from hloc's files, as a method of `evaluate photos`."""

import h5py
import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.photos.methods import UNKNOWN, MethodSpec
from matchkernel.geometry.detect import Detector
from matchkernel.photos.match_files import PairMatches, write_matches
from matchkernel.storage.files import file_hash

PIXELS = np.zeros((30, 40, 3), np.uint8)


def write(path, images):
    """As hloc writes SuperPoint's features: float16, no sizes, no directions."""
    with h5py.File(path, "w") as file:
        for name, entries in images.items():
            group = file.create_group(name)
            for key, values in entries.items():
                group.create_dataset(key, data=values)
            group["keypoints"].attrs["uncertainty"] = 2


def entries(K=20, D=8, seed=0, **others):
    random = np.random.default_rng(seed)
    rows = np.random.default_rng(1).normal(size=(D, K))  # those of keypoint i are equal in all images
    return {
        "keypoints": random.uniform(0, 29, (K, 2)).astype(np.float16),
        "descriptors": (rows / np.linalg.norm(rows, axis=0)).astype(np.float16),
        "scores": random.uniform(0, 1, K).astype(np.float16),
        "image_size": np.array([40, 30]),
        **others,
    }


def opened(*paths, keypoints=0, kept="none", guided=False):
    text = "hloc:" + ",".join(str(path) for path in paths)
    return MethodSpec(text, Detector(keypoints=keypoints), kept, guided=guided).open()


@pytest.fixture
def features(tmp_path):
    write(tmp_path / "f.h5", {"db/a.jpg": entries(), "db/b.jpg": entries(seed=2), "c.jpg": entries(D=4)})
    return tmp_path / "f.h5"


@pytest.fixture
def matches(tmp_path):
    found = PairMatches(("db/b.jpg", "db/a.jpg"), np.array([[0, 5], [3, 1]]), np.ones(2))
    write_matches(tmp_path / "m.h5", [(found, 20)])
    return tmp_path / "m.h5"


def test_descriptors_are_matched(features):
    method = opened(features)
    a, b = (method.extract(PIXELS, f"db/{name}.jpg") for name in "ab")
    with h5py.File(features) as file:
        assert np.array_equal(a.keypoints, file["db/a.jpg/keypoints"][:].astype(np.float64))  # no half pixel added
    assert a.frames.half_widths == pytest.approx(1)
    assert method.match(a, b).indices.tolist() == [[i, i] for i in range(20)]
    assert (method.name, method.licence) == ("hloc:f.h5", UNKNOWN)
    assert method.settings["features"] == file_hash(features)
    assert method.settings["filter"] == "none"
    strict = opened(features, kept="ratio:0.001")
    assert len(strict.match(a, b)) == 20  # equal rows: the ratio is 0
    assert opened(features, kept="ratio:0.9").settings["filter"] == "ratio:0.9"


def test_a_budget_takes_the_best_scores_in_their_order(features):
    whole, some = (opened(features, keypoints=n).extract(PIXELS, "db/a.jpg") for n in (0, 7))
    best = np.sort(np.argsort(-whole.scores)[:7])
    assert np.array_equal(some.keypoints, whole.keypoints[best])
    assert np.array_equal(some.descriptors, whole.descriptors[best])


def test_matches_are_taken_as_they_are_in_either_order(features, matches):
    method = opened(features, matches, keypoints=7, kept="ratio:0.8")
    a, b = (method.extract(PIXELS, f"db/{name}.jpg") for name in "ab")
    assert len(a) == 20  # matches refer to all of them
    assert method.match(b, a).indices.tolist() == [[0, 5], [3, 1]]
    assert method.match(a, b).indices.tolist() == [[1, 3], [5, 0]]
    assert method.settings["matcher"] == file_hash(matches)
    assert method.settings["filter"] == "none"
    assert method.name == "hloc:f.h5,m.h5"
    for pair in ((a, method.extract(PIXELS, "c.jpg")), (b, a[:5])):
        with refuses(FileError):
            method.match(*pair)


@pytest.mark.parametrize(
    "others",
    [
        {"keypoints": np.full((20, 2), 31.0)},
        {"keypoints": np.full((20, 2), -7.0)},
        {"descriptors": np.full((8, 20), np.inf)},
        {"scores": np.zeros(19)},
        {"image_size": np.array([30, 40])},
    ],
)
def test_faults_of_features_are_refused(others, tmp_path):
    write(tmp_path / "f.h5", {"db/a.jpg": entries(**others)})
    with refuses(FileError):
        opened(tmp_path / "f.h5").extract(PIXELS, "db/a.jpg")


def test_a_keypoint_may_lie_a_little_outside(tmp_path):
    write(tmp_path / "f.h5", {"db/a.jpg": entries(keypoints=np.full((20, 2), 29.6))})
    assert len(opened(tmp_path / "f.h5").extract(PIXELS, "db/a.jpg")) == 20


def test_other_mistakes_are_refused(features, matches, tmp_path):
    method = opened(features)
    a, c = (method.extract(PIXELS, name) for name in ("db/a.jpg", "c.jpg"))
    for error, call in (
        (FileError, lambda: method.extract(PIXELS, "d.jpg")),
        (ArgumentError, lambda: method.match(a, c)),
        (FileError, lambda: opened(tmp_path / "absent.h5")),
        (ArgumentError, lambda: opened(features, matches, guided=True)),
        (ArgumentError, lambda: opened(features, matches, matches)),
    ):
        with refuses(error):
            call()
