"""Features of many images: stopped and gone on with, faults skipped, nothing half written."""

from dataclasses import replace
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
from helpers import refuses
from made_collection import computing_by, find_images
from made_images import save, texture, write_bad_images

from matchkernel.collection import extract as batch
from matchkernel.collection.extract import extract_images
from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import extract, open_describer
from matchkernel.photos.feature_files import append_features, image_names, open_features, read_features
from matchkernel.photos.features import load_features
from matchkernel.storage import files

DETECTOR = Detector(keypoints=40)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "day").mkdir(parents=True)
    for seed, name in enumerate(["b.png", "a.jpg", "day/a.jpg"]):
        save(texture(seed, 90, 110), folder / name)
    (folder / "notes.txt").write_text("not a photo")
    return folder


def features_in(out, name):
    return read_features(out, name) if out.suffix == ".h5" else load_features(out / f"{name}.npz")


def test_every_image_gets_its_features(out, photos, sift, tmp_path):
    seen = []
    report = extract_images(find_images([photos]), out, sift, DETECTOR, progress=lambda *counts: seen.append(counts))
    assert report.done == ["a.jpg", "b.png", "day/a.jpg"]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert report.keypoints == 120
    for name in report.done:
        expected, found = extract(photos / name, "sift", keypoints=40), features_in(out, name)
        assert np.abs(found.keypoints - expected.keypoints).max() < 1e-4  # hloc's are float32
        assert (found.descriptors == expected.descriptors).all()
        assert expected.settings.items() <= found.settings.items()
    if out.name == "features.h5":
        assert image_names(out) == report.done
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["photos", out.name])


@pytest.mark.parametrize("store", ["float16", "bytes"])
def test_descriptors_are_stored_as_asked(out, store, photos, sift, tmp_path):
    """Other files of the same place must be stored alike; hloc has no bytes, so an .h5 has float16 then."""
    images = find_images([photos])
    extract_images(images, out, sift, DETECTOR, store=store)
    found = features_in(out, "b.png")
    expected = extract(photos / "b.png", "sift", keypoints=40)
    assert found.settings["store"] == store
    assert 0 < np.abs(found.descriptors - expected.descriptors).max() < {"float16": 3e-4, "bytes": 3e-3}[store]
    assert extract_images(images, out, sift, DETECTOR, store=store).kept == sorted(images)
    with refuses(ArgumentError):
        extract_images(images, out, sift, DETECTOR)
    if out.name == "features.h5":
        with h5py.File(out) as file:
            assert file["b.png/descriptors"].dtype == np.float16


@pytest.mark.parametrize("is_detecting", [True, False])
def test_a_photo_that_a_library_refuses_is_skipped(is_detecting, photos, sift, tmp_path, monkeypatch):
    """As workers do; what stops the whole run still does."""
    broken = cv2.error("Assertion failed")

    def fail_at_b(step):
        def failing(gray, *arguments, **options):
            if gray.shape == (91, 113):
                raise broken
            return step(gray, *arguments, **options)

        return failing

    save(texture(1, 91, 113), photos / "b.png")
    describer = sift
    if is_detecting:
        monkeypatch.setattr(batch, "detect_in", fail_at_b(batch.detect_in))
    else:
        describer = computing_by(sift, fail_at_b(sift.compute))
    said = []
    report = extract_images(find_images([photos]), tmp_path / "out", describer, DETECTOR, say=said.append)
    assert report.done == ["a.jpg", "day/a.jpg"]
    assert report.skipped == {"b.png": f"{photos / 'b.png'}: not extracted: error: Assertion failed"}
    assert said == [f"skipped {photos / 'b.png'}: not extracted: error: Assertion failed"]
    for broken in (MemoryError(), WriteError("disk full"), ArgumentError("no")):
        with pytest.raises(type(broken)):
            extract_images(find_images([photos]), tmp_path / "out", describer, DETECTOR)


def test_a_mask_of_the_shape_of_its_photo_is_stretched_to_it(photos, sift, tmp_path):
    masks, said, half = tmp_path / "masks", [], np.zeros((45, 55), np.uint8)
    masks.mkdir()
    half[:, 30:] = 255
    save(half, masks / "a.jpg.png")
    images = {"a.jpg": find_images([photos])["a.jpg"]}
    assert extract_images(images, tmp_path / "f", sift, DETECTOR, masks=masks, say=said.append).skipped == {}
    assert features_in(tmp_path / "f", "a.jpg").keypoints[:, 0].min() > 59
    assert said == [f"{masks / 'a.jpg.png'}: a mask of 55 x 45 pixels, its photo has 110 x 90; it is stretched to it"]


def test_masks_hide_keypoints(out, photos, sift, tmp_path):
    """COLMAP's names; a photo without a mask is whole; a changed mask is a changed photo."""
    masks, images = tmp_path / "masks", find_images([photos])
    with refuses(FileError):
        extract_images(images, out, sift, DETECTOR, masks=masks)
    (masks / "day").mkdir(parents=True)
    right = np.zeros((90, 110), np.uint8)
    right[:, 60:] = 255
    save(right, masks / "a.png")
    with refuses(FileError):
        extract_images(images, out, sift, DETECTOR, masks=masks)
    assert not out.exists()
    save(right, masks / "day" / "a.jpg.png")
    save(right[:50], masks / "b.png.png")
    report = extract_images(images, out, sift, DETECTOR, masks=masks)
    assert (report.done, list(report.skipped)) == (["a.jpg", "day/a.jpg"], ["b.png"])
    assert "b.png.png: a mask of 110 x 50 pixels, its photo has 110 x 90; is it turned" in report.skipped["b.png"]
    assert features_in(out, "day/a.jpg").keypoints[:, 0].min() > 59
    assert features_in(out, "a.jpg").keypoints[:, 0].min() < 50
    save(right, masks / "b.png.png")
    save(255 - right, masks / "day" / "a.jpg.png")
    report = extract_images(images, out, sift, DETECTOR, masks=masks)
    assert (report.done, report.kept) == (["b.png", "day/a.jpg"], ["a.jpg"])
    assert features_in(out, "day/a.jpg").keypoints[:, 0].max() < 61


def test_a_mask_of_16_bits_hides_where_it_is_0_and_one_of_zeros_is_said(photos, sift, tmp_path):
    masks, said = tmp_path / "masks", []
    masks.mkdir()
    right = np.zeros((90, 110), np.uint16)
    right[:, 60:] = 1
    save(right, masks / "a.jpg.png")
    save(np.zeros((90, 110), np.uint8), masks / "b.png.png")
    extract_images(find_images([photos]), tmp_path / "out", sift, DETECTOR, masks=masks, say=said.append)
    assert features_in(tmp_path / "out", "a.jpg").keypoints[:, 0].min() > 59
    assert said == ["2 of 3 photos have a mask", "b.png: no keypoints; is all of it masked?"]


class StoppedError(BaseException):
    """As if the power had failed."""


def stopping(describer, after):
    """A describer that works so many times only."""
    left = [after]

    def compute(*arguments):
        if not left[0]:
            raise StoppedError
        left[0] -= 1
        return describer.compute(*arguments)

    return computing_by(describer, compute)


def test_a_stopped_run_goes_on_and_ends_with_the_same_bytes(out, photos, sift, tmp_path):
    images = find_images([photos])
    once = tmp_path / "once" / out.name
    once.parent.mkdir()
    extract_images(images, once, sift, DETECTOR)
    with pytest.raises(StoppedError):
        extract_images(images, out, stopping(sift, 2), DETECTOR)
    assert not (tmp_path / "features.h5").exists()
    report = extract_images(images, out, stopping(sift, 1), DETECTOR)
    assert (report.kept, report.done) == (["a.jpg", "b.png"], ["day/a.jpg"])
    assert extract_images(images, out, stopping(sift, 0), DETECTOR).kept == list(images)
    assert not out.with_name(out.name + ".parts").exists()
    files = [path.relative_to(once) for path in once.rglob("*.npz")] if once.is_dir() else ["."]
    for name in files:
        assert (once / name).read_bytes() == (out / name).read_bytes()


def test_a_changed_image_is_done_again_and_other_settings_are_refused(out, photos, sift, tmp_path):
    extract_images(find_images([photos]), out, sift, DETECTOR)
    save(texture(9, 90, 110), photos / "b.png")
    assert extract_images(find_images([photos]), out, sift, DETECTOR).done == ["b.png"]
    assert (features_in(out, "b.png").descriptors == extract(photos / "b.png", "sift", keypoints=40).descriptors).all()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with refuses(ArgumentError):
        extract_images(find_images([photos]), out, sift, Detector(50))
    with refuses(ArgumentError):
        extract_images(find_images([photos]), out, open_describer("rootsift"), DETECTOR)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_photo_that_changed_and_cannot_be_read_has_no_features(out, photos, sift, tmp_path):
    extract_images(find_images([photos]), out, sift, DETECTOR)
    (photos / "b.png").write_bytes((photos / "b.png").read_bytes()[:200])
    report = extract_images(find_images([photos]), out, sift, DETECTOR)
    assert (report.kept, list(report.skipped)) == (["a.jpg", "day/a.jpg"], ["b.png"])
    assert open_features(out).names == ["a.jpg", "day/a.jpg"]


def test_features_of_photos_that_are_gone_stay_and_are_told(out, photos, sift, tmp_path):
    said = []
    extract_images(find_images([photos]), out, sift, DETECTOR, say=said.append)
    images = {"a.jpg": photos / "a.jpg"}
    extract_images(images, out, sift, DETECTOR, say=said.append)
    assert said == [f"{out}: also holds features of photos that are not among these: b.png, day/a.jpg"]
    gone = {**images, "b.png": photos / "gone.png"}
    assert list(extract_images(gone, out, sift, DETECTOR).skipped) == ["b.png"]
    assert open_features(out).names == ["a.jpg", "b.png", "day/a.jpg"]


def test_a_disk_without_room_is_said_before_hdf5_meets_it(photos, sift, tmp_path, monkeypatch):
    monkeypatch.setattr("matchkernel.photos.hdf5.RESERVED_BYTES", 10**18)
    with refuses(WriteError):
        extract_images(find_images([photos]), tmp_path / "f.h5", sift, DETECTOR)
    assert not (tmp_path / "f.h5").exists()


def test_images_that_cannot_be_read_are_skipped_and_said(out, photos, sift, tmp_path):
    reasons = write_bad_images(photos)
    lines = []
    images = find_images([photos]) | {"missing.png": photos / "missing.png"}
    report = extract_images(images, out, sift, DETECTOR, say=lines.append)
    assert report.done == ["a.jpg", "b.png", "day/a.jpg"]
    assert report.skipped.keys() == reasons.keys()
    for line, name in zip(lines, report.skipped, strict=True):
        assert line.startswith("skipped ")
        assert name in line
        assert reasons[name] in line
    written = {path.name for path in tmp_path.rglob("*") if path.is_file() and photos not in path.parents}
    assert written == ({"features.h5"} if out.name == "features.h5" else {"a.jpg.npz", "b.png.npz"})


def test_an_image_without_keypoints_has_features_and_is_named(out, sift, tmp_path):
    save(np.full((40, 40), 7, np.uint8), tmp_path / "gray.png")
    said = []
    extract_images(find_images([tmp_path / "gray.png"]), out, sift, say=said.append)
    assert features_in(out, "gray.png").descriptors.shape == (0, 128)
    assert [line.split(":")[0] for line in said] == ["gray.png"]


@pytest.mark.parametrize(
    ("images", "out", "error"),
    [
        (["photos"], "photos/notes.txt", FileError),
        (["photos"], "rows.csv", FileError),
        (["photos"], "features.npz", FileError),
        (["photos"], "photos/notes.txt/features.h5", FileError),
        (["photos"], "text.h5", FileError),
        (["photos"], "folder.h5", FileError),
        (["photos", "photos/day"], "out", ArgumentError),  # two images of one name
        (["empty"], "out", FileError),
        ({"a.jpg": "photos/a.jpg", "a.jpg/b": "photos/b.png"}, "features.h5", ArgumentError),
    ],
)
def test_images_and_places_that_are_refused(images, out, error, photos, sift, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.h5").write_text("hello")
    for name in ("empty", "folder.h5"):
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.rglob("*"))
    with refuses(error):
        found = find_images(images) if isinstance(images, list) else {name: Path(p) for name, p in images.items()}
        extract_images(found, out, sift, DETECTOR)
    assert sorted(tmp_path.rglob("*")) == before


def test_one_bad_name_does_not_stop_the_others(out, photos, sift, tmp_path):
    """In a folder 254 letters leave no room for .npz; bytes that are not UTF-8 cannot be written into an .h5."""
    long, odd = "n" * 250 + ".png", "caf\udce9.png"
    for name in (long, odd):
        save(texture(7, 60, 60), photos / "plain.png").rename(photos / name)
    lines = []
    report = extract_images(find_images([photos]), out, sift, DETECTOR, say=lines.append)
    bad, reason = (odd, "caf\\udce9.png") if out.name == "features.h5" else (long, "too long")
    assert list(report.skipped) == [bad]
    assert reason in report.skipped[bad]
    assert {"b.png", long, odd} - {bad} < set(report.done)
    assert len(lines) == 1


@pytest.mark.parametrize("width", [128, 256])
def test_features_of_another_program_may_be_in_the_file_if_they_are_as_wide(width, photos, sift, tmp_path):
    out = tmp_path / "features.h5"
    features = extract(photos / "b.png", "rootsift", keypoints=9)
    append_features(out, "theirs.png", replace(features, descriptors=np.ones((9, width), np.float32)))
    with h5py.File(out, "a") as file:
        del file["theirs.png"].attrs["matchkernel"]
    before = out.read_bytes()
    if width == 256:
        with refuses(ArgumentError):
            extract_images(find_images([photos]), out, sift, DETECTOR)
        assert out.read_bytes() == before
    else:
        extract_images(find_images([photos]), out, sift, DETECTOR)
        assert image_names(out) == ["a.jpg", "b.png", "day/a.jpg", "theirs.png"]
        assert len(read_features(out, "theirs.png")) == 9


def test_copies_of_a_photo_are_all_new(sift, tmp_path):
    (tmp_path / "photos").mkdir()
    for name in "abc":
        save(texture(0, 90, 110), tmp_path / "photos" / f"{name}.png")
    images = find_images([tmp_path / "photos"])
    for expected in (3, 0):
        report = extract_images(images, tmp_path / "f.h5", sift, DETECTOR)
        assert (len(report.done), len(report.kept)) == (expected, 3 - expected)


def test_names_that_are_one_file_on_a_disk_without_case_are_refused(tmp_path, monkeypatch):
    assert files.tells_case_apart(tmp_path)
    for name in ("one/a.png", "two/A.png"):
        (tmp_path / name).parent.mkdir()
        save(texture(0, 90, 110), tmp_path / name)
    images = find_images([tmp_path / "one", tmp_path / "two"])
    monkeypatch.setattr(files, "tells_case_apart", lambda folder: False)  # as on most disks of macOS and Windows
    with refuses(ArgumentError):
        extract_images(images, tmp_path / "out", open_describer("sift"))
    assert not (tmp_path / "out").exists()
    assert extract_images(images, tmp_path / "f.h5", open_describer("sift")).done == ["A.png", "a.png"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_gpu_describes_between_threads_that_read_and_threads_that_write(broken, photos, tmp_path):
    """The files and the outcomes are those of a CPU; here a CPU's engine only says that it is elsewhere."""
    images, there, here = find_images([photos]), open_describer("tiny"), open_describer("tiny")
    there.device, there.takes_one_core = "elsewhere", False
    if broken:
        (photos / "b.png").write_bytes(b"no photo")
    found = [extract_images(images, tmp_path / name, one, DETECTOR) for name, one in (("a", there), ("b", here))]
    assert found[0].done == found[1].done == ["a.jpg", *["b.png"] * (not broken), "day/a.jpg"]
    assert list(found[0].skipped) == ["b.png"] * broken
    for name in found[0].done:
        files = [(tmp_path / folder / f"{name}.npz").read_bytes() for folder in "ab"]
        assert files[0] == files[1]


def test_features_begun_with_opencv_go_on_with_it_on_a_gpu(photos, sift, tmp_path):
    images, gpu = find_images([photos]), open_describer("sift")
    gpu.device = "cuda:0"  # for SIFT only the place of detection; without a GPU, torch would fail there
    first, auto = dict(list(images.items())[:1]), replace(DETECTOR, dog="auto")
    extract_images(first, tmp_path / "features", sift, auto)
    report = extract_images(images, tmp_path / "features", gpu, auto)
    assert len(report.done) == 2
    assert not report.skipped


def test_what_torch_began_goes_on_with_torch_and_nothing_is_mixed(photos, sift, tmp_path):
    images, torch, opencv = find_images([photos]), tmp_path / "torch", tmp_path / "opencv"
    extract_images(images, torch, sift, replace(DETECTOR, dog="torch"))
    assert extract_images(images, torch, sift, replace(DETECTOR, dog="auto")).kept == list(images)
    extract_images(images, opencv, sift, DETECTOR)
    for out, other in ((torch, "opencv"), (opencv, "torch")):
        with refuses(ArgumentError):
            extract_images(images, out, sift, replace(DETECTOR, dog=other))
