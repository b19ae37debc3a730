"""Baselines with the real libraries and made weights (the published ones: tests/test_reference_data.py)."""

import cv2
import kornia.feature as kornia_feature
import numpy as np
import pytest
import torch
from helpers import refuses
from kornia.feature.mkd import Whitening
from made_baselines import FILES, hamming, made_patches, rank_1

from matchkernel.data.patch_files import read_patches
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.baselines.kornia import mkd
from matchkernel.evaluation.methods import BASELINES, baseline
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.model.describe import resize_patches

STRIPS = ("e1", "h1", "t1", "t5")
# The others run the same code as mkd-liberty and beblid.
SAME_CODE = ("mkd-notredame", "mkd-yosemite", "teblid")
# And these nearly so: only how they are learned or laid out differs, which has tests of its own.
ALIKE = ("mkd", "hardtfeat")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


DISTINCT = [slow(name) if name in ALIKE else name for name in BASELINES if name not in SAME_CODE]
PARAMETERS = {"beblid": 512 * 6, "teblid": 512 * 6, "vgg": 120 * 68 * 8}


@pytest.fixture(scope="module")
def patches():
    return made_patches()


@pytest.fixture(scope="module")
def made(patches, baseline_weights):
    """Every baseline, made once."""
    done = {}

    def make(name):
        if name not in done:
            if name == "mkd":
                done[name] = mkd(patches)
            else:
                done[name] = baseline(name, weights=baseline_weights / FILES[name] if name in FILES else None)
        return done[name]

    return make


@pytest.fixture(scope="module")
def strips(hpatches_sample):
    return {name: read_patches(hpatches_sample / f"{name}.png") for name in ("ref", *STRIPS)}


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("sift", [1, 0.98, 0.9, 0.84]), ("rootsift", [1, 0.99, 0.9, 0.84]), ("orb", [1, 0.97, 0.66, 0.47]),
        ("brief", [1, 0.94, 0.65, 0.51]), slow("mkd", [1, 1, 0.92, 0.82]), ("mkd-liberty", [1, 1, 0.89, 0.77]),
        ("tfeat", [1, 0.98, 0.61, 0.51]), slow("hardtfeat", [0.99, 0.99, 0.58, 0.44]), ("vgg", [1, 1, 0.9, 0.7]),
        ("beblid", [1, 1, 0.77, 0.52]), ("teblid", [1, 1, 0.76, 0.62]),
    ],
)  # fmt: skip
def test_rank_1_on_patches_of_a_photo(name, seen, strips, made):
    """What was seen once on e1, h1, t1 and t5; chance is 0.01. Two patches of 100 may go either way."""
    assert rank_1(made(name), strips, STRIPS) == pytest.approx(seen, abs=0.021)


def test_sift_is_what_opencv_says_and_rootsift_that_of_the_data_tools(patches):
    assert np.abs(baseline("rootsift").describe(patches) - to_rootsift(patch_sift(patches))).max() < 1e-7
    point = cv2.KeyPoint(32, 32, 10.8, 0)
    expected = np.stack([cv2.SIFT_create().compute(patch, [point])[1][0] for patch in patches[:9]])
    assert (baseline("sift").describe(patches[:9]) == expected).all()


def test_brief_of_a_29_px_patch_is_what_opencv_says_with_its_border_repeated(patches):
    extractor = cv2.xfeatures2d.BriefDescriptorExtractor_create(bytes=64)
    around = cv2.copyMakeBorder(patches[0, :29, :29], 40, 40, 40, 40, cv2.BORDER_REPLICATE)
    expected = extractor.compute(around, [cv2.KeyPoint(54, 54, 31, 0)])[1]
    assert (baseline("brief").describe(patches[:1, :29, :29]) == expected).all()


def test_orb_of_a_31_px_patch_has_nearly_all_bits_of_the_same_patch_inside_its_image(patches):
    """Its tests reach 13 px from the centre; the blur reads 1 px beyond the patch, which is a reflection there."""
    image = patches[0]
    extractor = cv2.ORB_create(nlevels=1, edgeThreshold=0, patchSize=31)
    expected = extractor.compute(image, [cv2.KeyPoint(32, 32, 31, 0)])[1]
    assert hamming(baseline("orb").describe(image[None, 17:48, 17:48]), expected).item() <= 8


def test_tfeat_is_kornias_on_the_resized_patches(patches, made, baseline_weights):
    module = kornia_feature.TFeat(pretrained=False).eval()
    module.load_state_dict(torch.load(baseline_weights / FILES["tfeat"], weights_only=True, map_location="cpu"))
    with torch.no_grad():
        expected = module(resize_patches(torch.from_numpy(patches)[:, None].float(), 32)).numpy()
    assert np.abs(made("tfeat").describe(patches) - expected).max() < 1e-5  # batches of other sizes


def test_hardtfeat_is_its_own_network_by_hand(patches, made, baseline_weights):
    """As its authors wrote it, but for their std over n - 1 pixels, which is 0.05 % larger than kornia's."""
    state = torch.load(baseline_weights / FILES["hardtfeat"], weights_only=True, map_location="cpu")["state_dict"]
    x = resize_patches(torch.from_numpy(patches[:20])[:, None].float(), 32)
    x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), keepdim=True)
    x = torch.conv2d(x, state["features.0.weight"], state["features.0.bias"]).tanh()
    x = torch.conv2d(torch.max_pool2d(x, 2), state["features.3.weight"], state["features.3.bias"]).tanh()
    x = torch.conv2d(x, state["classifier.1.weight"], state["classifier.1.bias"]).tanh().flatten(1)
    expected = torch.nn.functional.normalize(x).numpy()
    assert np.abs(made("hardtfeat").describe(patches[:20]) - expected).max() < 1e-3


def test_vgg_and_beblid_of_their_own_sides_are_what_opencv_says_at_a_keypoint_of_that_size(patches):
    """OpenCV's usual call: sampling window = 6.25 or 1 times the size of the keypoint."""
    own = cv2.xfeatures2d
    image = patches[0, :64, :64].copy()
    expected = own.VGG_create().compute(image, [cv2.KeyPoint(32, 32, 64 / 6.25, 0)])[1]
    assert (baseline("vgg").describe(image[None]) == expected).all()
    small = patches[0, :32, :32].copy()
    for name, extractor in (("beblid", own.BEBLID_create(1.0)), ("teblid", own.TEBLID_create(1.0, 103))):
        expected = extractor.compute(small, [cv2.KeyPoint(16, 16, 32, 0)])[1]
        assert (baseline(name).describe(small[None]) == expected).all()


def raw_mkd(patches):
    with torch.no_grad():
        raw = kornia_feature.MKDDescriptor(patch_size=64, whitening=None).eval()
        return raw(resize_patches(torch.from_numpy(patches)[:, None].float(), 64))


@pytest.fixture(scope="module")
def raw(patches):
    return raw_mkd(patches).numpy().astype(np.float64)


def test_published_mkd_is_kornias_whitening(patches, made, baseline_weights):
    models = torch.load(baseline_weights / FILES["mkd-liberty"], weights_only=True, map_location="cpu")
    whitening = Whitening("pcawt", models["liberty"], in_dims=238, output_dims=128)
    with torch.no_grad():
        expected = whitening(raw_mkd(patches[:30])).numpy()
    assert np.abs(made("mkd-liberty").describe(patches[:30]) - expected).max() < 1e-5
    assert np.abs(made("mkd-notredame").describe(patches[:30]) - expected).max() > 0.01


def test_learned_mkd_is_pca_with_attenuated_whitening(patches, raw, made):
    """By numpy's singular values: rows = U S V', eigenvalues S^2 / K, coordinates times eigenvalue^-0.35."""
    mean = raw.mean(0)
    _, values, directions = np.linalg.svd(raw - mean, full_matrices=False)
    expected = (raw - mean) @ directions[:128].T * (values[:128] ** 2 / len(raw)) ** -0.35
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    rows = made("mkd").describe(patches)
    # Signs of eigenvectors are free: similarities are not. Float32 whitening of small eigenvalues costs digits.
    assert np.abs(rows @ rows.T - expected @ expected.T).max() < 2e-4
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-5)
    # t = 0.7 leaves eigenvalue^0.3: far more even than the raw ones, not white.
    before, after = (np.linalg.eigvalsh(np.cov(part.T))[::-1] for part in (raw, rows))
    assert after[0] / after[100] < (before[0] / before[100]) ** 0.5


def test_too_few_training_patches_are_refused(patches):
    for few in (patches[:0], patches[:1], patches[:100], np.zeros((130, 65, 65), np.uint8)):
        with refuses(ArgumentError):
            mkd(few)


def test_constant_training_patches_are_left_out(patches, made):
    blank = np.full((40, 65, 65), 9, np.uint8)
    method = mkd(np.concatenate([patches, blank]))
    assert method.facts["settings"]["whitening learned on"] == "200 training patches"
    a, b = made("mkd").describe(patches[:9]), method.describe(patches[:9])
    assert np.abs(a @ a.T - b @ b.T).max() < 1e-5


@pytest.mark.parametrize("name", BASELINES)
def test_what_a_baseline_records_and_the_shape_of_its_rows(name, patches, made, baseline_weights):
    method = made(name)
    bits = {"orb": 256, "brief": 512, "beblid": 512, "teblid": 512}
    assert method.name == name
    assert method.distance == ("hamming" if name in bits else "l2")
    assert method.facts["hand_crafted"] == (name in ("sift", "rootsift", "orb", "brief") or "mkd" in name)
    learned = 30_702 if "mkd" in name else 599_808 if "tfeat" in name else 0  # 238 + 238 * 128; see the test below
    assert method.facts["parameters"] == PARAMETERS.get(name, learned)
    assert {"library", "patch", "call"} <= method.facts["settings"].keys()
    rows = method.describe(patches[:3])
    assert rows.dtype == (np.uint8 if name in bits else np.float32)
    assert rows.shape == (3, bits[name] // 8 if name in bits else 120 if name == "vgg" else 128)
    assert rows.any(1).all()
    state = torch.load(baseline_weights / FILES["tfeat"], weights_only=True, map_location="cpu")
    assert sum(tensor.numel() for tensor in state.values()) == 599_808


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_depends_on_its_patch_alone(name, patches, made):
    """Bit for bit: any order, any number at a time, one alone. A network computes 64 patches at a time."""
    method = made(name)
    some = patches[:70]
    rows = method.describe(some)
    order = np.random.default_rng(2).permutation(len(some))
    assert (method.describe(some[order]) == rows[order]).all()
    for start, size in ((0, 1), (69, 1), (3, 7), (5, 65)):
        assert (method.describe(some[start : start + size]) == rows[start : start + size]).all()
    strided = np.ascontiguousarray(np.moveaxis(patches[:4], 0, 2))
    strided.flags.writeable = False
    assert (method.describe(np.moveaxis(strided, 2, 0)) == rows[:4]).all()


@pytest.mark.parametrize("name", DISTINCT)
def test_only_constant_patches_of_any_side_have_rows_of_zeros(name, strips, made):
    """The other rows stay as they were."""
    method = made(name)
    assert method.describe(strips["t5"]).any(1).all()
    for side in (1, 31, 64, 100):
        assert len(method.describe(np.zeros((0, side, side), np.uint8))) == 0
        grays = [np.full((side, side), gray, np.uint8) for gray in (0, 1, 128, 255)]
        texture = np.random.default_rng(3).integers(0, 256, (side, side), np.uint8)
        rows = method.describe(np.stack([*grays, texture]))
        assert rows.any(1).tolist() == [False] * 4 + [side > 1], side
        assert (rows[4:] == method.describe(texture[None])).all(), side


@pytest.mark.parametrize("name", ["sift", "rootsift", "orb", "brief", "vgg", "beblid"])
def test_a_patch_that_resizes_to_a_constant_is_not_described(name):
    """Stripes of 1 px at four times the side: each new pixel is the mean of as many 0s as 1s."""
    side = 4 * int(baseline(name).facts["settings"]["patch"].split()[0])
    stripes = np.broadcast_to(np.arange(side, dtype=np.uint8) % 2, (1, side, side))
    assert not baseline(name).describe(stripes).any()


@pytest.mark.parametrize("name", ["orb", "tfeat", "mkd-liberty"])
def test_patches_are_read_in_small_pieces(name, patches, made):
    """So that 10,000 of a memory map need no more memory than 64."""
    sizes, counts = [], []

    class Watched(np.ndarray):
        def __getitem__(self, key):
            sizes.append(len(range(*key.indices(len(self)))))
            return np.asarray(self)[key]

    rows = made(name).describe(patches[:150].view(Watched), lambda *done: counts.append(done))
    assert sizes == [64, 64, 22]
    assert counts == [(64, 150), (128, 150), (150, 150)]
    assert (rows == made(name).describe(patches[:150])).all()


def test_what_is_not_patches_is_refused(patches):
    for wrong in (patches.astype(np.float32), patches.tolist(), torch.from_numpy(patches)):
        with refuses(ArgumentTypeError):
            baseline("sift").describe(wrong)
    for wrong in (patches[0], patches[:, None], patches[:, :60], np.zeros((3, 0, 0), np.uint8)):
        with refuses(ArgumentError):
            baseline("sift").describe(wrong)
