"""Matching in context: equal to its definition, blind to how photos lie, and nothing but one line for bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
from damage import damaged
from helpers import attempt, refuses
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from matchkernel.data.sample_pair import FOLDER
from matchkernel.errors import ArgumentError, MatchKernelError, WeightsError
from matchkernel.geometry.frames import Frames
from matchkernel.photos.context import find_candidates, find_matcher, inputs, match_in_context
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features
from matchkernel.photos.match import Filter, align_matches, match, parse_filter
from matchkernel.runtime.context import SHIPPED, read_context
from matchkernel.storage.arrays import Stored, digest
from matchkernel.storage.images import read_gray


@pytest.fixture(scope="module")
def pair():
    return tuple(extract(FOLDER / name, "light-wide", keypoints=400) for name in ("left.png", "right.png"))


def moved(features, angle=0.0, shift=(0.0, 0.0), zoom=1.0, order=None):
    """The features of the same photo turned, shifted and zoomed."""
    turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    frames = Frames(features.frames.centers @ turn.T + shift, turn @ features.frames.shapes)
    size = tuple(int(side * zoom) for side in features.image_size)
    changed = Features(frames, features.descriptors, features.scores, size, features.model, features.settings)
    return changed if order is None else changed[order]


def pairs(found):
    return set(map(tuple, found.indices.tolist()))


def random_features(count, like, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 128)).astype(np.float32)
    frames = Frames.turned_squares(rng.uniform(0, 600, (count, 2)), rng.uniform(6, 60, count), rng.uniform(0, 6, count))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return Features(frames, unit, np.ones(count, np.float32), (600, 600), like.model, like.settings)


def among_others(features, count, seed):
    """So many keypoints: the first ones of the photo, or all of them among random ones."""
    more = random_features(max(count - len(features), 0), features, seed)
    frames = [np.concatenate([getattr(one.frames, name) for one in (features, more)]) for name in ("centers", "shapes")]
    rows, scores = (
        np.concatenate([getattr(one, name) for one in (features, more)]) for name in ("descriptors", "scores")
    )
    return replace(features, frames=Frames(*frames), descriptors=rows, scores=scores)[:count]


def linear(tensors, name, x):
    return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def gelu(x):
    from scipy.special import erf

    return x * (1 + erf(x / np.sqrt(2))) / 2


def by_definition(weights, given):
    """The logits, written as the formulas of runtime.context, in float64."""
    tensors = {name: np.asarray(values, np.float64) for name, values in weights.tensors.items()}
    a = given["similarity"].astype(np.float64) @ [1, 1j]
    z_a, z_b = (given[f"places_{side}"].astype(np.float64) @ [1, 1j] for side in "ab")
    v, w = z_a[None] - z_a[:, None], z_b[None] - z_b[:, None]
    e = np.abs(w - a[:, None] * v) / (np.abs(w) + np.abs(a[:, None] * v) + 1e-4)
    turn = 1 - np.cos(np.angle(a)[:, None] - np.angle(a))
    scale = (np.log2(np.abs(a))[:, None] - np.log2(np.abs(a))) ** 2
    terms = np.stack([(e**2 + e.T**2) / 2, np.abs(v) * np.abs(w), turn, scale], -1)
    phi = np.exp(-terms @ np.asarray(weights.kernels, np.float64).T)
    phi[np.arange(len(a)), np.arange(len(a))] = 0
    K = phi.shape[-1]
    x = linear(tensors, "first.2", gelu(linear(tensors, "first.0", given["features"].astype(np.float64))))
    for number in range(weights.layers):
        name = f"layers.{number}"
        gate = 1 / (1 + np.exp(-linear(tensors, f"{name}.gate", x)))
        values = linear(tensors, f"{name}.value", x).reshape(len(x), K, -1)
        total = np.einsum("cdk,dk->ck", phi, gate)[..., None]
        means = np.einsum("cdk,dk,dkv->ckv", phi, gate, values) / (total + 0.1)
        message = np.concatenate([np.log1p(total), means], -1).reshape(len(x), -1)
        up = linear(tensors, f"{name}.up", np.concatenate([x, message], 1))
        normed = (up - up.mean(1, keepdims=True)) / np.sqrt(up.var(1, keepdims=True) + 1e-5)
        inner = gelu(normed * tensors[f"{name}.norm.weight"] + tensors[f"{name}.norm.bias"])
        x = x + linear(tensors, f"{name}.down", inner)
    return linear(tensors, "out", x)[:, 0]


def test_the_graph_computes_its_definition(pair):
    matcher = find_matcher(pair[0].model, pair[0].settings)
    given = inputs(*pair, find_candidates(pair[0].descriptors, pair[1].descriptors, 200))
    logits = matcher.session.run(["logits"], given)[0]
    np.testing.assert_allclose(logits, by_definition(matcher.weights, given), atol=2e-3)


def test_it_finds_matches_that_the_ratio_test_rejects(pair):
    judged, tested = (set(map(tuple, match(*pair, filter=kind).indices.tolist())) for kind in ("context", "ratio"))
    assert judged - tested


@pytest.mark.parametrize(
    "change", [{"angle": 2.0}, {"angle": np.pi / 2, "shift": (30, -200)}, {"zoom": 2.0}, {"zoom": 0.5, "angle": -1.0}]
)
def test_turning_moving_and_zooming_a_photo_changes_no_match(pair, change):
    a, b = pair
    assert pairs(match_in_context(a, moved(b, **change))) == pairs(match_in_context(a, b))


def test_the_order_of_photos_and_of_keypoints_does_not_matter(pair):
    a, b = pair
    found = pairs(match_in_context(a, b))
    assert {(i, j) for j, i in pairs(match_in_context(b, a))} == found
    order = np.random.default_rng(0).permutation(len(b))
    assert {(i, int(order[j])) for i, j in pairs(match_in_context(a, moved(b, order=order)))} == found


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_keypoints_are_no_problem(pair, count):
    few = pair[0][:count]
    for found in (match_in_context(few, pair[1]), match_in_context(pair[1], few), match_in_context(few, few)):
        assert len(found) <= count
        assert np.isfinite(found.distances).all()


def test_of_equal_keypoints_one_is_matched(pair):
    twice = [features[np.repeat(np.arange(len(features)), 2)] for features in pair]
    for a, b in ((twice[0], pair[1]), (pair[0], twice[1]), twice):
        i, j = match_in_context(a, b).indices.T
        assert len(set(i.tolist())) == len(set(j.tolist())) == len(i) > 100


@pytest.mark.parametrize("part", ["centers", "shapes"])
def test_keypoints_that_are_not_finite_are_refused(pair, part):
    arrays = {name: getattr(pair[0].frames, name).copy() for name in ("centers", "shapes")}
    arrays[part][7] = np.nan
    bad = replace(pair[0], frames=Frames(**arrays))
    for a, b, side in ((bad, pair[1], "A"), (pair[1], bad, "B")):
        with pytest.raises(ArgumentError, match=f"keypoint 7 of {side} has a place or region that is not finite"):
            match(a, b, filter="context")


@pytest.mark.parametrize("side", [0, 1])
def test_keypoints_without_sizes_are_neither_judged_nor_aligned(pair, side):
    given, found = list(pair), match(*pair, filter="ratio")
    given[side] = replace(given[side], frames=Frames.of_points(given[side].keypoints))
    with pytest.raises(ArgumentError, match=f"keypoints of {'AB'[side]} have no sizes"):
        match(*given, filter="context")
    with pytest.raises(ArgumentError, match="have no sizes"):
        align_matches(found, *given, *(read_gray(FOLDER / name) for name in ("left.png", "right.png")))


def test_unrelated_rows_have_hardly_any_matches(pair):
    assert len(match_in_context(random_features(1000, pair[0], 0), random_features(1000, pair[0], 1))) < 5


def test_rows_of_zeros_match_nothing(pair):
    blank = pair[0].descriptors.copy()
    blank[::2] = 0
    a = Features(pair[0].frames, blank, pair[0].scores, pair[0].image_size, pair[0].model, pair[0].settings)
    assert not any(i % 2 == 0 for i, _ in pairs(match_in_context(a, pair[1])))


def test_a_region_without_area_spoils_no_other_match(pair):
    a, b = pair
    shapes = b.frames.shapes.copy()
    shapes[7] = 0
    flat = Features(Frames(b.frames.centers, shapes), b.descriptors, b.scores, b.image_size, b.model, b.settings)
    assert len(match_in_context(a, flat)) >= len(match_in_context(a, b)) - 3


def test_candidates_are_neighbours_of_either_side():
    rng = np.random.default_rng(3)
    rows_a, rows_b = (rng.normal(size=(count, 8)).astype(np.float32) for count in (40, 30))
    rows_a, rows_b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (rows_a, rows_b))
    distances = np.linalg.norm(rows_a[:, None] - rows_b[None], axis=2)
    wanted = {(i, int(j)) for i in range(40) for j in np.argsort(distances[i])[:2]}
    wanted |= {(int(i), j) for j in range(30) for i in np.argsort(distances[:, j])[:2]}
    found = find_candidates(rows_a, rows_b, 1000)
    assert set(map(tuple, found.indices.tolist())) == wanted
    for (i, j), distance, ratios in zip(found.indices, found.distances, found.ratios, strict=True):
        others = np.delete(distances[i], j).min(), np.delete(distances[:, j], i).min()
        np.testing.assert_allclose([distance, *ratios], [distances[i, j], *(distances[i, j] / others)], rtol=1e-4)
    few = find_candidates(rows_a, rows_b, 10)
    assert set(map(tuple, few.indices.tolist())) <= wanted
    assert len(few.indices) == 10


def test_the_filter_has_a_name_and_a_limit(pair):
    assert str(parse_filter("context:0.7")) == "context:0.7"
    strict, loose = (match(*pair, filter=f"context:{chance}") for chance in (0.95, 0.3))
    assert pairs(strict) < pairs(loose)


@pytest.mark.parametrize("text", ["context:0", "context:1", "context:nan", "context:0.5,0.5", "context:x"])
def test_other_limits_are_refused(text):
    with refuses(ArgumentError):
        parse_filter(text)


def test_rows_of_other_models_are_refused(pair):
    other = extract(FOLDER / "left.png", "rootsift", keypoints=50)
    for a, b in ((other, other), (pair[0].descriptors, pair[1].descriptors)):
        with refuses(ArgumentError):
            match(a, b, filter="context")
    changed = Features(*(getattr(pair[0], name) for name in ("frames", "descriptors", "scores", "image_size", "model")))
    with refuses(ArgumentError):
        match(changed, changed, filter=Filter("context"))


def rewritten(path, change):
    """A copy of the shipped weights with changed facts or tensors, and a valid digest."""
    tensors, facts = (
        load_file(SHIPPED / "light-wide.safetensors"),
        dict(read_context(SHIPPED / "light-wide.safetensors").facts),
    )
    change(tensors, facts)
    strings = {"matchkernel": json.dumps(facts)}
    stored = {name: Stored("F32", values.shape, values.tobytes()) for name, values in tensors.items()}
    save_file(tensors, path, metadata={**strings, "sha256": digest(strings, stored)})


def test_a_rewritten_file_is_read(tmp_path):
    rewritten(tmp_path / "same.safetensors", lambda tensors, facts: None)
    assert read_context(tmp_path / "same.safetensors").layers == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, facts: facts.pop("threshold"),
        lambda tensors, facts: facts.update(d=65),
        lambda tensors, facts: facts.update(layers="many"),
        lambda tensors, facts: facts.update(layers=10**12),
        lambda tensors, facts: facts.update(candidates=float("inf")),
        lambda tensors, facts: facts.update(kind="something else"),
        lambda tensors, facts: facts.pop("descriptor_sha256"),
        lambda tensors, facts: facts.update(descriptor="two\nlines"),
        lambda tensors, facts: tensors.pop("out.bias"),
        lambda tensors, facts: tensors.update(more=np.zeros(3, np.float32)),
        lambda tensors, facts: tensors["out.bias"].fill(np.nan),
    ],
)
def test_a_foreign_or_damaged_matcher_is_refused(tmp_path, change):
    rewritten(tmp_path / "bad.safetensors", change)
    with refuses(WeightsError):
        read_context(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("length", [0, 5, 100, 5000, -1])
def test_a_matcher_that_was_cut_off_is_refused(tmp_path, length):
    content = (SHIPPED / "light-wide.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(content[:length])
    with refuses(WeightsError):
        read_context(tmp_path / "cut.safetensors")


def test_weights_of_a_descriptor_are_no_matcher():
    with refuses(WeightsError):
        read_context(SHIPPED.parent / "trained" / "tiny.safetensors")


@pytest.mark.parametrize("counts", [(0, 400), (400, 0), (1, 1), (1, 400), (2, 2), (400, 400), (10_000, 10_000)])
def test_torch_finds_the_same_matches(pair, counts):
    import torch

    from matchkernel.model.context import ContextNetwork, Keypoints

    network = ContextNetwork.load(SHIPPED / "light-wide.safetensors").eval()
    given = [
        among_others(features, count, seed) for seed, (features, count) in enumerate(zip(pair, counts, strict=True))
    ]
    sides = [
        Keypoints.of(*map(torch.from_numpy, (f.keypoints, f.orientations, f.scales, f.descriptors)), f.image_size)
        for f in given
    ]
    found = pairs(match_in_context(*given))
    assert set(map(tuple, network.match(*sides)[0].tolist())) == found
    assert len(found) > 50 or min(counts) < 400


@pytest.fixture
def own(tmp_path):
    """A matcher of a user's own for light-wide: the shipped one with another threshold."""
    rewritten(tmp_path / "own.safetensors", lambda tensors, facts: facts.update(threshold=0.9))
    return tmp_path / "own.safetensors"


def test_a_matcher_of_your_own_is_read_from_a_file(pair, own):
    found = {text: pairs(match(*pair, filter=text)) for text in ("context:0.9", f"context:{own}", f"context:{own}:0.5")}
    assert found["context:0.9"] == found[f"context:{own}"] < found[f"context:{own}:0.5"]
    assert found[f"context:{own}:0.5"] == pairs(match(*pair, filter="context"))
    assert str(parse_filter(f"context:{own}:0.5")) == "context:own.safetensors:0.5"


def test_equal_files_share_a_session_and_others_do_not(pair, own):
    copy = own.with_name("copy.safetensors")
    copy.write_bytes(own.read_bytes())
    settings = pair[0].model, pair[0].settings
    first, second = (find_matcher(*settings, read_context(path)) for path in (own, copy))
    assert first is second
    assert first is not find_matcher(*settings)


def test_a_matcher_for_other_rows_is_refused_and_both_are_named(own):
    other = extract(FOLDER / "left.png", "tiny", keypoints=20)
    with pytest.raises(ArgumentError, match=r"own judges rows of light-wide \(\w{8}\), not of tiny \(\w{8}\)"):
        match(other, other, filter=f"context:{own}")


@pytest.mark.parametrize("rest", [":", ":0", ":x", "0.5", ":0.5,0.5", "x:0.5"])
def test_what_follows_a_file_must_be_a_chance(own, rest):
    with refuses(ArgumentError):
        parse_filter(f"context:{own}{rest}")


def test_a_file_that_is_no_matcher_is_refused(tmp_path):
    (tmp_path / "odd.safetensors").write_bytes(b"odd")
    for path in (tmp_path / "odd.safetensors", tmp_path / "missing.safetensors", tmp_path):
        with refuses(MatchKernelError):
            parse_filter(f"context:{path}")


def test_a_matcher_for_rootsift_is_found_by_its_name(tmp_path):
    a, b = (extract(FOLDER / name, "rootsift", keypoints=200) for name in ("left.png", "right.png"))
    sift = extract(FOLDER / "left.png", "sift", keypoints=20)
    facts = {"descriptor": "rootsift", "descriptor_sha256": "rootsift"}
    rewritten(tmp_path / "own.safetensors", lambda _, old: old.update(facts))
    assert len(match(a, b, filter=f"context:{tmp_path}/own.safetensors")) > 50
    with pytest.raises(ArgumentError, match="judges rows of rootsift, not of sift:"):
        match(sift, sift, filter=f"context:{tmp_path}/own.safetensors")


@given(data=st.data())
def test_a_damaged_file_is_the_same_matcher_or_refused_in_one_line(tmp_path_factory, data):
    whole = (SHIPPED / "light-wide.safetensors").read_bytes()
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(damaged(data, whole))
    found, message = attempt(parse_filter, f"context:{path}")
    assert len(message.splitlines()) == (found is None)
    assert found is None or found.weights == read_context(SHIPPED / "light-wide.safetensors")
