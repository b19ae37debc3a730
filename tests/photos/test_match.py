"""Matching equals brute force in float64: a double loop over all pairs."""

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.frames import Frames
from matchkernel.photos.describers import open_describer
from matchkernel.photos.features import Features
from matchkernel.photos.match import Filter, match
from matchkernel.photos.nearest import find_nearest


def brute_force(a, b, mutual=True, ratio=None, threshold=np.inf):
    """Index pairs and distances, the slow way."""
    distances = np.full((len(a), len(b)), np.inf)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i].any() and b[j].any():
                distances[i, j] = np.sqrt(((a[i].astype(float) - b[j].astype(float)) ** 2).sum())
    found = []
    for i in range(len(a)):
        if not np.isfinite(distances[i]).any():
            continue
        j = int(distances[i].argmin())
        if mutual and distances[:, j].argmin() != i:
            continue
        lines = [distances[i]] + ([distances[:, j]] if mutual else [])
        passes = all(_ratio(line) < ratio for line in lines) if ratio is not None else True
        if passes and distances[i, j] <= threshold:
            found.append((i, j))
    return found


def _ratio(line):
    first, second = [*np.sort(line), np.inf][:2]
    return first / second if second > 0 else 1.0


def rows_of(kind, count, D, generator):
    if kind == "ties":
        return generator.integers(-1, 2, (count, D)).astype(np.float32)
    if kind == "nearly ties":  # below the rounding of float32 products, above that of float64
        return (
            np.eye(3, D)[generator.integers(0, min(3, D), count)] + 1e-7 * generator.normal(size=(count, D))
        ).astype(np.float32)
    if kind == "bytes":
        return generator.integers(0, 3, (count, D)).astype(np.uint8)
    return generator.normal(size=(count, D)) * 10.0 ** generator.integers(-6, 6)


@given(
    kind=st.sampled_from(["ties", "nearly ties", "bytes", "float64"]),
    sizes=st.tuples(st.integers(0, 17), st.integers(0, 17), st.integers(1, 9)),
    seed=st.integers(0, 10**6),
    mutual=st.booleans(),
    ratio=st.sampled_from([None, 0.8, 1.0]),
    threshold=st.sampled_from([None, 1.0]),
)
def test_equals_brute_force(kind, sizes, seed, mutual, ratio, threshold):
    generator = np.random.default_rng(seed)
    a, b = (rows_of(kind, count, sizes[2], generator) for count in sizes[:2])
    test = {(0, 0): "none", (1, 0): "ratio", (0, 1): "distance", (1, 1): "both"}[bool(ratio), bool(threshold)]
    found = match(a, b, mutual=mutual, filter=Filter(test, ratio, threshold))
    expected = brute_force(a, b, mutual, ratio, np.inf if threshold is None else threshold)
    assert [tuple(pair) for pair in found.indices.tolist()] == expected
    difference = a[found.indices[:, 0]].astype(float) - b[found.indices[:, 1]].astype(float)
    assert found.distances == pytest.approx(np.linalg.norm(difference, axis=1), rel=1e-12)


@given(tile=st.tuples(st.integers(1, 60), st.integers(1, 9)), seed=st.integers(0, 10**6), ties=st.booleans())
@settings(max_examples=25)
def test_tiles_do_not_change_the_answer(tile, seed, ties):
    generator = np.random.default_rng(seed)
    a, b = (rows_of("ties" if ties else "nearly ties", count, 4, generator) for count in (13, 19))
    whole, tiled = find_nearest(a, b), find_nearest(a, b, tile=tile)
    for name in ("index", "first", "second"):
        assert (getattr(whole, name) == getattr(tiled, name)).all()


def test_beyond_one_tile():
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=(count, 4)).astype(np.float32) for count in (300, 9000))
    a[17], b[8500] = a[3], a[3]  # a tie far apart, and a match in the last tile
    distances = np.array([((row - b.astype(float)) ** 2).sum(1) for row in a.astype(float)])
    found = match(a, b, mutual=False)
    assert (found.indices[:, 1] == distances.argmin(1)).all()
    ranked = np.sqrt(np.partition(distances, 1)[:, :2])
    assert found.ratios == pytest.approx(ranked[:, 0] / ranked[:, 1], rel=1e-9)
    back = distances.argmin(0)
    mutual = [(i, j) for i, j in enumerate(distances.argmin(1)) if back[j] == i]
    assert [tuple(pair) for pair in match(a, b).indices] == mutual
    assert (3, 8500) in mutual


def test_many_equal_rows_take_no_time():
    """Each is within the error of all others: without joining them 25 million pairs would be computed one by one."""
    a = np.tile(np.eye(2, 128, dtype=np.float32), (2500, 1))
    found = match(a, a, mutual=False)
    assert (found.indices[:, 1] == np.tile([0, 1], 2500)).all()
    assert (found.ratios == 1).all()
    assert match(a, a).indices.tolist() == [[0, 0], [1, 1]]


def test_rows_of_zeros_match_nothing():
    a = np.array([[0, 0], [1, 0], [0, 0]], np.float32)
    b = np.array([[0, 0], [0, 0], [0, 1], [1, 0]], np.float32)
    assert match(a, b).indices.tolist() == [[1, 3]]
    assert match(a, b, mutual=False).ratios == pytest.approx([0])
    assert match(a[[1]], b[:1]).indices.shape == (0, 2)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_nothing_and_one(sizes):
    a, b = (np.ones((count, 8), np.float32) for count in sizes)
    found = match(a, b, filter="ratio:0.8")
    assert found.indices.shape == (min(sizes), 2)
    assert found.indices.dtype == np.int64
    assert found.distances.shape == found.ratios.shape == (min(sizes),)
    assert (found.ratios == 0).all()  # there is no second


def with_value(value):
    rows = np.ones((4, 3))
    rows[2, 1] = value
    return rows


REFUSED = {
    "other dimensions": (np.ones((4, 5)), {}, ArgumentError),
    "one axis": (np.ones(3), {}, ArgumentError),
    "a list": ([[1, 2, 3]], {}, ArgumentTypeError),
    "NaN": (with_value(np.nan), {}, ArgumentError),
    "infinity": (with_value(np.inf), {}, ArgumentError),
    "huge": (with_value(1e30), {}, ArgumentError),
    "infinity in half precision": (with_value(np.inf).astype(np.float16), {}, ArgumentError),
    "an unknown filter": (np.ones((4, 3)), {"filter": "wide"}, ArgumentError),
    "a number as a filter": (np.ones((4, 3)), {"filter": 3}, ArgumentError),
    "an unknown device": (np.ones((4, 3)), {"device": "abacus"}, ArgumentError),
    "a device without numbers": (np.ones((4, 3)), {"device": "meta"}, ArgumentError),
}


@pytest.mark.parametrize(("rows", "options", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_matched(rows, options, error):
    good = np.ones((4, 3))
    with refuses(error):
        match(good, rows, **options)
    with refuses(error):
        match(rows, good, **options)


def test_a_row_that_is_not_finite_is_named_by_index():
    with pytest.raises(ArgumentError, match="of B: row 2"):
        match(np.ones((4, 3)), with_value(np.nan))


def features_of(model, rows, **settings):
    frames = Frames.turned_squares(np.zeros((len(rows), 2)), np.ones(len(rows)), np.zeros(len(rows)))
    return Features(frames, rows, np.ones(len(rows)), (9, 9), model, settings)


def test_a_calibrated_threshold_comes_with_the_weights(tmp_path):
    a, b = np.array([[1, 0], [0, 1]], np.float32), np.array([[1, 0.1], [0.7, 1]], np.float32)
    ours, theirs = (features_of("ours", rows, match_threshold=0.5) for rows in (a, b))
    assert len(match(ours, theirs, filter="distance")) == 1
    assert len(match(ours, theirs)) == 2
    with refuses(ArgumentError):
        match(features_of("ours", a, match_threshold="wide"), theirs, filter="distance")
    assert len(match(features_of("ours", a), theirs, filter="distance")) == 1  # either side knows it
    matchkernel.save(matchkernel.build("sum"), tmp_path / "mine.safetensors", {"match_threshold": "0.75"})
    assert open_describer(tmp_path / "mine.safetensors").settings["match_threshold"] == 0.75
    assert open_describer(tmp_path / "mine.safetensors").settings["match_ratio"] == 0.9
    matchkernel.save(matchkernel.build("sum"), tmp_path / "mine.safetensors", {"match_ratio": "0.85"})
    assert open_describer(tmp_path / "mine.safetensors").settings["match_ratio"] == 0.85


def test_features_of_different_models_or_regions_are_refused():
    rows = np.eye(2, dtype=np.float32)
    with refuses(ArgumentError):
        match(features_of("ours", rows), features_of("other", rows))
    eight, six = (features_of("ours", rows, cut=64, magnification=size) for size in (8.0, 6.0))
    with refuses(ArgumentError):
        match(eight, six)
    assert len(match(features_of("sift", rows, magnification=8.0), features_of("sift", rows, magnification=6.0))) == 2


@pytest.mark.slow
def test_a_hundred_thousand_rows_in_bounded_memory():
    import resource

    generator = np.random.default_rng(0)
    a = generator.normal(size=(100_000, 128)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = match(a[:20_000], a[::-1], mutual=False)
    assert (found.indices[:, 1] == 99_999 - np.arange(20_000)).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 * 1024  # KiB; the rows alone are 50 MB
