"""From an image to features, checked against places, turns and OpenCV's own SIFT."""

import cv2
import numpy as np
import pytest
import torch
from helpers import refuses
from made_images import blob, texture, turned, write_bad_images, write_odd_images

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, WeightsError
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.device_sampling import extract_patches_on
from matchkernel.geometry.dog import halved
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.photos import extract as extraction
from matchkernel.photos.extract import CUT, extract, open_describer
from matchkernel.photos.features import load_features, save_features
from matchkernel.photos.match import match
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.images import read_gray
from matchkernel.storage.pixels import as_gray


@pytest.fixture(scope="module")
def network():
    narrow = {"d": 8, "widths": (8, 8, 16, 16, 8)}
    return matchkernel.build("cartesian", generator=torch.Generator().manual_seed(0), **narrow)


@pytest.fixture(params=["sift", "rootsift", "network"])
def model(request, network):
    return network if request.param == "network" else request.param


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
    # All rows of an untrained network are similar: the distance from 1 separates same from different.
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


def test_rootsift_is_the_root_of_sift_and_a_row_does_not_depend_on_the_others():
    image = texture()
    sift, root = (extract(image, name) for name in ("sift", "rootsift"))
    assert np.abs(np.sqrt(sift.descriptors / sift.descriptors.sum(1, keepdims=True)) - root.descriptors).max() < 1e-6
    large = root.frames.half_widths > 25
    assert 0 < large.sum() < len(large)
    assert (extract(image, "rootsift", frames=root.frames[large]).descriptors == root.descriptors[large]).all()


def test_a_network_sees_the_patches_of_the_data_builder(network):
    image = texture()
    features = extract(image, network, keypoints=100)
    patches = extract_patches(image, features.frames, CUT)
    assert np.abs(features.descriptors - matchkernel.describe(patches, network, resize=True)).max() < 1e-5


def test_a_gpu_cuts_its_patches_itself(network, monkeypatch):
    """Here on a CPU: the same features up to a gray value that is rounded otherwise."""
    image = texture()
    expected = extract(image, network, engine="torch", keypoints=100)

    class OnDevice(extraction.Pyramid):
        def cut(self, frames, size):
            return extract_patches_on(torch.from_numpy(image), frames, size).numpy()

    monkeypatch.setattr(extraction, "Pyramid", OnDevice)
    found = extract(image, network, engine="torch", keypoints=100)
    assert (found.descriptors != expected.descriptors).any()
    assert (found.frames.centers == expected.frames.centers).all()
    assert (found.descriptors * expected.descriptors).sum(1).min() > 0.999
    found.settings["sampler"] = extraction.DEVICE_SAMPLER
    assert len(match(expected, found)) == len(expected)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_threads_do_not_change_features(network, engine):
    image = texture()
    for model in ("rootsift", network):
        alone = extract(image, model, engine=engine, keypoints=100)
        torch.set_num_threads(2)
        try:
            found = match_images(image, image, model, engine=engine, keypoints=100)
        finally:
            torch.set_num_threads(1)
        for features in found.features:
            assert (features.frames.centers == alone.frames.centers).all()
            assert np.abs(features.descriptors - alone.descriptors).max() < 1e-6


def test_settings_say_how_features_were_made(tmp_path, network):
    path = tmp_path / "mine.safetensors"
    matchkernel.save(network, path)
    features = extract(texture(), path, keypoints=20, contrast=0.03)
    matchkernel.save(network, path, {"licence": "another"})
    found = features.settings
    assert found["weights"] == open_describer(path).settings["weights"]  # of the tensors, whatever the card says
    assert found["weights"] != open_describer(matchkernel.build("sum")).settings["weights"]
    assert found["detector"].startswith(f"OpenCV {cv2.__version__}")
    assert (found["keypoints"], found["contrast"], found["patch_size"]) == (20, 0.03, 32)
    save_features(features, tmp_path / "f.npz")
    again = load_features(tmp_path / "f.npz")
    assert (again.settings, again.model, again.image_size) == (found, "mine", (200, 160))


def test_the_strongest_come_first_and_rows_have_length_one(model):
    features = extract(texture(), model, keypoints=30)
    assert len(features) == 30
    assert (np.diff(features.scores) <= 0).all()
    assert np.linalg.norm(features.descriptors, axis=1) == pytest.approx(np.ones(30), abs=1e-5)
    assert features.descriptors.dtype == np.float32
    assert extract(texture(), model, keypoints=30).descriptors.tobytes() == features.descriptors.tobytes()


def test_given_frames_are_described_in_their_order_and_without_content_by_zeros(model):
    """A region outside the image has no content, although its patch would repeat the pixels of the edge."""
    found = extract(texture(), model, keypoints=20)
    given = extract(texture(), model, frames=found.frames[::-1])
    assert (given.keypoints == found.keypoints[::-1]).all()
    assert np.abs(given.descriptors - found.descriptors[::-1]).max() < 1e-5
    none = extract(texture(), model, frames=found.frames[:0])
    assert none.descriptors.shape == (0, 128)
    places = np.array([[-50.0, 60], [100, 60], [260, 60], [80, 200], [900, 900]])
    frames = Frames.turned_squares(places, np.full(5, 9.0), np.zeros(5))
    for pooling in ("", "6,8"):
        rows = extract(texture(), model, frames=frames, pooling=pooling).descriptors
        assert rows.any(1).tolist() == [False, True, False, False, False]


def test_images_that_cannot_be_read_are_refused_and_unusual_ones_are_read(tmp_path, model):
    for name, least in write_odd_images(tmp_path).items():
        features = extract(tmp_path / name, model, keypoints=60)
        assert len(features) >= least
        assert features.descriptors.shape == (len(features), 128)
        assert np.isfinite(features.descriptors).all()
        assert least or not len(features)
    for name in write_bad_images(tmp_path):
        with refuses(FileError):
            extract(tmp_path / name, model)


def test_pixels_are_gray_as_the_reader_makes_them(tmp_path):
    from PIL import Image

    colours = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(colours).save(tmp_path / "c.png")
    assert (as_gray(colours) == read_gray(tmp_path / "c.png")).all()
    assert (as_gray(texture().astype(np.uint16) * 256 + 9) == texture()).all()


def frames_with(value, part):
    frames = Frames.turned_squares(np.full((5, 2), 50.0), np.full(5, 9.0), np.zeros(5))
    getattr(frames, part).flat[3] = value
    return {"frames": frames}


REFUSED = {
    "an unknown model": (texture(), "mystery", {}, WeightsError),
    "a number as a model": (texture(), 7, {}, ArgumentTypeError),
    "an unknown device": (texture(), "sift", {"device": "banana"}, ArgumentError),
    "fewer than no keypoints": (texture(), "sift", {"keypoints": -1}, ArgumentError),
    "no contrast": (texture(), "sift", {"contrast": 0.0}, ArgumentError),
    "NaN": (texture(), "sift", {"edge": float("nan")}, ArgumentError),
    "a negative magnification": (texture(), "sift", {"magnification": -1.0}, ArgumentError),
    "floats up to 255": (texture().astype(float), "sift", {}, ArgumentError),
    "a list of pixels": ([[1, 2]], "sift", {}, ArgumentTypeError),
    "bool pixels": (texture() > 3, "sift", {}, ArgumentTypeError),
    "frames that are an array": (texture(), "sift", {"frames": np.zeros((3, 2))}, ArgumentTypeError),
    **{f"pixels of shape {s}": (np.zeros(s, np.uint8), "sift", {}, ArgumentError) for s in ((0, 5), (5,), (4, 4, 2))},
    **{
        f"{part} with {value}": (texture(), "sift", frames_with(value, part), ArgumentError)
        for value in (np.nan, -np.inf, 1e30)
        for part in ("centers", "shapes")
    },
    **{
        f"pooling {wrong}": (texture(), "sift", {"pooling": wrong}, ArgumentError)
        for wrong in ("6,", "a", "0", "6;8", "-1,8", "nan", "1e9", ",".join(["6"] * 17), (6, 0))
    },
}


@pytest.mark.parametrize(("image", "model", "options", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_extracted_is_refused(image, model, options, error):
    with refuses(error):
        extract(image, model, **options)


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
    one = extract(image, model, keypoints=40, magnification=8.0, pooling="8")
    assert one.descriptors == pytest.approx(plain.descriptors, abs=1e-6)


@pytest.mark.parametrize("name", ["sift", "rootsift"])
def test_sift_of_stretched_regions_is_that_of_their_patches(name):
    """A photo stretched by two, described in regions stretched alike: SIFT's own squares would show something else.

    The strongest keypoints show it best: of the largest, RootSIFT of the squares is nearly the same too (0.91).
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
