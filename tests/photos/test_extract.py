"""From an image to features, checked against places, turns and OpenCV's own SIFT."""

import threading
import time
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from helpers import refuses
from made_images import blob, save, texture, turned, write_bad_images, write_odd_images

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, WeightsError
from matchkernel.geometry.detect import Detector, halved
from matchkernel.geometry.device_sampling import extract_patches_on
from matchkernel.geometry.frames import Frames
from matchkernel.photos import describers
from matchkernel.photos import extract as extract_module
from matchkernel.photos.describers import CUT, open_describer
from matchkernel.photos.extract import as_gray, extract
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.match import match
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.images import read_gray
from matchkernel.storage.work import in_threads


@pytest.fixture(scope="module")
def network():
    narrow = {"d": 8, "widths": (8, 8, 16, 16, 8)}
    return matchkernel.build("cartesian", generator=torch.Generator().manual_seed(0), **narrow)


MODELS = ["sift", "rootsift", "network"]


@pytest.fixture(params=MODELS)
def model(request, network):
    return network if request.param == "network" else request.param


def test_a_blob_is_found_where_it_was_drawn(model):
    features = extract(blob(70.3, 50.8), model)
    near = np.linalg.norm(features.keypoints - [70.3, 50.8], axis=1)
    assert near.min() < 0.1
    assert features.image_size == (160, 120)
    assert features.scales[near.argmin()] == pytest.approx(3 * 2 ** (-1 / 6), rel=0.03)  # a DoG's name for sigma 3


@pytest.mark.parametrize("degrees", [30, 90, 200])
def test_a_turned_image_gives_the_same_rows_at_turned_keypoints(degrees, model):
    """With the sign of the angle wrong, rows of the same point would be unlike."""
    image = texture(height=160, width=160)
    copy, H = turned(image, degrees)
    a, b = extract(image, model, keypoints=150), extract(copy, model, keypoints=150)
    expected = a.keypoints @ H[:2, :2].T + H[:2, 2]
    inside = np.linalg.norm(a.keypoints - 79.5, axis=1) + a.frames.half_widths < 75
    alike, mirrored = [], []
    rows_a, rows_b = (_with_the_other_sign(pixels, found, model) for pixels, found in ((image, a), (copy, b)))
    for k in np.flatnonzero(inside):
        turn = np.angle(np.exp(1j * (b.orientations - a.orientations[k] - np.deg2rad(degrees))))
        same = (np.linalg.norm(b.keypoints - expected[k], axis=1) < 0.3) & (np.abs(turn) < 0.05)
        if same.any():
            alike.append(a.descriptors[k] @ b.descriptors[same.argmax()])
            mirrored.append(rows_a[k] @ rows_b[same.argmax()])
    assert len(alike) > 15
    assert np.median(alike) > 0.95
    # Of an untrained network all rows are much alike; how far from 1 tells same from different.
    assert 1 - np.median(mirrored) > 5 * (1 - np.median(alike))


def _with_the_other_sign(image, features, model):
    frames = Frames.turned_squares(features.keypoints, features.frames.half_widths, -features.orientations)
    return extract(image, model, frames=frames).descriptors


def test_sift_rows_are_those_of_detect_and_compute():
    image = texture()
    points, rows = cv2.SIFT_create(contrastThreshold=0.01, enable_precise_upscale=True).detectAndCompute(image, None)
    features = extract(image, "sift", keypoints=0)
    assert len(points) == len(features) > 100
    order = [
        int(np.lexsort((np.abs(np.angle(np.exp(1j * (features.orientations - np.deg2rad(p.angle))))),
                        np.linalg.norm(features.keypoints - p.pt, axis=1).round(3)))[0])
        for p in points
    ]  # fmt: skip
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.abs(features.descriptors[order] - expected).max() < 0.01  # bytes may round the other way


def test_a_row_of_sift_does_not_depend_on_the_others():
    image = texture()
    everything = extract(image, "rootsift")
    large = everything.frames.half_widths > 25
    assert 0 < large.sum() < len(large)
    alone = extract(image, "rootsift", frames=everything.frames[large])
    assert (alone.descriptors == everything.descriptors[large]).all()


def test_rootsift_is_the_root_of_sift():
    a, b = (extract(texture(), name).descriptors for name in ("sift", "rootsift"))
    assert np.abs(np.sqrt(a / a.sum(1, keepdims=True)) - b).max() < 1e-6


def test_a_network_sees_the_patches_of_the_data_builder(network):
    from matchkernel.geometry.sampling import extract_patches

    image = texture()
    features = extract(image, network, keypoints=100)
    patches = extract_patches(image, features.frames, CUT)
    assert np.abs(features.descriptors - matchkernel.describe(patches, network, resize=True)).max() < 1e-5


def test_a_gpu_cuts_its_patches_itself(network, monkeypatch):
    """Here on a CPU: the same features up to a gray value that is rounded otherwise."""
    image = texture()
    expected = extract(image, network, engine="torch", keypoints=100)

    class OnDevice(describers.Pyramid):
        def cut(self, frames, size):
            return extract_patches_on(torch.from_numpy(image), frames, size).numpy()

    monkeypatch.setattr(describers, "Pyramid", OnDevice)
    found = extract(image, network, engine="torch", keypoints=100)
    assert (found.descriptors != expected.descriptors).any()
    assert (found.frames.centers == expected.frames.centers).all()
    assert (found.descriptors * expected.descriptors).sum(1).min() > 0.999
    here = {**found.settings, "sampler": describers.SAMPLER}
    there = {**found.settings, "sampler": describers.DEVICE_SAMPLER}
    assert len(match(replace(expected, settings=here), replace(found, settings=there), mutual=True)) == len(expected)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_threads_do_not_change_features(network, engine):
    image = texture()
    for model in ("rootsift", network):
        alone = extract(image, model, engine=engine, keypoints=100)
        torch.set_num_threads(2)
        try:
            again = extract(image, model, engine=engine, keypoints=100)
            assert np.abs(again.descriptors - alone.descriptors).max() < 1e-6
            found = match_images(image, image, model, engine=engine, keypoints=100)
        finally:
            torch.set_num_threads(1)
        for features in found.features:
            assert (features.frames.centers == alone.frames.centers).all()
            assert np.abs(features.descriptors - alone.descriptors).max() < 1e-6


def test_images_wait_for_each_others_memory(monkeypatch):
    """Two images together are above the limit, so the second one is not begun before the first is done."""
    monkeypatch.setattr(extract_module, "SIFT_PIXELS", 100)
    monkeypatch.setattr(extract_module, "_free_pixels", [100])
    now, most = [0], [0]

    def work(pixels):
        with extract_module._room_for(pixels):
            now[0] += 1
            most[0] = max(most[0], now[0])
            time.sleep(0.01)
            now[0] -= 1

    list(in_threads(work, [60, 70, 10**9, 60], 2))
    assert (now[0], most[0], extract_module._free_pixels) == (0, 1, [100])
    both = threading.Barrier(2, timeout=10)

    def wait(pixels):
        with extract_module._room_for(pixels):
            both.wait()

    list(in_threads(wait, [50, 50], 2))


def test_settings_say_how_it_was_made(tmp_path, network):
    path = tmp_path / "mine.safetensors"
    matchkernel.save(network, path)
    features = extract(texture(), path, keypoints=20, contrast=0.03)
    assert features.model == "mine"
    matchkernel.save(network, tmp_path / "mine.safetensors", {"licence": "other words"})
    same, other = matchkernel.load(path), matchkernel.build("sum")
    assert (
        features.settings["weights"] == open_describer(same).settings["weights"]
    )  # the tensors', whatever the card says
    assert features.settings["weights"] != open_describer(other).settings["weights"]
    assert features.settings["detector"].startswith(f"OpenCV {cv2.__version__}")
    assert (features.settings["keypoints"], features.settings["contrast"], features.settings["patch_size"]) == (
        20, 0.03, 32,
    )  # fmt: skip
    save_features(features, tmp_path / "f.npz")
    again = load_features(tmp_path / "f.npz")
    assert (again.descriptors == features.descriptors).all()
    assert (again.frames.shapes == features.frames.shapes).all()
    assert (again.settings, again.model, again.image_size) == (features.settings, "mine", (200, 160))


def test_the_strongest_come_first_and_rows_have_length_one(model):
    features = extract(texture(), model, keypoints=30)
    assert len(features) == 30
    assert (np.diff(features.scores) <= 0).all()
    assert np.linalg.norm(features.descriptors, axis=1) == pytest.approx(np.ones(30), abs=1e-5)
    assert features.descriptors.dtype == np.float32
    again = extract(texture(), model, keypoints=30)
    assert again.descriptors.tobytes() == features.descriptors.tobytes()


def test_upright_regions_are_not_turned_and_not_doubled():
    turned_ones, upright = (extract(texture(), "sift", upright=value) for value in (False, True))
    assert not upright.orientations.any()
    places = np.column_stack([upright.keypoints, upright.scales])
    assert len(np.unique(places, axis=0)) == len(upright) < len(turned_ones)
    assert len(extract(texture(), "sift", upright=True, keypoints=9)) == 9


def test_frames_given_are_described_in_their_order(model):
    found = extract(texture(), model, keypoints=20)
    given = extract(texture(), model, frames=found.frames[::-1])
    assert given.settings["detector"] == "frames given"
    assert (given.keypoints == found.keypoints[::-1]).all()
    assert np.abs(given.descriptors - found.descriptors[::-1]).max() < 1e-5


def test_no_frames_and_frames_without_content(model):
    none = extract(texture(), model, frames=Frames(np.empty((0, 2)), np.empty((0, 2, 2))))
    assert none.descriptors.shape == (0, 128)
    far = Frames.turned_squares(np.array([[900.0, 900.0], [80, 80]]), np.array([9.0, 9.0]), np.zeros(2))
    rows = extract(texture(), model, frames=far).descriptors
    assert not rows[0].any()
    assert rows[1].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_keypoints_that_are_no_numbers_are_refused_by_index(bad, model):
    frames = Frames.turned_squares(np.full((5, 2), 50.0), np.full(5, 9.0), np.zeros(5))
    frames.centers[3, 1] = bad
    with refuses(ArgumentError):
        extract(texture(), model, frames=frames)
    frames.centers[3, 1] = 50
    frames.shapes[4, 0, 1] = bad
    with refuses(ArgumentError):
        extract(texture(), model, frames=frames)


def test_images_that_cannot_be_read(tmp_path):
    good = save(texture(), tmp_path / "good.png")
    for name in write_bad_images(tmp_path):
        with refuses(FileError):
            extract(tmp_path / name, "sift")
        with refuses(FileError):
            match_images(good, tmp_path / name, "sift")


def test_unusual_images(tmp_path, model):
    for name, least in write_odd_images(tmp_path).items():
        features = extract(tmp_path / name, model, keypoints=60)
        assert len(features) >= least
        assert features.descriptors.shape == (len(features), 128)
        assert np.isfinite(features.descriptors).all()
        if not least:
            assert len(features) == 0


def test_pixels_are_gray_as_the_reader_makes_them(tmp_path):
    from PIL import Image

    colours = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(colours).save(tmp_path / "c.png")
    assert (as_gray(colours) == read_gray(tmp_path / "c.png")).all()
    assert (as_gray(texture().astype(np.uint16) * 256 + 9) == texture()).all()
    for strange in (colours.astype(float), [[1, 2]], colours > 3):
        with refuses(ArgumentTypeError):
            as_gray(strange)
    for shape in ((0, 5), (5,), (4, 4, 2)):
        with refuses(ArgumentError):
            as_gray(np.zeros(shape, np.uint8))


REFUSED = [
    ("mystery", {}, WeightsError), (7, {}, ArgumentTypeError), ("sift", {"device": "banana"}, ArgumentError),
    ("sift", {"keypoints": -1}, ArgumentError), ("sift", {"contrast": 0.0}, ArgumentError),
    ("sift", {"edge": float("nan")}, ArgumentError), ("sift", {"magnification": -1.0}, ArgumentError),
]  # fmt: skip


@pytest.mark.parametrize(("model", "options", "error"), REFUSED)
def test_models_and_options_that_are_refused(model, options, error):
    with refuses(error):
        extract(texture(), model, **options)


def test_a_large_image_is_reduced_for_detection_and_points_stay_where_they_are():
    image = blob(200.4, 150.8, sigma=8.0, height=300, width=400)
    whole, small = (Detector(most_pixels=most).detect(image).frames for most in (10**6, 10**4))
    for frames in (whole, small):
        near = np.linalg.norm(frames.centers - [200.4, 150.8], axis=1)
        assert near.min() < 0.2
        assert frames.half_widths[near.argmin()] / 6 == pytest.approx(8 * 2 ** (-1 / 6), rel=0.05)
    shrunk, factor = halved(image, 10**4)
    assert (shrunk.shape, factor) == ((75, 100), 4)
    assert halved(np.zeros((1, 50), np.uint8), 10)[0].shape == (1, 7)
    assert halved(np.zeros((1, 1), np.uint8), 0)[0].shape == (1, 1)


def test_pooled_rows_are_the_mean_of_the_rows_of_several_sizes(model):
    image = texture()
    plain, pooled = (extract(image, model, keypoints=40, magnification=8.0, pooling=sizes) for sizes in ("", "6,8,10"))
    assert plain.frames.shapes.tobytes() == pooled.frames.shapes.tobytes()
    scaled = [Frames(plain.keypoints, plain.frames.shapes * size / 8) for size in (6, 8, 10)]
    sizes = [extract(image, model, frames=each, magnification=8.0).descriptors.astype(float) for each in scaled]
    mean = sum(sizes) / 3
    assert pooled.descriptors == pytest.approx(mean / np.linalg.norm(mean, axis=1, keepdims=True), abs=1e-6)
    assert pooled.descriptors.dtype == np.float32
    assert np.abs(pooled.descriptors - plain.descriptors).max() > 0.001
    given = extract(image, model, frames=plain.frames, magnification=8.0, pooling=(6, 8.0, 10))
    assert given.descriptors == pytest.approx(pooled.descriptors, abs=1e-6)
    assert given.settings["pooling"] == pooled.settings["pooling"] == "6,8,10"


def test_pooling_over_one_size_is_that_size_and_without_content_rows_stay_zero(model):
    image = texture()
    one, six = extract(image, model, keypoints=40, pooling="6"), extract(image, model, keypoints=40)
    assert one.descriptors == pytest.approx(six.descriptors, abs=1e-6)
    far = Frames.turned_squares(np.array([[9000.0, 9000.0]]), np.array([20.0]), np.zeros(1))
    assert not extract(image, model, frames=far, pooling="6,8").descriptors.any()
    assert extract(np.full((50, 50), 7, np.uint8), model, pooling="6,8").descriptors.shape == (0, 128)


@pytest.mark.parametrize("wrong", ["6,", "a", "0", "6;8", "-1,8", "nan", "1e9", ",".join(["6"] * 17), (6, 0)])
def test_pooling_that_cannot_be_read_is_refused(wrong):
    with refuses(ArgumentError):
        Detector(pooling=wrong)


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_sift_of_stretched_regions_is_that_of_their_patches(name):
    """A photo stretched by two, described in regions stretched alike: SIFT's own squares would show something else.

    The strongest keypoints tell it best: of the largest, RootSIFT of the squares is nearly the same too (0.91).
    """
    image = texture(height=160, width=160)
    plain = extract(image, name, keypoints=60, choice="strongest", magnification=6.0)
    wide = cv2.warpAffine(image, np.array([[2.0, 0, 0], [0, 1, 0]]), (320, 160))
    inside = (np.abs(plain.keypoints - 80).max(1) + plain.frames.half_widths) < 70
    stretch = np.diag([2.0, 1.0])
    frames = Frames(plain.keypoints @ stretch, stretch @ plain.frames.shapes)[inside]
    squares = Frames.turned_squares(frames.centers, frames.half_widths, frames.angles)
    alike, unlike = (
        (extract(wide, name, frames=regions, magnification=6.0).descriptors * plain.descriptors[inside]).sum(1)
        for regions in (frames, squares)
    )
    assert inside.sum() > 15
    assert np.median(alike) > 0.9
    assert np.median(alike) > np.median(unlike) + 0.05
