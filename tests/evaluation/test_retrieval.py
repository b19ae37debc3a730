"""Distances between descriptors, and retrieval within a patch set, against definitions query by query."""

import numpy as np
import pytest
import torch
from helpers import refuses
from slow_metrics import average_precision

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation import patch_sets
from matchkernel.evaluation.distances import comparable_rows, count_closer, row_distances
from matchkernel.evaluation.patch_sets import retrieval_map

random = np.random.default_rng(0)
GENERATOR = torch.Generator().manual_seed(0)
LABELS = random.integers(0, 40, 150)
KINDS = {
    "float": random.normal(size=(150, 5)),
    "whole": np.round(random.normal(size=(150, 5))),
    "constant": np.full((150, 5), 0.3217),
    "two": np.repeat(random.normal(size=(2, 5)), 75, 0),
}


def slow(rows, labels, ties, which=None, norm=2):
    """Query by query, from the definition."""
    values = []
    for query in range(len(rows)) if which is None else which:
        others = np.arange(len(rows)) != query
        is_match = labels[others] == labels[query]
        if is_match.any():
            differences = np.abs(rows[others].astype(float) - rows[query])
            values.append(average_precision((differences**norm).sum(1), is_match, "step", ties))
    return np.mean(values)


def lowest(*arguments, **options):
    return retrieval_map(*arguments, **options)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_as_by_definition(kind, monkeypatch):
    wanted = [slow(KINDS[kind], LABELS, ties) for ties in ("pessimistic", "optimistic")]
    for tile in (100, 1000, 2**24):
        monkeypatch.setattr(patch_sets, "TILE", tile)
        assert retrieval_map(KINDS[kind], LABELS) == pytest.approx(wanted, abs=1e-12), tile


def test_other_distances():
    for kind in ("whole", "float"):
        assert lowest(KINDS[kind], LABELS, distance="l1") == pytest.approx(
            slow(KINDS[kind], LABELS, "pessimistic", norm=1), abs=1e-12
        )
    bits = random.integers(0, 256, (150, 2), dtype=np.uint8)
    assert lowest(bits, LABELS, distance="hamming") == pytest.approx(
        slow(np.unpackbits(bits, axis=1), LABELS, "pessimistic", norm=1), abs=1e-12
    )


def test_torch_and_numpy_any_dtype_and_layout():
    rows = KINDS["whole"]
    wanted = lowest(rows, LABELS)
    read_only = np.asfortranarray(rows.astype(np.float32))
    read_only.flags.writeable = False
    for same in (rows.astype(np.int8), rows.astype(np.float16), read_only, rows[::-1][::-1]):
        assert lowest(same, LABELS) == wanted
    assert lowest(torch.from_numpy(rows).float().requires_grad_(), torch.from_numpy(LABELS)) == wanted


def test_rounding_does_not_break_ties():
    """A product gives other last bits to equal rows at other places; exact copies must still tie."""
    rows = np.repeat(random.normal(size=(40, 128)).astype(np.float32), 5, 0)
    labels = np.repeat(np.arange(100), 2)
    least, highest = retrieval_map(rows, labels)
    assert [least, highest] == pytest.approx(
        [slow(rows, labels, ties) for ties in ("pessimistic", "optimistic")], abs=1e-12
    )
    assert highest - least > 0.1


def test_some_queries():
    rows = KINDS["float"]
    able = np.flatnonzero(np.bincount(LABELS)[LABELS] > 1)
    chosen = np.sort(np.random.default_rng(3).choice(able, 20, replace=False))
    found = lowest(rows, LABELS, queries=20, seed=3)
    assert found == pytest.approx(slow(rows, LABELS, "pessimistic", chosen), abs=1e-12)
    assert found == lowest(rows, LABELS, queries=20, seed=3)
    assert found != lowest(rows, LABELS, queries=20, seed=4)
    assert lowest(rows, LABELS, queries=10**6) == lowest(rows, LABELS)


@pytest.mark.parametrize(
    ("rows", "labels", "options", "error"),
    [
        (np.array([[1.0, 2], [np.nan, 0]]), [0, 0], {}, ArgumentError),
        (np.array([[1.0, 2], [1, np.inf]]), [0, 0], {}, ArgumentError),
        (np.ones((3, 2)), [0, 1, 2], {}, ArgumentError),
        (np.ones((3, 2)), [0, 1], {}, ArgumentError),
        (np.ones((0, 2)), [], {}, ArgumentError),
        (np.ones(3), [0, 1, 2], {}, ArgumentError),
        (np.ones((2, 0)), [0, 0], {}, ArgumentError),
        (np.ones((2, 2, 2)), [0, 0], {}, ArgumentError),
        (np.array([[0.0, 1], [2, 1e16]]), [0, 0], {}, ArgumentError),
        ([[1, 2]], [0], {}, ArgumentTypeError),
        (np.array([["a"], ["b"]]), [0, 0], {}, ArgumentTypeError),
        (KINDS["float"], LABELS, {"queries": 0}, ArgumentError),
        (KINDS["float"], LABELS, {"distance": "cosine"}, ArgumentError),
        (KINDS["float"], LABELS, {"distance": "hamming"}, ArgumentTypeError),
    ],
)
def test_what_cannot_be_retrieved_is_refused(rows, labels, options, error):
    with refuses(error):
        lowest(rows, np.array(labels, np.int64), **options)


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_are_exact_however_wrong_the_tile_is_within_its_error(threads):
    exact = torch.randint(0, 6, (40, 90), generator=GENERATOR).double()
    thresholds = torch.randint(0, 6, (40, 3), generator=GENERATOR).double()
    error = 0.01
    tile = exact + error * (2 * torch.rand(exact.shape, generator=GENERATOR, dtype=torch.float64) - 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        less, at_most = count_closer(tile, thresholds, error, lambda rows, columns: exact[rows, columns])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(less, (exact[:, None] < thresholds[..., None]).sum(2))
    assert torch.equal(at_most, (exact[:, None] <= thresholds[..., None]).sum(2))


def test_bits_are_unpacked_in_order():
    packed = np.array([[0b10000001, 0], [255, 0b00010000]], np.uint8)
    rows = comparable_rows(packed, "hamming")
    assert np.array_equal(rows.numpy(), np.unpackbits(packed, axis=1))
    assert torch.equal(comparable_rows(torch.from_numpy(packed), "hamming"), rows)
    assert row_distances(packed[:1], packed[1:], "hamming") == [7]
