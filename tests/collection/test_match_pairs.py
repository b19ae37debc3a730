"""Many pairs matched: as one by one, in blocks that share images, by any workers, interrupted, with faults."""

import itertools
import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_collection import write_made_features

from matchkernel.collection import match as matching
from matchkernel.collection import pair_blocks
from matchkernel.collection.match import Matcher, PairTask, match_pairs
from matchkernel.data.sample_pair import FOLDER
from matchkernel.errors import ArgumentError, FileError
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.extract import extract
from matchkernel.photos.feature_files import append_features, read_features
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.match_files import read_matches, recorded_matches, write_matches
from matchkernel.photos.pipeline import MatchSettings, match_features
from matchkernel.runtime.context import SHIPPED, read_context
from matchkernel.storage.pool import LocalWorkers

SETTINGS = MatchSettings(geometry="none")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Features in an .h5 and in a folder, and pairs; read only."""
    folder = tmp_path_factory.mktemp("made")
    place, pairs = write_made_features(folder)
    write_made_features(folder / "again", kind="rows")
    return place, folder / "again" / "rows", pairs


@pytest.mark.parametrize("geometry", ["none", "homography"])
def test_every_pair_as_if_alone(geometry, made, tmp_path):
    place, rows, pairs = made
    settings = MatchSettings(geometry=geometry)
    report = match_pairs(place, pairs, [tmp_path / "m.h5", tmp_path / "m.txt"], settings)
    assert (report.pairs, report.done, report.kept, report.skipped) == (15, 15, 0, {})
    listed = (tmp_path / "m.txt").read_text()
    for a, b in pairs:
        expected = match_features(read_features(place, a), read_features(place, b), settings)
        kept = expected.matches[expected.inliers]
        found = read_matches(tmp_path / "m.h5", a, b)
        assert (found.indices == kept.indices).all()
        assert np.abs(found.scores - (1 - kept.distances**2 / 4)).max(initial=0) < 1e-3
        lines = "".join(f"{i} {j}\n" for i, j in kept.indices)
        assert not len(kept) or f"{a} {b}\n{lines}\n" in listed
    assert report.matches == listed.count("\n") - 2 * listed.count("png\n") > 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.h5", "m.txt"]
    if geometry == "none":  # float64 places in the folder, float32 in the .h5: neighbours are the same
        assert match_pairs(rows, pairs, [tmp_path / "rows.txt"], settings).matches == report.matches


def test_the_same_bytes_by_processes_and_after_an_interruption(made, tmp_path, monkeypatch):
    place, _, pairs = made
    outs = {name: [tmp_path / f"{name}.h5", tmp_path / f"{name}.txt"] for name in ("here", "processes", "stopped")}
    match_pairs(place, pairs, outs["here"], SETTINGS)
    match_pairs(place, pairs, outs["processes"], SETTINGS, workers=LocalWorkers(2))
    do, calls = Matcher.match_block, []

    def once(self, task):
        if calls:
            raise KeyboardInterrupt
        calls.append(task)
        return do(self, task)

    monkeypatch.setattr(Matcher, "match_block", once)
    with pytest.raises(KeyboardInterrupt):
        match_pairs(place, pairs, outs["stopped"], SETTINGS)
    monkeypatch.undo()
    assert len(list((tmp_path / "stopped.h5.parts").glob("*.npz"))) == 1
    seen = []
    report = match_pairs(place, pairs, outs["stopped"], SETTINGS, progress=lambda *counts: seen.append(counts))
    assert (report.done, report.kept) == (len(pairs) - len(calls[0]), len(calls[0]))
    assert (seen[0], seen[-1]) == ((0, 15), (15, 15))
    assert len({files[0].read_bytes() for files in outs.values()}) == 1
    assert len({files[1].read_bytes() for files in outs.values()}) == 1


def test_two_runs_never_write_one_file_whichever_of_their_outputs_it_is(made, tmp_path, monkeypatch):
    place, _, pairs = made
    do, refusals = Matcher.match_block, []

    def meets_another(self, tasks):
        monkeypatch.setattr(Matcher, "match_block", do)
        with refuses(FileError):
            match_pairs(place, pairs[5:], [tmp_path / "b.txt", tmp_path / "both.h5"], SETTINGS)
        refusals.append(sorted(path.name for path in tmp_path.iterdir()))
        return do(self, tasks)

    monkeypatch.setattr(Matcher, "match_block", meets_another)
    match_pairs(place, pairs[:5], [tmp_path / "a.txt", tmp_path / "both.h5"], SETTINGS)
    assert refusals == [["a.txt.parts", "both.h5.parts"]]
    match_pairs(place, pairs[5:], [tmp_path / "b.txt", tmp_path / "both.h5"], SETTINGS)
    assert len(recorded_matches(tmp_path / "both.h5", pairs)[1]) == len(pairs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "both.h5"]


@pytest.mark.parametrize("kind", ["features.h5", "rows"])
def test_pairs_of_features_that_were_edited_are_matched_again(kind, tmp_path):
    place, pairs = write_made_features(tmp_path, 3, kind)
    match_pairs(place, pairs, [tmp_path / "m.h5"], SETTINGS)
    name = pairs[0][0]  # in two of the three pairs
    one = read_features(place, name) if kind == "features.h5" else load_features(place / f"{name}.npz")
    edited = replace(one, descriptors=one.descriptors[::-1].copy())
    append_features(place, name, edited) if kind == "features.h5" else save_features(edited, place / f"{name}.npz")
    report = match_pairs(place, pairs, [tmp_path / "m.h5"], SETTINGS)
    assert (report.done, report.kept) == (2, 1)
    found = read_matches(tmp_path / "m.h5", *pairs[0])
    match_pairs(place, pairs, [tmp_path / "new.h5"], SETTINGS)
    assert (found.indices == read_matches(tmp_path / "new.h5", *pairs[0]).indices).all()


@pytest.mark.parametrize("kind", ["features.h5", "rows"])
def test_matches_of_features_that_are_gone_or_damaged_are_removed(kind, tmp_path):
    """Also where a pair is listed the other way round; pairs that are not listed are left alone."""
    place, pairs = write_made_features(tmp_path, 4, kind)
    out, said = [tmp_path / "m.h5", tmp_path / "m.txt"], []
    match_pairs(place, pairs, out, SETTINGS)
    gone, unlisted = "03.png", ("02.png", "03.png")
    if kind == "rows":
        (place / f"{gone}.npz").write_bytes(b"PK broken")
    else:
        with h5py.File(place, "a") as file:
            del file[gone]
    listed = [pair[::-1] if gone in pair else pair for pair in pairs if pair != unlisted]
    for removed in (2, 0):
        said.clear()
        report = match_pairs(place, listed, out, SETTINGS, say=said.append)
        assert (report.kept, list(report.skipped)) == (3, [gone])
        told = [f"{out[0]}: pairs of earlier features removed: {removed}"] if removed else []
        assert [line for line in said if "removed" in line] == told
    left = recorded_matches(out[0], pairs)[1]
    assert [pair for pair in pairs if gone not in pair or pair == unlisted] == list(left)
    assert gone not in out[1].read_text()


@pytest.mark.parametrize("number", [0, 2])  # the first file and the last
def test_features_that_were_damaged_and_repaired_are_used_by_the_run_that_resumes(number, tmp_path, monkeypatch):
    place, pairs = write_made_features(tmp_path, 3, "rows")
    broken = sorted(place.iterdir())[number]
    whole, content = broken.read_bytes(), bytearray(broken.read_bytes())
    content[content.index(b"descriptors.npy") + 200] ^= 1
    broken.write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(matching, "_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            match_pairs(place, pairs, [tmp_path / "m.h5"], SETTINGS)
    broken.write_bytes(whole)
    report = match_pairs(place, pairs, [tmp_path / "m.h5"], SETTINGS)
    assert report.skipped == {}
    assert len(recorded_matches(tmp_path / "m.h5", pairs)[1]) == 3


def test_names_with_the_same_key_in_one_direction_are_refused(tmp_path):
    place, _ = write_made_features(tmp_path, 2, "rows")
    for name in ("a-b.jpg", "a/b.jpg"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(place / "00.png.npz", place / f"{name}.npz")
    with refuses(ArgumentError):
        match_pairs(place, [("a/b.jpg", "01.png"), ("01.png", "a-b.jpg")], [tmp_path / "m.h5"], SETTINGS)


def test_a_list_of_another_collection_is_said_in_a_few_lines(made, tmp_path):
    place, _, pairs = made
    unknown = [(f"{number}.jpg", f"{number}.tif") for number in range(500)]
    said = []
    report = match_pairs(place, [*unknown, pairs[0]], [tmp_path / "m.h5"], SETTINGS, say=said.append)
    assert (report.done, len(report.skipped)) == (1, 1000)
    assert len(said) < 30
    assert "980 more" in said[-1]


def test_more_pairs_are_added_and_the_others_kept(made, tmp_path):
    place, _, pairs = made
    out = tmp_path / "m.h5"
    first = match_pairs(place, pairs[:5], [out], SETTINGS)
    report = match_pairs(place, [*pairs, pairs[0], pairs[1][::-1]], [out], SETTINGS)
    assert (first.done, report.pairs, report.done, report.kept) == (5, 15, 10, 5)
    again = match_pairs(place, pairs, [out, tmp_path / "m.txt"], SETTINGS)
    assert (again.done, again.kept, again.matches) == (0, 15, report.matches)
    text = (tmp_path / "m.txt").read_text()
    assert again.matches == text.count("\n") - 2 * text.count("png\n")


def test_changed_features_are_matched_again(made, tmp_path):
    _, rows, pairs = made
    place, out = tmp_path / "rows", tmp_path / "m.h5"
    shutil.copytree(rows, place)
    match_pairs(place, pairs, [out], SETTINGS)
    features = load_features(place / "00.png.npz")
    changed = dict(features.settings) | {"image_sha256": "other"}
    save_features(
        type(features)(features.frames, features.descriptors, features.scores, (9, 9), features.model, changed),
        place / "00.png.npz",
    )
    assert match_pairs(place, pairs, [out], SETTINGS).done == 5  # those with image 00


def test_features_of_other_programs_are_told_by_their_numbers(made, tmp_path):
    place, _, pairs = made
    theirs, out = tmp_path / "theirs.h5", tmp_path / "m.h5"
    for name in ("00.png", "01.png"):
        append_features(theirs, name, read_features(place, name))
    with h5py.File(theirs, "a") as file:
        for name in ("00.png", "01.png"):
            del file[name].attrs["matchkernel"]
    assert match_pairs(theirs, pairs[:1], [out], SETTINGS).done == 1
    assert match_pairs(theirs, pairs[:1], [out], SETTINGS).kept == 1
    with h5py.File(theirs, "a") as file:
        rows = file["00.png"]["descriptors"][()]
        file["00.png"]["descriptors"][...] = rows[::-1]
    assert match_pairs(theirs, pairs[:1], [out], SETTINGS).done == 1


def test_images_without_features_are_named_once(made, tmp_path):
    _, rows, pairs = made
    place = tmp_path / "rows"
    shutil.copytree(rows, place)
    (place / "01.png.npz").write_bytes(b"PK broken")
    path = place / "02.png.npz"  # whole to look at, damaged inside
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    said = []
    wanted = [*pairs, ("00.png", "nowhere.png"), ("nowhere.png", "03.png")]
    report = match_pairs(place, wanted, [tmp_path / "m.txt", tmp_path / "m.h5"], SETTINGS, say=said.append)
    assert list(report.skipped) == ["01.png", "nowhere.png", "02.png"]
    assert len(said) == 3
    assert all(name in line for name, line in zip(report.skipped, said, strict=True))
    assert report.done == 6  # 00, 03, 04, 05
    assert report.pairs == 17


def test_a_damaged_or_foreign_block_is_matched_again(made, tmp_path, monkeypatch):
    place, _, pairs = made
    out = tmp_path / "m.txt"
    match_pairs(place, pairs, [out], SETTINGS)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    match_pairs(place, pairs, [out], SETTINGS)
    expected, parts = out.read_bytes(), sorted((tmp_path / "m.txt.parts").glob("*.npz"))
    first, second = parts[:2]
    whole = first.read_bytes()
    inside = whole.index(b"indices.npy") + 250  # among the numbers
    flipped = whole[:inside] + bytes([whole[inside] ^ 1]) + whole[inside + 1 :]
    for content in (whole[:100], b"", second.read_bytes(), flipped):
        first.write_bytes(content)
        report = match_pairs(place, pairs, [out], SETTINGS)
        assert report.done in (7, 8)
        assert first.read_bytes() == whole
        assert out.read_bytes() == expected


def test_wrong_places_and_settings_are_refused(made, tmp_path):
    place, _, pairs = made
    out = tmp_path / "m.h5"
    match_pairs(place, pairs[:2], [out], SETTINGS)
    before = out.read_bytes()
    with refuses(ArgumentError):
        match_pairs(place, pairs, [out], MatchSettings())
    assert out.read_bytes() == before
    foreign = tmp_path / "foreign.h5"
    write_matches(foreign, [])
    with refuses(ArgumentError):
        match_pairs(place, pairs, [foreign], SETTINGS)
    for outs in ([], [tmp_path / "a.h5", tmp_path / "b.h5"], [tmp_path / "a.csv"]):
        with refuses(ArgumentError):
            match_pairs(place, pairs, outs, SETTINGS)
    with refuses(ArgumentError):
        match_pairs(place, [("a/b", "c"), ("a-b", "c")], [tmp_path / "x.h5"], SETTINGS)
    with refuses(ArgumentError):
        match_pairs(place, [("a b", "c")], [tmp_path / "x.txt"], SETTINGS)
    with refuses(FileError):
        match_pairs(tmp_path / "nothing", pairs, [tmp_path / "x.h5"], SETTINGS)
    with refuses(ArgumentError):
        match_pairs(place, pairs, [place], SETTINGS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign.h5", "m.h5"]


def test_features_that_cannot_be_compared_are_named(made, tmp_path):
    place, _, pairs = made
    mixed = tmp_path / "mixed.h5"
    shutil.copyfile(place, mixed)
    with h5py.File(mixed, "a") as file:
        group = file["01.png"]
        facts = json.loads(group.attrs["matchkernel"])
        group.attrs["matchkernel"] = json.dumps(facts | {"model": "other"})
    with refuses(ArgumentError):
        match_pairs(mixed, pairs, [tmp_path / "m.h5"], SETTINGS)


def test_the_memory_of_a_worker_is_bounded(made, tmp_path, monkeypatch):
    place, _, pairs = made
    limit = 2 * matching._bytes_of(read_features(place, "00.png"))
    monkeypatch.setattr(matching, "CACHE", limit)
    loads = []
    load = matching.FeatureFiles.load
    monkeypatch.setattr(matching.FeatureFiles, "load", lambda self, name: loads.append(name) or load(self, name))
    matcher = Matcher(place, SETTINGS, tmp_path)
    matcher.match_block([PairTask(a, b, f"{a}{b}") for a, b in pairs])
    assert len(matcher._cache) == 2
    assert len(loads) > 6  # read again, as they did not fit
    loads.clear()
    monkeypatch.setattr(matching, "CACHE", 10**9)
    Matcher(place, SETTINGS, tmp_path).match_block([PairTask(a, b, f"{a}{b}!") for a, b in pairs])
    assert sorted(loads) == [f"{number:02}.png" for number in range(6)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60), st.integers(1, 9), st.integers(2, 9))
def test_blocks_hold_every_pair_once_and_few_images(numbers, most, images):
    pairs = list({tuple(sorted(pair)): (f"{pair[0]}", f"{pair[1]}") for pair in numbers if pair[0] != pair[1]}.values())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MOST_PAIRS", most), ("FEWEST_PAIRS", most), ("MOST_IMAGES", images)):
            patch.setattr(pair_blocks, name, value)
        blocks = pair_blocks.pair_blocks(pairs)
        assert blocks == pair_blocks.pair_blocks(pairs)
    assert sorted(itertools.chain(*blocks)) == sorted(pairs)
    assert all(0 < len(block) <= most for block in blocks)
    assert all(len({name for pair in block for name in pair}) <= images for block in blocks)


def test_blocks_share_images():
    """All pairs of 64 images in 64 blocks: reading features pair by pair would be 4,032 reads."""
    pairs = list(itertools.combinations([f"{number:03}" for number in range(64)], 2))
    reads = sum(len({name for pair in block for name in pair}) for block in pair_blocks.pair_blocks(pairs))
    assert reads < 0.35 * 2 * len(pairs)


def test_a_file_of_matches_records_which_matcher_made_them(tmp_path):
    for name in ("left.png", "right.png"):
        save_features(extract(FOLDER / name, "light-wide", keypoints=150), tmp_path / "rows" / f"{name}.npz")
    network = ContextNetwork.load(SHIPPED / "light-wide.safetensors")
    network.config = replace(network.config, threshold=0.3)
    network.save(tmp_path / "own.safetensors")
    pairs, out = [("left.png", "right.png")], [tmp_path / "m.h5"]

    def run(kept=f"context:{tmp_path}/own.safetensors"):
        return match_pairs(tmp_path / "rows", pairs, out, MatchSettings(geometry="none", filter=kept))

    assert run().done == run().kept == 1
    recorded = json.loads(recorded_matches(out[0], pairs)[0])
    own = read_context(tmp_path / "own.safetensors")
    assert (recorded["filter"], recorded["context"]) == ("context:own.safetensors", [own.sha256])
    network.config = replace(network.config, threshold=0.4)
    network.save(tmp_path / "own.safetensors")
    before = out[0].read_bytes()
    with refuses(ArgumentError):
        run()
    for kept in ("ratio", "none"):
        with pytest.raises(ArgumentError, match=f": its matches were made with filter 'context.*', now '{kept}'; "):
            run(kept)
    assert out[0].read_bytes() == before


def test_what_the_matcher_of_these_rows_made_stays_when_more_matchers_are_recorded(tmp_path):
    """Earlier versions recorded all matchers of the package, which become more; a file without pairs records none."""
    for name in ("left.png", "right.png"):
        save_features(extract(FOLDER / name, "tiny", keypoints=150), tmp_path / "rows" / f"{name}.npz")
    out, own = [tmp_path / "m.h5"], read_context(SHIPPED / "tiny.safetensors").sha256

    def run(*pairs):
        return match_pairs(tmp_path / "rows", pairs, out, MatchSettings(geometry="none", filter="context"))

    assert run().pairs == 0
    assert run(("left.png", "right.png")).done == 1
    assert json.loads(recorded_matches(out[0], [])[0])["context"] == [own]
    assert run().pairs == 0
    assert run(("left.png", "right.png")).kept == 1
    out[0].unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "matcher_digests", lambda *words: ["of another model", own])
        assert run(("left.png", "right.png")).done == 1
    assert run(("left.png", "right.png")).kept == 1
