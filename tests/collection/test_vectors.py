from contextlib import nullcontext

import numpy as np
import pytest
import torch
from damage import damaged
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

import matchkernel
from matchkernel.collection.vectors import (
    SHIPPED,
    assign,
    global_vector,
    image_vectors,
    learn_centres,
    read_vocabularies,
    shipped_vocabulary,
    similarities,
    vocabulary_for,
)
from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.geometry.frames import Frames
from matchkernel.model.weights import state_digest
from matchkernel.photos.extract import SIFTS
from matchkernel.photos.feature_files import open_features
from matchkernel.photos.features import Features, save_features
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.tensors import write_tensors

D = 8


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def features_of(rows, model="mine", weights="1"):
    K = len(rows)
    frames = Frames.turned_squares(np.zeros((K, 2)), np.ones(K), np.zeros(K))
    return Features(frames, rows, np.ones(K, np.float32), (9, 9), model, {"weights": weights})


@pytest.fixture
def files(tmp_path):
    """Six images of two places: each place has descriptors of its own, and each image sees most of them."""
    random = np.random.default_rng(0)
    places = unit(random.standard_normal((2, 90, D)).reshape(-1, D)).reshape(2, 90, D)
    for number in range(6):
        seen = places[number % 2][random.permutation(90)[:60]] + 0.05 * random.standard_normal((60, D))
        rows = np.concatenate([unit(seen), np.zeros((2, D), np.float32)])
        save_features(features_of(rows), tmp_path / f"{number}.npz")
    return open_features(tmp_path)


def test_images_of_one_place_are_alike(files):
    vocabulary = vocabulary_for(files)
    assert vocabulary.source == "learned from 360 descriptors of these images"
    assert vocabulary.centres.shape == (360 // 30, D)
    done = []
    vectors = image_vectors(files, vocabulary, lambda *now: done.append(now))
    assert vectors.shape == (6, 12, D)
    similar = similarities(vectors, vectors)
    assert np.diag(similar) == pytest.approx(1, abs=2e-3)
    assert similar.min() >= 0
    np.fill_diagonal(similar, -1)
    assert [int(row.argmax()) % 2 for row in similar] == [0, 1, 0, 1, 0, 1]
    assert min(similar[i, i - 2] for i in range(6)) > max(similar[i, (i + 1) % 6] for i in range(6)) + 0.1
    assert done[-1] == (6, 6)
    assert (vocabulary_for(files).centres == vocabulary.centres).all()


def test_a_vector_by_hand():
    centres = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    rows = np.array([[0.6, 0.8], [0.8, 0.6], [0.8, -0.6], [0, 0]], np.float32)
    wanted = np.zeros((3, 2))
    wanted[0] = [-0.4, 0]  # two rows, right of and left of the centre
    wanted[1] = [0.6, -0.2]
    wanted = wanted / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-9) / 2**0.25
    assert global_vector(rows, centres) == pytest.approx(wanted, abs=1e-6)
    assert (global_vector(rows[[3, 1, 2, 0]], centres) == global_vector(rows, centres)).all()
    other = np.array([[-0.4, 0.1], [0.3, 0.4], [9, 9]], np.float32)[None]  # cosines 0.970, 0.316; nothing shared
    found = similarities(global_vector(rows, centres)[None], other)
    cosine = [0.4, (0.6 * 0.3 - 0.2 * 0.4) / np.sqrt(0.4)]
    assert float(found[0, 0]) == pytest.approx(np.square(cosine).sum() / np.sqrt(2), rel=1e-5)
    assert not global_vector(rows[3:], centres).any()
    assert not global_vector(rows[:0], centres).any()


def test_the_nearest_centre_is_taken():
    random = np.random.default_rng(0)
    rows, centres = unit(random.standard_normal((300, D))), random.standard_normal((7, D)).astype(np.float32)
    assert (assign(rows, centres) == np.linalg.norm(rows[:, None] - centres[None], axis=2).argmin(1)).all()


def test_centres_of_clear_groups_are_found():
    random = np.random.default_rng(0)
    groups = 10 * random.standard_normal((4, D))
    rows = np.repeat(groups, 50, axis=0) + 0.01 * random.standard_normal((200, D))
    found = learn_centres(rows, 12)
    assert all(np.linalg.norm(found - group, axis=1).min() < 0.05 for group in groups)
    assert len(learn_centres(rows[:3], 64)) == 3
    assert np.isfinite(learn_centres(np.ones((100, D)), 64)).all()


@pytest.mark.parametrize(("model", "weights", "width"), [("theirs", "1", D), ("mine", "2", D), ("mine", "1", 5)])
def test_features_of_several_kinds_are_refused(files, tmp_path, model, weights, width):
    vocabulary = vocabulary_for(files)
    save_features(features_of(np.ones((3, width), np.float32), model, weights), tmp_path / "9.npz")
    for refused in (vocabulary_for, lambda mixed: image_vectors(mixed, vocabulary)):
        with refuses(ArgumentError):
            refused(open_features(tmp_path))


def test_features_without_any_descriptor_are_refused(tmp_path):
    save_features(features_of(np.zeros((3, D), np.float32)), tmp_path / "9.npz")
    with refuses(ArgumentError):
        vocabulary_for(open_features(tmp_path))


def test_the_package_has_vocabularies_for_its_weights():
    """Small, and of the weights that are shipped: after these change, make_vocabularies.py has to be run."""
    centres, weights = read_vocabularies(SHIPPED)
    assert {PHOTO_MODEL, "light-wide", *SIFTS} <= set(centres)
    assert set(centres) - set(SIFTS) == set(weights) <= set(matchkernel.available())
    assert SHIPPED.stat().st_size < 70_000 * len(centres) + 4000
    for name, digest in weights.items():
        model = matchkernel.load(name)
        assert state_digest(model) == digest, name
        assert centres[name].shape == (256, model.config.D)
        assert shipped_vocabulary(name, {"weights": digest}).source == f"shipped for {name}"
        assert shipped_vocabulary(name, {"weights": "others"}) is None
    assert shipped_vocabulary("rootsift", {"weights": "OpenCV of any version"}) is not None
    assert shipped_vocabulary("unknown", {}) is None


def test_vocabularies_there_and_back(tmp_path):
    path = tmp_path / "v.safetensors"
    rows = torch.linspace(-1, 1, 24).half().reshape(3, 8)
    write_tensors(path, {"a": rows}, {"scenes": "b", "weights": '{"a": "1"}'})
    centres, weights = read_vocabularies(path)
    assert (centres["a"] == rows.float().numpy()).all()
    assert weights == {"a": "1"}


@given(st.data())
def test_any_damage_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "vocabulary.safetensors"
    write_tensors(path, {"a": torch.ones(2, 3).half()}, {"weights": '{"a": "1"}'})
    whole = path.read_bytes()
    path.write_bytes(damaged(data, whole))
    with refuses(WeightsError) if path.read_bytes() != whole else nullcontext():
        read_vocabularies(path)
