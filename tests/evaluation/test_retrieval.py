import numpy as np
import pytest
import torch
from slow_metrics import average_precision

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.retrieval import retrieval_map, retrieval_range

random = np.random.default_rng(0)
LABELS = random.integers(0, 40, 150)
KINDS = {
    "float": random.normal(size=(150, 5)),
    "whole": np.round(random.normal(size=(150, 5))),
    "constant": np.full((150, 5), 0.3217),
    "two": np.repeat(random.normal(size=(2, 5)), 75, 0),
}


def slow(rows, labels, form, ties, which=None, norm=2):
    """Query by query, from the definition."""
    values = []
    for query in range(len(rows)) if which is None else which:
        others = np.arange(len(rows)) != query
        is_match = labels[others] == labels[query]
        if is_match.any():
            differences = np.abs(rows[others].astype(float) - rows[query])
            values.append(average_precision((differences**norm).sum(1), is_match, form, ties))
    return np.mean(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["step", "trapezoid"])
@pytest.mark.parametrize("tile", [100, 1000, 2**24])
def test_as_by_definition(kind, form, tile):
    found = retrieval_range(KINDS[kind], LABELS, form=form, tile=tile)
    wanted = [slow(KINDS[kind], LABELS, form, ties) for ties in ("pessimistic", "optimistic")]
    assert found == pytest.approx(wanted, abs=1e-12)
    assert retrieval_map(KINDS[kind], LABELS, form=form, tile=tile) == found[0]


def test_other_distances():
    for kind in ("whole", "float"):
        assert retrieval_map(KINDS[kind], LABELS, distance="l1") == pytest.approx(
            slow(KINDS[kind], LABELS, "step", "pessimistic", norm=1), abs=1e-12
        )
    bits = random.integers(0, 256, (150, 2), dtype=np.uint8)
    assert retrieval_map(bits, LABELS, distance="hamming") == pytest.approx(
        slow(np.unpackbits(bits, axis=1), LABELS, "step", "pessimistic", norm=1), abs=1e-12
    )


def test_torch_and_numpy_any_dtype_and_layout():
    rows = KINDS["whole"]
    wanted = retrieval_map(rows, LABELS)
    read_only = np.asfortranarray(rows.astype(np.float32))
    read_only.flags.writeable = False
    for same in (rows.astype(np.int8), rows.astype(np.float16), read_only, rows[::-1][::-1]):
        assert retrieval_map(same, LABELS) == wanted
    assert retrieval_map(torch.from_numpy(rows).float().requires_grad_(), torch.from_numpy(LABELS)) == wanted


def test_rounding_does_not_break_ties():
    """A product gives other last bits to equal rows at other places; exact copies must still tie."""
    rows = np.repeat(random.normal(size=(40, 128)).astype(np.float32), 5, 0)
    labels = np.repeat(np.arange(100), 2)
    lowest, highest = retrieval_range(rows, labels)
    assert [lowest, highest] == pytest.approx(
        [slow(rows, labels, "step", ties) for ties in ("pessimistic", "optimistic")], abs=1e-12
    )
    assert highest - lowest > 0.1


def test_perfect_chance_and_constant():
    labels = np.repeat(np.arange(50), 4)
    rows = np.eye(50)[labels]
    assert retrieval_map(rows, labels) == 1
    far = random.normal(size=(2000, 64))
    # 3 matches among 1999 others: chance is about 3 / 1999 and a little, as the first hits come early by luck.
    assert retrieval_map(far, np.repeat(np.arange(500), 4)) < 0.01
    lowest, highest = retrieval_range(np.ones((200, 3)), labels)
    # 196 others come first: precisions 1/197, 2/198, 3/199.
    assert lowest == pytest.approx(np.mean([1 / 197, 2 / 198, 3 / 199]))
    assert highest == 1


def test_some_queries():
    rows = KINDS["float"]
    able = np.flatnonzero(np.bincount(LABELS)[LABELS] > 1)
    chosen = np.sort(np.random.default_rng(3).choice(able, 20, replace=False))
    found = retrieval_map(rows, LABELS, queries=20, seed=3)
    assert found == pytest.approx(slow(rows, LABELS, "step", "pessimistic", chosen), abs=1e-12)
    assert found == retrieval_map(rows, LABELS, queries=20, seed=3)
    assert found != retrieval_map(rows, LABELS, queries=20, seed=4)
    assert retrieval_map(rows, LABELS, queries=10**6) == retrieval_map(rows, LABELS)


def test_order_of_the_set_does_not_matter():
    order = random.permutation(150)
    for rows in KINDS.values():
        assert retrieval_map(rows[order], LABELS[order]) == pytest.approx(retrieval_map(rows, LABELS), abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (np.array([[1.0, 2], [np.nan, 0]]), [0, 0], "row 1"),
        (np.array([[1.0, 2], [1, np.inf]]), [0, 0], "row 1"),
        (np.ones((3, 2)), [0, 1, 2], "shares its label"),
        (np.ones((3, 2)), [0, 1], "3 labels"),
        (np.ones((0, 2)), [], "shares its label"),
        (np.ones(3), [0, 1, 2], "(K, D)"),
    ],
)
def test_what_cannot_be_retrieved_is_refused(rows, labels, words):
    with pytest.raises(ArgumentError) as caught:
        retrieval_map(rows, np.array(labels, np.int64))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_settings_are_refused():
    with pytest.raises(ArgumentError, match="queries must be"):
        retrieval_map(KINDS["float"], LABELS, queries=0)
    with pytest.raises(ArgumentError, match="distance must be"):
        retrieval_map(KINDS["float"], LABELS, distance="cosine")
    with pytest.raises(ArgumentTypeError, match="bits packed in uint8"):
        retrieval_map(KINDS["float"], LABELS, distance="hamming")
    with pytest.raises(ArgumentTypeError, match="numpy array or a torch tensor"):
        retrieval_map([[1, 2]], LABELS)
