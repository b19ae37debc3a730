"""Candidates for the partners of an image in a large collection: nearly those of exact search, and refusals."""

import sys

import numpy as np
import pytest
from helpers import refuses

from matchkernel.collection import pairs
from matchkernel.collection.candidates import short_codes
from matchkernel.collection.pairs import chosen_search, top_pairs
from matchkernel.collection.vectors import image_vectors, image_vectors_on_disk, similarities, vocabulary_for
from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.geometry.frames import Frames
from matchkernel.photos.feature_files import open_features
from matchkernel.photos.features import Features, save_features


def cells(count, scenes=40, seed=0):
    """(n, 4, 16) cells of images: those of a scene are similar."""
    random = np.random.default_rng(seed)
    found = random.normal(size=(scenes, 4, 16))[np.arange(count) % scenes] + random.normal(size=(count, 4, 16))
    return (found / np.linalg.norm(found, axis=2, keepdims=True) / 4**0.25).astype(np.float16)


def partners(found):
    return {frozenset(pair) for pair in found}


@pytest.mark.parametrize("similar", [similarities, pairs.dot_products])
def test_candidates_give_nearly_the_partners_of_exact_search(similar):
    pytest.importorskip("faiss")
    vectors = cells(4000) if similar is similarities else cells(4000).reshape(4000, -1)
    names, done = [f"{number:04}" for number in range(4000)], []
    exact = partners(top_pairs(names, vectors, 5, similar))
    near = top_pairs(names, vectors, 5, similar, search="faiss", progress=lambda *now: done.append(now))
    assert len(exact & partners(near)) > 0.97 * len(exact)
    assert done[-1] == (4000, 4000)
    assert near == top_pairs(names, vectors, 5, similar, search="faiss")  # the same every time


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_few_images_and_images_without_a_vector(count):
    pytest.importorskip("faiss")
    vectors = cells(count, scenes=3)
    names = [f"{number:02}" for number in range(count)]
    assert top_pairs(names, vectors, 2, similarities, search="faiss") == top_pairs(names, vectors, 2, similarities)
    vectors[0] = 0
    assert all(pair[0] != "00" for pair in top_pairs(names, vectors, 2, similarities, search="faiss"))
    assert top_pairs(names, 0 * vectors, 2, similarities, search="faiss") == []


def test_codes_keep_which_images_are_similar():
    vectors = cells(500)
    codes = short_codes(vectors).astype(np.float32)
    assert np.allclose(np.linalg.norm(codes, axis=1), 1, atol=1e-3)
    flat = vectors.reshape(500, -1).astype(np.float32)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    assert np.abs(codes @ codes.T - flat @ flat.T).max() < 0.01  # 64 numbers: nothing is lost


def test_auto_takes_candidates_for_many_images_where_faiss_is_installed(monkeypatch):
    monkeypatch.setattr(pairs, "has_faiss", lambda: True)
    few, many = pairs.EXACT_UP_TO, pairs.EXACT_UP_TO + 1
    assert [chosen_search("auto", images) for images in (few, many)] == ["exact", "faiss"]
    monkeypatch.setattr(pairs, "has_faiss", lambda: False)
    assert chosen_search("auto", 10**6) == "exact"
    with refuses(ArgumentError):
        chosen_search("nearest", 5)


def test_without_faiss_it_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'matchkernel\[faiss\]'"):
        chosen_search("faiss", 5)


def test_vectors_on_disk_are_those_in_memory(tmp_path):
    random = np.random.default_rng(0)
    for number in range(3):
        rows = random.normal(size=(300, 16)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        frames = Frames.turned_squares(random.uniform(0, 99, (300, 2)), np.full(300, 6.0), np.zeros(300))
        save_features(Features(frames, rows, np.ones(300, np.float32), (99, 99), "x", {}), tmp_path / f"{number}.npz")
    files = open_features(tmp_path)
    vocabulary, done = vocabulary_for(files), []
    with image_vectors_on_disk(files, vocabulary, lambda *now: done.append(now)) as vectors:
        assert np.array_equal(vectors, image_vectors(files, vocabulary))
        assert vectors.dtype == np.float16
    assert done == [(1, 3), (2, 3), (3, 3)]
