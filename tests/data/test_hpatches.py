"""Sets in the HPatches layout, and the benchmark's splits."""

import contextlib
import json

import numpy as np
import pytest
from damage import damaged
from helpers import refuses
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from matchkernel.data.hpatches import IMAGES, open_hpatches, read_splits
from matchkernel.errors import ArgumentError, FileError


def strip(path, count, side=65, seed=0, dtype=np.uint8):
    pixels = np.random.default_rng(seed).integers(0, 256, (count * side, side)).astype(dtype)
    Image.fromarray(pixels).save(path)
    return pixels.reshape(count, side, side)


@pytest.fixture
def root(tmp_path):
    """Two sequences, of 2 and 3 patches, and a folder that is none."""
    for name, count in (("v_b", 3), ("i_a", 2)):
        (tmp_path / name).mkdir()
        for seed, image in enumerate(IMAGES):
            strip(tmp_path / name / f"{image}.png", count, seed=seed)
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_a_sequence_has_its_100_patches_in_all_16_strips(hpatches_sample):
    found = open_hpatches(hpatches_sample.parent)
    assert found.counts == {"v_lewis": 100}
    for image in IMAGES:
        patches = found.read("v_lewis", image)
        assert patches.shape == (100, 65, 65)
        assert patches.dtype == np.uint8
        with Image.open(hpatches_sample / f"{image}.png") as strip:
            assert np.array_equal(patches[23], np.asarray(strip)[23 * 65 : 24 * 65])


def test_sequences_are_found_in_the_order_of_their_names(root):
    found = open_hpatches(str(root))
    assert list(found.counts.items()) == [("i_a", 2), ("v_b", 3)]
    pixels = np.random.default_rng(IMAGES.index("h3")).integers(0, 256, (3 * 65, 65))
    assert np.array_equal(found.read("v_b", "h3"), pixels.reshape(3, 65, 65))
    assert np.array_equal(found.read("i_a"), found.read("i_a", "ref"))


def test_folders_without_sequences_are_refused(root):
    for name in ("absent", "notes", "i_a", "i_a/ref.png"):
        with refuses(FileError):
            open_hpatches(root / name)


def test_a_sequence_without_a_strip_is_refused(root):
    (root / "v_b" / "t5.png").unlink()
    with refuses(FileError):
        open_hpatches(root)


@pytest.mark.parametrize(
    "content",
    [
        np.zeros((4 * 65, 65), np.uint8),
        np.zeros((2 * 64, 64), np.uint8),
        np.zeros((131, 65), np.uint8),
        np.zeros((2 * 65, 65), np.uint16),
        b"",
        b"text",
    ],
)
def test_strips_that_do_not_fit_are_refused(content, root):
    path = root / "i_a" / "e2.png"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        Image.fromarray(content).save(path)
    with refuses(FileError):
        open_hpatches(root).read("i_a", "e2")


@pytest.mark.parametrize("names", [("i_c", "ref"), ("i_a", "e6"), ("../i_a", "ref")])
def test_names_that_are_not_in_the_set_are_refused(names, root):
    with refuses(ArgumentError):
        open_hpatches(root).read(*names)


def test_the_official_layout_of_splits_is_read(golden):
    splits = read_splits(golden / "tasks" / "splits" / "splits.json")
    assert splits == {
        "a": {"test": ["i_ash", "i_birch", "v_cedar", "v_dogwood"], "train": ["v_elm"]},
        "b": {"test": ["i_birch", "v_dogwood", "v_elm"], "train": ["i_ash", "v_cedar"]},
        "full": {"test": ["i_ash", "i_birch", "v_cedar", "v_dogwood", "v_elm"]},
    }


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", '{"a": 3}', '{"a": null}', '{"a": ["test"]}', '{"a": {"test": 3}}', "[" * 100_000),
        *('{"a": {"test": "i_ash"}}', '{"a": {"train": ["i_ash"]}}', '{"a": {"test": [null]}}', b'{"\xe9": {}}', None),
    ],
)
def test_files_that_are_no_splits_are_refused(content, tmp_path):
    path = tmp_path / "splits.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refuses(FileError):
        read_splits(path)


SPLITS = json.dumps({"a": {"test": ["i_ash", "v_elm"], "train": ["v_b"], "name": "a"}, "full": {"test": ["i_ash"]}})
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["test", "train", "x"]), inner),
)


def only_our_error(path):
    with contextlib.suppress(FileError):
        for parts in read_splits(path).values():
            assert parts.keys() <= {"test", "train"}
            assert all(isinstance(name, str) for names in parts.values() for name in names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_splits_are_read_or_give_our_error(tmp_path, data):
    content = damaged(data, SPLITS.encode()) if data.draw(st.booleans()) else data.draw(st.binary(max_size=100))
    (tmp_path / "splits.json").write_bytes(content)
    only_our_error(tmp_path / "splits.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=values)
@example({"a": "test"})
def test_any_json_is_read_or_gives_our_error(tmp_path, content):
    (tmp_path / "splits.json").write_text(json.dumps(content))
    only_our_error(tmp_path / "splits.json")
