"""Which matches each filter keeps, how filters are written, and what is refused."""

import sys

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_images import texture, turned

import matchkernel
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import warp_points
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.match import NUMBERS, Filter, match, parse_filter
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
    with refuses(ArgumentError):
        Filter("ratio").keep(found, features(2, match_ratio="wide"), features(2))


@pytest.mark.parametrize("kind", ["distance", "either", "both"])
def test_a_distance_that_is_neither_given_nor_recorded_is_refused(kind):
    found = made_matches([0.1, 9.0], [0.89, 0.91])
    for sides in ((features(2), features(2)), (np.eye(2), np.eye(2))):
        with refuses(ArgumentError):
            Filter(kind).keep(found, *sides)
    assert Filter(kind, distance=9.0).keep(found, np.eye(2), np.eye(2)).any()


def test_a_missing_distance_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("matchkernel.geometry.detect.Detector.detect", None)  # nothing is detected
    network = matchkernel.build("fc")  # untrained: nothing was calibrated
    with refuses(ArgumentError):
        matchkernel.match_images(texture(), texture(), network, filter="distance")
    with refuses(ArgumentError):
        reconstruct(tmp_path, tmp_path / "out", network, ReconstructSettings(filter="both"))
    with refuses(ArgumentError):
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


def test_adalam_needs_keypoints_few_matches_and_kornia(monkeypatch):
    with refuses(ArgumentError):
        match(np.eye(3), np.eye(3), filter="adalam")
    monkeypatch.setattr("matchkernel.photos.match.ADALAM_LIMIT", 2)
    with refuses(ArgumentError):
        match(features(3), features(3), filter="adalam")
    monkeypatch.setitem(sys.modules, "kornia", None)
    with refuses(MissingExtraError):
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


TEXTS = ["adalam:3", "ratio:", "ratio:0.8,0.7", "both:0.8", "distance:nan", "distance:-1", "ratio:1e999", "ratio:2", ""]


@pytest.mark.parametrize("text", [*TEXTS, "wide", "either:0.8"])
def test_strings_that_are_refused(text):
    with refuses(ArgumentError):
        parse_filter(text)


@pytest.mark.parametrize("values", [("ratio", None, 0.5), ("ratio", True), ("distance", None, "near"), ("wide",)])
def test_values_that_are_refused(values):
    with refuses(ArgumentError):
        Filter(*values)
