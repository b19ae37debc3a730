"""Matching equals brute force in float64, a double loop over all pairs; filters keep what they promise."""

import sys
from copy import copy

import numpy as np
import pytest
import torch
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_features import made_features
from made_images import texture, turned

import matchkernel
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import extract, open_describer
from matchkernel.photos.features import Matches
from matchkernel.photos.match import NUMBERS, Filter, match, parse_filter
from matchkernel.photos.pipeline import MatchSettings, match_images
from matchkernel.photos.verify import transfer_errors

KINDS = list(NUMBERS)


def brute_force(a, b, mutual=True, ratio=None, threshold=np.inf):
    """Index pairs, the slow way."""
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
        rows = np.eye(3, D)[generator.integers(0, min(3, D), count)] + 1e-7 * generator.normal(size=(count, D))
        return rows.astype(np.float32)
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
def test_matches_are_those_of_brute_force(kind, sizes, seed, mutual, ratio, threshold):
    generator = np.random.default_rng(seed)
    a, b = (rows_of(kind, count, sizes[2], generator) for count in sizes[:2])
    test = {(0, 0): "none", (1, 0): "ratio", (0, 1): "distance", (1, 1): "both"}[bool(ratio), bool(threshold)]
    found = match(a, b, mutual=mutual, filter=Filter(test, ratio, threshold))
    expected = brute_force(a, b, mutual, ratio, np.inf if threshold is None else threshold)
    assert [tuple(pair) for pair in found.indices.tolist()] == expected
    difference = a[found.indices[:, 0]].astype(float) - b[found.indices[:, 1]].astype(float)
    assert found.distances == pytest.approx(np.linalg.norm(difference, axis=1), rel=1e-12)


def test_many_equal_rows_take_no_time():
    """Each is within the error of all others: without joining them 25 million pairs would be computed one by one."""
    a = np.tile(np.eye(2, 128, dtype=np.float32), (2500, 1))
    found = match(a, a, mutual=False)
    assert (found.indices[:, 1] == np.tile([0, 1], 2500)).all()
    assert (found.ratios == 1).all()
    assert match(a, a).indices.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_no_rows_and_one_row(sizes):
    a, b = (np.ones((count, 8), np.float32) for count in sizes)
    found = match(a, b, filter="ratio:0.8")
    assert (found.indices.shape, found.indices.dtype) == ((min(sizes), 2), np.int64)
    assert found.distances.shape == found.ratios.shape == (min(sizes),)
    assert (found.ratios == 0).all()  # there is no second


def with_value(value):
    rows = np.ones((4, 3))
    rows[2, 1] = value
    return rows


ROWS = np.eye(2, dtype=np.float32)
REFUSED = {
    "other dimensions": (np.ones((4, 3)), np.ones((4, 5)), {}, ArgumentError),
    "one axis": (np.ones((4, 3)), np.ones(3), {}, ArgumentError),
    "a list": (np.ones((4, 3)), [[1, 2, 3]], {}, ArgumentTypeError),
    "NaN": (np.ones((4, 3)), with_value(np.nan), {}, ArgumentError),
    "huge": (np.ones((4, 3)), with_value(1e30), {}, ArgumentError),
    "infinity in half precision": (np.ones((4, 3)), with_value(np.inf).astype(np.float16), {}, ArgumentError),
    "an unknown filter": (np.ones((4, 3)), np.ones((4, 3)), {"filter": "wide"}, ArgumentError),
    "a number as a filter": (np.ones((4, 3)), np.ones((4, 3)), {"filter": 3}, ArgumentError),
    "an unknown device": (np.ones((4, 3)), np.ones((4, 3)), {"device": "abacus"}, ArgumentError),
    "a device without numbers": (np.ones((4, 3)), np.ones((4, 3)), {"device": "meta"}, ArgumentError),
    "another model": (made_features(2), made_features(2, model="other"), {}, ArgumentError),
    "other regions": (
        made_features(2, cut=64, magnification=8.0), made_features(2, cut=64, magnification=6.0), {}, ArgumentError,
    ),
    "a recorded limit that is no number": (
        made_features(2), made_features(2, match_ratio="wide"), {"filter": "ratio"}, ArgumentError,
    ),
    "no recorded distance": (made_features(2), made_features(2), {"filter": "distance"}, ArgumentError),
    "no recorded distance of rows": (ROWS, ROWS, {"filter": "both"}, ArgumentError),
    "AdaLAM of rows": (ROWS, ROWS, {"filter": "adalam"}, ArgumentError),
}  # fmt: skip


@pytest.mark.parametrize(("a", "b", "options", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_matched_is_refused(a, b, options, error):
    for sides in ((a, b), (b, a)):
        with refuses(error):
            match(*sides, **options)


def test_sift_of_other_magnifications_can_be_matched():
    assert len(match(made_features(2, magnification=8.0), made_features(2, magnification=6.0))) == 2


@pytest.mark.slow
def test_a_hundred_thousand_rows_in_bounded_memory():
    import resource

    generator = np.random.default_rng(0)
    a = generator.normal(size=(100_000, 128)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = match(a[:20_000], a[::-1], mutual=False)
    assert (found.indices[:, 1] == 99_999 - np.arange(20_000)).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 * 1024  # KiB; the rows alone are 50 MB


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same_matches():
    rows = np.random.default_rng(0).normal(size=(2, 3000, 128)).astype(np.float32)
    there, here = (match(*rows, device=device) for device in ("cuda", "cpu"))
    assert (there.indices == here.indices).all()
    assert np.abs(there.distances - here.distances).max() < 1e-12
    network = matchkernel.build("sum", generator=torch.Generator().manual_seed(0))
    assert open_describer(network, device="cuda").device == "cuda:0"
    found = [match_images(texture(), texture(), network, keypoints=50, device=device) for device in ("cuda", "cpu")]
    assert (found[0].matches.indices == found[1].matches.indices).all()


def test_a_describer_stays_on_its_device():
    describer = open_describer("sum", untrained=True, device="cpu")
    assert all(open_describer(describer, device=name) is describer for name in (None, "auto", "cpu"))
    elsewhere = copy(describer)
    elsewhere.device = "cuda"
    for other, device in ((elsewhere, "cpu"), (describer, "banana")):
        with refuses(ArgumentError):
            open_describer(other, device=device)


# Filters


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("none", [1, 1, 1, 1]),
        ("distance:0.5", [1, 1, 0, 0]),
        ("ratio:0.9", [1, 0, 1, 0]),
        ("either:0.9,0.5", [1, 1, 1, 0]),
        ("both:0.9,0.5", [1, 0, 0, 0]),
    ],
)
def test_what_each_filter_keeps(text, kept):
    """With limits of its own, or with those recorded with the features of either side."""
    distances, ratios = np.array([0.5, 0.1, 0.6, 0.7]), np.array([0.89, 0.9, 0.1, 0.95])
    found, plain = Matches(np.column_stack([np.arange(4)] * 2), distances, ratios), made_features(4)
    given_limits = parse_filter(text)
    recorded = made_features(4, match_ratio=given_limits.ratio, match_threshold=given_limits.distance)
    assert given_limits.keep(found, plain, plain).tolist() == [bool(k) for k in kept]
    for sides in ((plain, recorded), (recorded, plain)):
        assert Filter(given_limits.kind).keep(found, *sides).tolist() == [bool(k) for k in kept]
    assert Filter("ratio").keep(found, plain.descriptors, plain.descriptors).tolist() == [True, False, True, False]


def test_calibrated_limits_come_with_the_weights(tmp_path):
    for card, expected in (({"match_threshold": "0.75"}, (0.75, 0.9)), ({"match_ratio": "0.85"}, (None, 0.85))):
        matchkernel.save(matchkernel.build("sum"), tmp_path / "mine.safetensors", card)
        found = open_describer(tmp_path / "mine.safetensors").settings
        assert (found.get("match_threshold"), found["match_ratio"]) == expected
    by_name, by_model = (open_describer(model) for model in ("light", matchkernel.load("light")))
    assert (by_name.name, by_name.settings) == (by_model.name, by_model.settings)
    for name in matchkernel.available():
        Filter("distance").check_recorded(name, open_describer(name).settings)


def test_a_missing_distance_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("matchkernel.geometry.detect.Detector.detect", None)  # nothing is detected
    monkeypatch.setattr("matchkernel.collection.reconstruct.find_colmap", lambda: ("colmap",))
    network = matchkernel.build("fc")  # untrained: nothing was calibrated
    for act in (
        lambda: match_images(texture(), texture(), network, filter="distance"),
        lambda: reconstruct(tmp_path, tmp_path / "out", network, ReconstructSettings(filter="both")),
        lambda: MethodSpec("untrained:fc", Detector(), "either").open(),
    ):
        with refuses(ArgumentError):
            act()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "context"])  # it is not for every descriptor
def test_filtered_matches_are_some_of_all_mutual_ones_and_more_often_right(kind):
    image = texture(0, 200, 260)
    copied, H = turned(image, 20, 0.9)
    a, b = (extract(pixels, "rootsift", keypoints=250) for pixels in (image, copied))
    every, some = match(a, b), match(a, b, filter=kind)
    assert len(some) > 30
    assert {tuple(pair) for pair in some.indices.tolist()} <= {tuple(pair) for pair in every.indices.tolist()}
    assert (some.indices == match(a, b, filter=kind).indices).all()
    right = [transfer_errors(H, *found.points(a, b)) < 3 for found in (every, some)]
    assert len(some) == len(every) if kind == "none" else right[1].mean() > max(0.97, right[0].mean() + 0.05)
    for count in (0, 1, 2):
        few = made_features(count, match_threshold=0.5)
        assert len(match(few, few, filter=kind)) in ({count, 0} if kind == "adalam" else {count})


def test_adalam_needs_few_matches_and_kornia(monkeypatch):
    monkeypatch.setattr("matchkernel.photos.match.ADALAM_LIMIT", 2)
    with refuses(ArgumentError):
        match(made_features(3), made_features(3), filter="adalam")
    for missing in ("kornia", "torch"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"matchkernel\[kornia\]"):
        match(made_features(3), made_features(3), filter="adalam")
    with refuses(MissingExtraError):  # before photos are described
        parse_filter("adalam").check_recorded("tiny", {})


numbers = st.floats(0, 1, exclude_min=True)


@given(st.sampled_from(KINDS), numbers, numbers)
def test_a_filter_that_is_written_is_read_again(kind, ratio, distance):
    values = {"ratio": ratio, "distance": distance}
    for filter_ in (Filter(kind), Filter(kind, **{name: values[name] for name in NUMBERS[kind]})):
        assert parse_filter(str(filter_)) == filter_
        assert MatchSettings(filter=str(filter_)).filter == filter_


anything = st.one_of(st.floats().map(repr), st.text(max_size=5))


@given(
    st.text(max_size=30)
    | st.builds("{}:{}".format, st.sampled_from(KINDS), st.lists(anything, max_size=3).map(",".join))
)
def test_any_string_is_a_filter_or_refused_in_one_line(text):
    try:
        found = parse_filter(text)
    except ArgumentError as error:
        assert "\n" not in str(error)  # noqa: PT017 - or it is a filter
        assert len(str(error)) < 200  # noqa: PT017
    else:
        assert found.kind in KINDS
        assert found.ratio is None or 0 < found.ratio <= 1
        assert found.distance is None or 0 <= found.distance < np.inf


@pytest.mark.parametrize(
    "values",
    [
        "adalam:3", "ratio:", "ratio:0.8,0.7", "both:0.8", "distance:nan", "distance:-1", "ratio:1e999", "ratio:2", "",
        "wide", "either:0.8", ("ratio", None, 0.5), ("ratio", True), ("distance", None, "near"), ("wide",),
    ],
)  # fmt: skip
def test_filters_that_are_refused(values):
    with refuses(ArgumentError):
        parse_filter(values) if isinstance(values, str) else Filter(*values)
