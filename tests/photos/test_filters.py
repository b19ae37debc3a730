"""Which matches each filter keeps, how filters are written, and what is refused."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import texture, turned

import matchkernel
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.homography import warp_points
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.filters import NUMBERS, Filter, parse_filter
from matchkernel.photos.match import match
from matchkernel.photos.pipeline import MatchSettings

KINDS = list(NUMBERS)


def features(count, **settings):
    points = np.random.default_rng(0).uniform(0, 100, (count, 2))
    frames = Frames.turned_squares(points, np.full(count, 5.0), np.zeros(count))
    rows = np.eye(max(count, 1), dtype=np.float32)[:count]
    return Features(frames, rows, np.ones(count), (100, 100), "ours", settings)


def made_matches(distances, ratios):
    indices = np.column_stack([np.arange(len(distances))] * 2)
    return Matches(indices, np.array(distances, float), np.array(ratios, float))


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
def test_what_each_keeps(text, kept):
    found = made_matches([0.5, 0.1, 0.6, 0.7], [0.89, 0.9, 0.1, 0.95])
    numbers = parse_filter(text)
    recorded = features(4, match_ratio=numbers.ratio, match_threshold=numbers.distance)
    assert numbers.keep(found, features(4), features(4)).tolist() == [bool(k) for k in kept]
    assert Filter(numbers.kind).keep(found, features(4), recorded).tolist() == [bool(k) for k in kept]


def test_without_recorded_limits_ratios_are_those_of_learned_rows():
    found = made_matches([0.1, 9.0], [0.89, 0.91])
    for sides in ((features(2), features(2)), (np.eye(2), np.eye(2))):
        assert Filter("ratio").keep(found, *sides).tolist() == [True, False]
    with pytest.raises(ArgumentError, match="match_ratio must be above 0"):
        Filter("ratio").keep(found, features(2, match_ratio="wide"), features(2))


@pytest.mark.parametrize(
    ("kind", "example"),
    [("distance", r"distance:0\.8"), ("either", r"either:0\.9,0\.8"), ("both", r"both:0\.9,0\.8")],
)
def test_without_a_recorded_distance_none_is_tested_in_silence(kind, example):
    found, message = made_matches([0.1, 9.0], [0.89, 0.91]), f"no distance is recorded .*: give one, such as {example}$"
    for sides in ((features(2), features(2)), (np.eye(2), np.eye(2))):
        with pytest.raises(ArgumentError, match=message):
            Filter(kind).keep(found, *sides)
    assert Filter(kind, distance=9.0).keep(found, np.eye(2), np.eye(2)).any()


def test_a_missing_distance_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("matchkernel.geometry.detect.Detector.detect", None)  # nothing is detected
    monkeypatch.setattr("matchkernel.collection.reconstruct.find_colmap", lambda: "colmap")
    network = matchkernel.build("fc")  # untrained: nothing was calibrated
    image = texture(0, 100, 100)
    with pytest.raises(ArgumentError, match="no distance is recorded"):
        matchkernel.match_images(image, image, network, filter="distance")
    with pytest.raises(ArgumentError, match="no distance is recorded"):
        reconstruct(tmp_path, tmp_path / "out", network, ReconstructSettings(filter="both"))
    with pytest.raises(ArgumentError, match="no distance is recorded"):
        MethodSpec("untrained:fc", Detector(), "either").open()


def test_every_shipped_model_has_a_distance():
    for name in matchkernel.available():
        Filter("distance").check_recorded(open_describer(name).settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_none_one_and_two_matches(kind, count):
    one = features(count, match_threshold=0.5)
    assert Filter(kind).keep(made_matches([0.0] * count, [0.0] * count), one, one).shape == (count,)
    assert len(match(one, one, filter=kind)) in ({count, 0} if kind == "adalam" else {count})


@pytest.mark.parametrize("kind", KINDS)
def test_filtered_matches_are_some_of_all_mutual_ones(kind):
    image = texture(0, 200, 260)
    copy, H = turned(image, 20, 0.9)
    a, b = (extract(pixels, "rootsift", keypoints=250) for pixels in (image, copy))
    every, some = match(a, b), match(a, b, filter=kind)
    assert len(some) > 30
    assert {tuple(pair) for pair in some.indices.tolist()} <= {tuple(pair) for pair in every.indices.tolist()}
    assert (some.indices == match(a, b, filter=kind).indices).all()
    right = [
        (np.linalg.norm(warp_points(H, a.keypoints[m.indices[:, 0]])[0] - b.keypoints[m.indices[:, 1]], axis=1) < 3)
        for m in (every, some)
    ]
    if kind == "none":
        assert len(some) == len(every)
    else:
        assert right[1].mean() > right[0].mean() + 0.05
        assert right[1].mean() > 0.97


def test_adalam_says_what_it_needs(monkeypatch):
    rows = np.eye(3)
    with pytest.raises(ArgumentError, match="adalam needs keypoints"):
        match(rows, rows, filter="adalam")
    monkeypatch.setattr("matchkernel.photos.filters.MOST_FOR_ADALAM", 2)
    with pytest.raises(ArgumentError, match="at most 2 matches, here are 3"):
        match(features(3), features(3), filter="adalam")
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(MissingExtraError, match=r"the filter adalam needs kornia: pip install 'matchkernel\[kornia\]'"):
        match(features(3), features(3), filter="adalam")


numbers = st.floats(0, 1, exclude_min=True)


@given(st.sampled_from(KINDS), numbers, numbers)
def test_what_is_written_is_read_again(kind, ratio, distance):
    values = {"ratio": ratio, "distance": distance}
    for filter_ in (Filter(kind), Filter(kind, **{name: values[name] for name in NUMBERS[kind]})):
        assert parse_filter(str(filter_)) == filter_
        assert MatchSettings(filter=str(filter_)).filter == filter_


@given(
    st.one_of(
        st.text(max_size=30),
        st.builds(
            "{}:{}".format,
            st.sampled_from(KINDS),
            st.lists(st.one_of(st.floats().map(repr), st.text(max_size=5)), max_size=3).map(",".join),
        ),
    )
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
    ("make", "message"),
    [
        (lambda: parse_filter("adalam:3"), "the filter adalam takes no number"),
        (lambda: parse_filter("ratio:"), r"written ratio:0\.85"),
        (lambda: parse_filter("ratio:0.8,0.7"), "the filter ratio takes a ratio"),
        (lambda: parse_filter("both:0.8"), "the filter both takes a ratio and a distance"),
        (lambda: parse_filter("distance:nan"), "distance must be a distance"),
        (lambda: parse_filter("ratio:1e999"), "ratio must be above 0 and at most 1"),
        (lambda: parse_filter(""), "filter must be one of"),
        (lambda: Filter("ratio", distance=0.5), "the filter ratio takes no distance"),
        (lambda: Filter("ratio", True), "ratio must be"),
        (lambda: MatchSettings(filter=3), "filter must be a Filter or a string"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
