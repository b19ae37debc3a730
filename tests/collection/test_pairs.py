from contextlib import suppress

import h5py
import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_collection import DETECTOR, find_images, write_photos

from matchkernel.collection import pairs as choosing
from matchkernel.collection.choice import PairChoice, parse_choice
from matchkernel.collection.extract import extract_images
from matchkernel.collection.pairs import (
    Sources,
    all_pairs,
    covisible_pairs,
    has_features,
    make_pairs,
    names_at,
    sequential_pairs,
    top_pairs,
)
from matchkernel.colmap.model import Reconstruction, RegisteredImage
from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.extract import open_describer
from matchkernel.photos.feature_files import read_global_descriptors
from matchkernel.photos.pair_lists import unique_pairs

NAMES = ["a", "b", "c", "d"]


def brute_force(names, vectors, count):
    similar = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    chosen = []
    for i, name in enumerate(names):
        others = sorted((j for j in range(len(names)) if j != i), key=lambda j: (-similar[i, j], j))
        chosen += [(name, names[j]) for j in others[:count]]
    return list(unique_pairs(chosen))


def test_neighbours_follow_in_the_order_of_numbers():
    names = ["10.jpg", "9.jpg", "x/1.jpg", "09.jpg", "2.jpg"]
    assert list(sequential_pairs(names, 1)) == [
        ("2.jpg", "09.jpg"), ("09.jpg", "9.jpg"), ("9.jpg", "10.jpg"), ("10.jpg", "x/1.jpg"),
    ]  # fmt: skip
    assert len(list(sequential_pairs(names, 3))) == 3 + 3 + 2 + 1
    assert list(unique_pairs(sequential_pairs(names, 99), all_pairs(names))) == list(sequential_pairs(names, 99))


@pytest.mark.parametrize("count", [1, 3, 11, 12, 50])
@pytest.mark.parametrize("block", [(1024, 8192), (5, 3), (1, 1)])
def test_the_most_similar_are_found_in_any_blocks(monkeypatch, count, block):
    """Whole numbers, so that there are many ties and no rounding."""
    monkeypatch.setattr(choosing, "ROWS_AT_A_TIME", block[0])
    monkeypatch.setattr(choosing, "COLUMNS_AT_A_TIME", block[1])
    vectors = np.random.default_rng(0).integers(-2, 3, (12, 4)).astype(np.float32)
    names = [f"{number:02}" for number in range(12)]
    done = []
    found = top_pairs(names, vectors, count, progress=lambda *now: done.append(now))
    assert found == brute_force(names, vectors, count)
    assert done[-1] == (12, 12)


def test_copies_do_not_hide_each_other_and_an_image_without_features_asks_for_no_partners():
    assert top_pairs(NAMES, np.ones((4, 2), np.float32), 1) == [("a", "b"), ("c", "a"), ("d", "a")]
    vectors = np.array([[1, 0], [1, 0], [0, 0], [1, 1]], np.float32)
    assert top_pairs(NAMES, vectors, 1) == [("a", "b"), ("d", "a")]
    assert top_pairs(NAMES[:1], vectors[:1], 5) == []


def test_vectors_that_are_refused():
    with refuses(ArgumentError):
        top_pairs(NAMES, np.ones((3, 2)), 1)
    with refuses(ArgumentError):
        top_pairs(NAMES, np.array([[1.0], [1], [np.nan], [1]]), 1)


def model_of(points):
    images = {
        number: RegisteredImage(name, 1, np.eye(3), np.zeros(3), np.zeros((len(seen), 2)), np.array(seen, np.int64))
        for number, (name, seen) in enumerate(points.items())
    }
    return Reconstruction({}, images, {})


@given(st.lists(st.lists(st.integers(-1, 9), max_size=8), max_size=6), st.integers(1, 4))
def test_any_model_gives_what_counting_gives(points, count):
    named = {f"{number}": seen for number, seen in enumerate(points)}
    sets = {name: set(seen) - {-1} for name, seen in named.items()}
    wanted = []
    for name in named:
        others = sorted((o for o in named if o != name), key=lambda o: (-len(sets[name] & sets[o]), o))
        wanted += [(name, other) for other in others[:count] if sets[name] & sets[other]]
    assert covisible_pairs(model_of(named), count) == list(unique_pairs(wanted))


def test_choices_as_strings(tmp_path):
    listed = tmp_path / "a+b.txt"
    listed.write_text("d a\n")
    assert parse_choice("auto", 120) == parse_choice("all", 9) == PairChoice(exhaustive=True)
    assert parse_choice("auto", 121) == parse_choice("top", 9) == PairChoice(top=20)
    assert parse_choice("sequential", 9) == PairChoice(sequential=10)
    assert parse_choice(str(listed), 9) == PairChoice(files=(listed,))
    for wrong in ("", "top:0", "most", "top:-1", "top:1+", "top:x", "absent.txt"):
        with refuses(ArgumentError):
            parse_choice(wrong, 9)


def test_a_choice_is_a_union_without_repeats(tmp_path, monkeypatch):
    (tmp_path / "c.txt").write_text("d a\nb a\n")
    choice = parse_choice(f"{tmp_path / 'c.txt'}+sequential:1+top:1", 4)
    assert choice.text == f"top:1+sequential:1+{tmp_path / 'c.txt'}"
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    monkeypatch.setattr(choosing, "_from_features", lambda names, _, count, *__: top_pairs(names, vectors, count))
    pairs = [("d", "a"), ("b", "a"), ("b", "c"), ("c", "d"), ("a", "c"), ("b", "d")]
    assert make_pairs(NAMES, choice) == pairs
    monkeypatch.undo()
    assert make_pairs(NAMES, parse_choice("all+top:2", 4)) == list(all_pairs(NAMES))  # without features
    assert make_pairs(NAMES[:3], PairChoice(files=choice.files), unusable=["d"]) == [("b", "a")]
    (tmp_path / "c.txt").write_text("d x\n")
    with refuses(FileError):
        make_pairs(NAMES, PairChoice(files=choice.files))
    with refuses(ArgumentError):
        make_pairs(NAMES, PairChoice(top=1))


@pytest.fixture
def retrieval(tmp_path):
    """hloc's file of global descriptors, as its extract_features writes it."""
    path = tmp_path / "global.h5"
    with h5py.File(path, "w") as file:
        for name, row in (("db/b.jpg", [3, 4]), ("a.jpg", [1, 0])):
            file.create_group(name).create_dataset("global_descriptor", data=np.array(row, np.float16))
    return path


def test_global_descriptors_of_hloc(retrieval):
    names, rows = read_global_descriptors(retrieval)
    assert names == ["a.jpg", "db/b.jpg"]
    assert rows == pytest.approx(np.array([[1, 0], [0.6, 0.8]]))
    seen, sources = [], Sources(retrieval=retrieval)
    found = make_pairs(names, PairChoice(top=1), sources=sources, progress=lambda *now: seen.append(now))
    assert (found, seen) == ([("a.jpg", "db/b.jpg")], [(2, 2)])


def test_global_descriptors_that_are_refused(retrieval, tmp_path):
    with h5py.File(retrieval, "a") as file:
        file.create_group("c.jpg").create_dataset("global_descriptor", data=np.ones(3))
    with refuses(FileError):
        read_global_descriptors(retrieval)
    with h5py.File(tmp_path / "none.h5", "w") as file:
        file.create_group("a").create_dataset("keypoints", data=np.ones((1, 2)))
    with refuses(FileError):
        read_global_descriptors(tmp_path / "none.h5")


@given(st.text("alsequntopi:+0123456789. /", max_size=30) | st.text(max_size=20))
def test_any_string_is_a_choice_or_our_error(text):
    with suppress(ArgumentError):
        choice = parse_choice(text, 9)
        assert choice.exhaustive or choice.top or choice.sequential or choice.files


def test_a_calibration_among_photos_does_not_make_them_features(tmp_path):
    write_photos(tmp_path / "photos", 3)
    np.savez(tmp_path / "photos" / "calibration.npz", K=np.eye(3))
    assert not has_features(tmp_path / "photos")
    assert names_at(tmp_path / "photos") == ["00.png", "01.png", "02.png"]


@pytest.mark.parametrize("place", ["photos", "photos/left"])
def test_photos_are_meant_where_their_features_lie_in_a_folder_among_them(place, tmp_path):
    write_photos(tmp_path / place, 2)
    images = find_images([tmp_path / "photos"])
    extract_images(images, tmp_path / "photos" / "features", open_describer("sift"), DETECTOR)
    assert names_at(tmp_path / "photos") == names_at(tmp_path / "photos" / "features") == list(images)


def test_features_beside_their_photos_and_features_with_a_picture_among_them_are_features(tmp_path):
    images = write_photos(tmp_path / "photos", 3)
    for place in ("photos", "features"):
        extract_images(images, tmp_path / place, open_describer("sift"), DETECTOR)
    images["00.png"].rename(tmp_path / "features" / "picture.png")
    for place in ("photos", "features"):
        assert has_features(tmp_path / place)
        assert names_at(tmp_path / place) == ["00.png", "01.png", "02.png"]
