import numpy as np
import pytest
from helpers import refuses
from made_hpatches import made_descriptors
from PIL import Image

from matchkernel.data.hpatches import IMAGES, PatchList, open_hpatches
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.evaluation.hpatches.descriptors import describe_hpatches, stack_descriptors


def test_rows_are_found_where_they_were_put():
    descriptors = made_descriptors("float")
    patches = PatchList(np.array(["v_one", "i_one", "i_two"]), np.array([0, 5, 2]), np.array([14, 0, 8]))
    for level, noise in enumerate("eht"):
        rows = descriptors.rows[descriptors.find_rows(patches, noise, "list")]
        wanted = [
            descriptors.sequence("v_one")[0, 14],
            descriptors.sequence("i_one")[5 * level + 5, 0],
            descriptors.sequence("i_two")[5 * level + 2, 8],
        ]
        assert np.array_equal(rows, np.stack(wanted))
    assert made_descriptors("float").dimension == 8
    assert made_descriptors("bits").dimension == 16
    assert made_descriptors("bits").rows.shape[1] == 2


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": np.zeros((15, 3, 4))},
        {"a": np.zeros((16, 4))},
        {"a": np.zeros((16, 3, 4)), "b": np.zeros((16, 3, 5))},
        {"a": np.zeros((16, 3, 4)), "b": np.zeros((16, 3, 4), np.uint8)},
        *({"a": np.full((16, 3, 4), value)} for value in (np.nan, np.inf, -np.inf, 1e16, 1e300)),
    ],
)
def test_wrong_shapes_and_values_are_refused(arrays):
    with refuses(ArgumentError):
        stack_descriptors("mine", arrays)


@pytest.fixture
def strips(tmp_path):
    random = np.random.default_rng(0)
    for name, count in {"i_a": 2, "v_b": 3}.items():
        (tmp_path / name).mkdir()
        for image in IMAGES:
            pixels = random.integers(0, 256, (65 * count, 65), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{image}.png")
    return open_hpatches(tmp_path)


def mean_and_deviation(patches):
    return np.stack([patches.mean((1, 2)), patches.std((1, 2))], 1)


def test_a_set_is_described_strip_by_strip(strips):
    seen = []
    descriptors = describe_hpatches("plain", strips, mean_and_deviation, progress=lambda *done: seen.append(done))
    assert descriptors.counts == {"i_a": 2, "v_b": 3}
    assert seen == [(done, 80) for done in [*range(2, 34, 2), *range(35, 81, 3)]]
    for name in descriptors.counts:
        for number, image in enumerate(IMAGES):
            wanted = mean_and_deviation(strips.read(name, image)).astype(np.float32)
            assert np.array_equal(descriptors.sequence(name)[number], wanted)
    alone = describe_hpatches("plain", strips, mean_and_deviation, ["v_b"])
    assert np.array_equal(alone.rows, descriptors.sequence("v_b").reshape(-1, 2))
    bits = describe_hpatches("bits", strips, lambda patches: patches[:, 0, :4])
    assert bits.rows.dtype == np.uint8


def test_what_a_description_must_be(strips):
    for error, describe, sequences in (
        (ArgumentTypeError, lambda patches: mean_and_deviation(patches)[1:], None),
        (ArgumentError, lambda patches: mean_and_deviation(patches) * np.nan, None),
        (FileError, mean_and_deviation, ["v_none"]),
        (ArgumentError, mean_and_deviation, []),
    ):
        with refuses(error):
            describe_hpatches("plain", strips, describe, sequences)
    with refuses(FileError):
        made_descriptors("float").sequence("v_none")


@pytest.mark.parametrize("later", [lambda rows: rows[:, :1], lambda rows: rows.astype(np.uint8)], ids=["width", "type"])
def test_a_later_strip_of_another_width_or_type_is_refused(strips, later):
    changes = iter([lambda rows: rows, lambda rows: rows, later])
    with refuses(ArgumentTypeError):
        describe_hpatches("plain", strips, lambda patches: next(changes)(mean_and_deviation(patches)))
