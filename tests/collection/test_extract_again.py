"""Runs that meet others: at the same time, killed before, or with other settings."""

import os
import threading
import time
from copy import copy

import pytest
import torch
from helpers import refuses
from made_collection import computing_by, find_images
from made_images import save, texture

from matchkernel.collection.extract import extract_images
from matchkernel.errors import FileError
from matchkernel.geometry import dog
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.feature_files import open_features, read_features
from matchkernel.storage.work import in_threads

DETECTOR = Detector(keypoints=20)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed, name in enumerate(["a.png", "b.png"]):
        save(texture(seed, 90, 110), folder / name)
    return folder


def test_a_second_run_at_the_same_time_is_refused(out, photos, sift, tmp_path):
    images = find_images([photos])
    inside, go_on = threading.Event(), threading.Event()

    def compute(*arguments):
        inside.set()
        assert go_on.wait(60)
        return sift.compute(*arguments)

    slow = computing_by(sift, compute)
    first = threading.Thread(target=extract_images, args=(images, out, slow, DETECTOR))
    first.start()
    assert inside.wait(60)
    with refuses(FileError):
        extract_images(images, out, sift, DETECTOR)
    go_on.set()
    first.join()
    assert extract_images(images, out, sift, DETECTOR).kept == ["a.png", "b.png"]


def test_features_of_an_earlier_version_go_on_as_they_were(out, photos, sift, tmp_path):
    """Which searched the photo itself, and recorded no density."""
    save(texture(2, 240, 260), photos / "c.png")
    images = find_images([photos])
    first = {"a.png": images["a.png"]}
    extract_images(first, out, sift, Detector(keypoints=20, density=0))
    found = extract_images(images, out, sift, DETECTOR)
    assert (found.kept, found.done) == (["a.png"], ["b.png", "c.png"])
    extract_images(images, tmp_path / "before", sift, Detector(keypoints=20, density=0))
    extract_images(images, tmp_path / "now", sift, DETECTOR)
    places = (out, tmp_path / "before", tmp_path / "now")
    points = [open_features(place).load("c.png").keypoints for place in places]
    assert points[0].tolist() == points[1].tolist() != points[2].tolist()


def test_what_a_killed_run_was_writing_is_removed(out, photos, sift, tmp_path):
    folder = out if out.name == "out" else tmp_path / "features.h5.parts"
    folder.mkdir()
    (folder / ".a.png.12.999999999.part.npz").write_bytes(b"PK half of it")
    if out.name == "features.h5":
        (folder / f"{'b' * 40}.npz").write_bytes(b"damaged")
        (tmp_path / ".features.12.999999999.part.h5").write_bytes(b"half of it")
        (tmp_path / ".features.mine.part.h5").write_bytes(b"someone's")
    assert extract_images(find_images([photos]), out, sift, DETECTOR).done == ["a.png", "b.png"]
    assert not list(tmp_path.rglob("*.part.npz"))
    assert not (tmp_path / "features.h5.parts").exists()
    assert [path.name for path in tmp_path.glob(".*")] == [".features.mine.part.h5"] * (out.name == "features.h5")


def test_what_a_live_process_is_writing_in_the_folder_stays(photos, sift, tmp_path):
    (tmp_path / "out" / "plots").mkdir(parents=True)
    writing = tmp_path / "out" / "plots" / f".m.12.{os.getppid()}.part.png"
    writing.write_bytes(b"half of it")
    extract_images(find_images([photos]), tmp_path / "out", sift, DETECTOR)
    assert writing.read_bytes() == b"half of it"


def test_a_folder_of_the_user_that_is_called_like_our_parts_is_left_alone(photos, sift, tmp_path):
    mine = tmp_path / "features.h5.parts" / "1.npz"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with refuses(FileError):
        extract_images(find_images([photos]), tmp_path / "features.h5", sift, DETECTOR)
    assert mine.read_bytes() == b"mine"


def test_damaged_features_in_a_folder_are_said_and_left(photos, sift, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b.png.npz").write_bytes(b"damaged")
    report = extract_images(find_images([photos]), tmp_path / "out", sift, DETECTOR)
    assert report.done == ["a.png"]
    assert "remove it" in report.skipped["b.png"]


def test_what_a_stopped_run_of_another_kind_left_is_not_taken(photos, sift, tmp_path):
    """Parts are found by their keys: those of another model, or another image, have another one."""
    out, parts = tmp_path / "features.h5", tmp_path / "features.h5.parts"
    calls = []

    def stops(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sift.compute(*arguments)

    with pytest.raises(KeyboardInterrupt):
        extract_images(find_images([photos]), out, computing_by(sift, stops), DETECTOR)
    (left,) = parts.glob("*.npz")
    report = extract_images(find_images([photos]), out, open_describer("rootsift"), DETECTOR)
    assert report.done == ["a.png", "b.png"]
    assert read_features(out, "a.png").model == "rootsift"
    assert not left.exists()
    assert not parts.exists()


def test_what_is_no_image_is_skipped_and_nothing_is_left(out, sift, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    images = {name: tmp_path / name for name in ("no.png", "pipe.png")}
    assert list(extract_images(images, out, sift).skipped) == ["no.png", "pipe.png"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.png"]


@pytest.mark.parametrize("takes_one_core", [True, False])
def test_images_in_threads_come_in_their_order(takes_one_core, photos, sift, tmp_path):
    """Whole images at once, or detected at once and described one after the other."""
    (photos / "a2.png").write_bytes(b"not an image")
    images, said, counts, describer = find_images([photos]), [], [], copy(sift)
    describer.device, describer.takes_one_core = "gpu", takes_one_core
    alone = extract_images(images, tmp_path / "alone", sift, DETECTOR)
    torch.set_num_threads(2)
    try:
        report = extract_images(
            images, tmp_path / "out", describer, DETECTOR,
            say=said.append, progress=lambda *count: counts.append(count),
        )  # fmt: skip
    finally:
        torch.set_num_threads(1)
    assert report.done == alone.done == ["a.png", "b.png"]
    assert report.keypoints == alone.keypoints
    assert [line.split(":")[0] for line in said] == [f"skipped {photos / 'a2.png'}"]
    assert counts == [(0, 3), (1, 3), (1, 2), (2, 2)]  # what cannot be read is no work
    for name in report.done:
        assert (tmp_path / "out" / f"{name}.npz").read_bytes() == (tmp_path / "alone" / f"{name}.npz").read_bytes()


def test_images_wait_for_the_memory_of_others(monkeypatch):
    """Two images together are above the limit, so detection of the second does not begin before the first is done."""
    monkeypatch.setattr(dog, "SIFT_PIXELS", 100)
    monkeypatch.setattr(dog, "_free_pixels", [100])
    running, largest = [0], [0]

    def work(pixels):
        with dog.room_for(pixels):
            running[0] += 1
            largest[0] = max(largest[0], running[0])
            time.sleep(0.01)
            running[0] -= 1

    list(in_threads(work, [60, 70, 10**9, 60], 2))
    assert (running[0], largest[0], dog._free_pixels) == (0, 1, [100])
    both = threading.Barrier(2, timeout=10)

    def wait(pixels):
        with dog.room_for(pixels):
            both.wait()

    list(in_threads(wait, [50, 50], 2))
