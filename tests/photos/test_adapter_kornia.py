import math
import sys

import kornia.feature as KF
import made_images
import numpy as np
import pytest
import torch
from helpers import refuses

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from matchkernel.geometry.conventions import frames_from_opencv
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.photos.adapters.kornia import frames_from_lafs, laf_descriptor, lafs_from_frames


@pytest.fixture(scope="module")
def texture():
    """(240, 320) float32 gray from 0 to 1, smooth enough that two samplers should agree."""
    return made_images.texture(3, 240, 320, blur=3).astype(np.float32) / 255


def as_tensor(image):
    return torch.from_numpy(image)[None, None]


def correlation(a, b):
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def some_frames():
    centers = np.array([[100.0, 90.0], [180.25, 120.75], [220.5, 150.0], [90.0, 140.0]])
    return Frames.turned_squares(centers, np.array([14.0, 20.0, 17.0, 30.0]), np.array([0.0, 0.7, -2.0, 3.0]))


def test_a_laf_is_the_matrix_and_the_centre():
    frames = Frames(np.array([[3.25, 4.5]]), np.array([[[1.0, 2.0], [-3.0, 5.0]]]))
    lafs = lafs_from_frames(frames)
    assert lafs.tolist() == [[[[1.0, 2.0, 3.25], [-3.0, 5.0, 4.5]]]]
    assert KF.get_laf_center(lafs)[0].tolist() == [[3.25, 4.5]]
    assert KF.get_laf_scale(lafs).item() == pytest.approx(frames.half_widths[0])
    back = frames_from_lafs(lafs)
    assert np.array_equal(back.centers, frames.centers)
    assert np.array_equal(back.shapes, frames.shapes)


@pytest.mark.parametrize("degrees", [0, 20, 45, 90, 200])
def test_kornias_angle_has_the_other_sign(degrees):
    """laf_from_center_scale_ori(-angle) is our frame of +angle; with +angle it is not (kornia#573)."""
    opencv = np.array([[60.0, 40.0, 4.0, degrees]])
    lafs = lafs_from_frames(frames_from_opencv(opencv, 6.0))
    place, scale = torch.tensor([[[60.0, 40.0]]]), torch.full((1, 1, 1, 1), 12.0)
    theirs = KF.laf_from_center_scale_ori(place, scale, torch.tensor([[[-float(degrees)]]]))
    assert torch.allclose(lafs, theirs, atol=1e-4)
    if degrees:
        wrong = KF.laf_from_center_scale_ori(place, scale, torch.tensor([[[float(degrees)]]]))
        assert not torch.allclose(lafs, wrong, atol=1.0)


def test_kornia_samples_the_patch_we_sample(texture):
    """Both interpolate linearly at c + A u; float32 there, 1/32 pixel steps of OpenCV here: 0.01 of the gray range."""
    frames = some_frames()
    ours = extract_patches(texture, frames, 32)
    theirs = KF.extract_patches_from_pyramid(as_tensor(texture), lafs_from_frames(frames), 32)[0, :, 0].numpy()
    assert correlation(ours, theirs).min() > 0.99
    small = frames[np.array([0])]  # no pyramid level on either side
    ours = extract_patches(texture, small, 32)
    theirs = KF.extract_patches_from_pyramid(as_tensor(texture), lafs_from_frames(small), 32)[0, :, 0].numpy()
    assert np.abs(ours - theirs).max() < 0.01


@pytest.mark.parametrize("variant", ["dual", "fc"])
def test_our_module_works_in_laf_descriptor(texture, trained_like, variant):
    model = trained_like(matchkernel.build(variant))
    lafs = lafs_from_frames(some_frames())
    rows = laf_descriptor(model)(as_tensor(texture), lafs)
    assert rows.shape == (1, 4, 128)
    patches = KF.extract_patches_from_pyramid(as_tensor(texture), lafs, 32)[0]
    assert torch.allclose(rows[0], model(patches), atol=1e-6)
    assert torch.allclose(KF.LAFDescriptor(model, 32)(as_tensor(texture), lafs), rows, atol=1e-6)  # the bare module
    described = matchkernel.describe(extract_patches(texture, some_frames(), 32), model)
    assert (described * rows[0].detach().numpy()).sum(1).min() > 0.95  # the other sampler, nearly the same patch
    assert torch.allclose(laf_descriptor(model)(255 * as_tensor(texture), lafs), rows, atol=1e-4)


def test_another_patch_size_and_colour(texture, trained_like):
    descriptor = laf_descriptor(trained_like(matchkernel.build("cartesian")), patch_size=48)
    colour = as_tensor(texture).repeat(1, 3, 1, 1)
    assert descriptor(colour, lafs_from_frames(some_frames())).shape == (1, 4, 128)
    with refuses(ArgumentError):
        laf_descriptor(matchkernel.build("fc"), patch_size=48)


def test_our_module_works_in_local_feature(texture, trained_like):
    """kornia's own DoG detector before our descriptor; the image turned by a right angle, the matches turn with it."""
    feature = KF.LocalFeature(
        KF.ScaleSpaceDetector(
            60,
            resp_module=KF.BlobDoG(),
            scale_space_response=True,
            ori_module=KF.LAFOrienter(19),
            mr_size=6.0,
        ).eval(),
        laf_descriptor(trained_like(matchkernel.build("dual"))),
    )
    with torch.no_grad():
        lafs0, _, rows0 = feature(as_tensor(texture))
        lafs1, _, rows1 = feature(as_tensor(np.ascontiguousarray(np.rot90(texture))))
    assert rows0.shape == (1, lafs0.shape[1], 128)
    matches = KF.match_smnn(rows0[0], rows1[0], 0.95)[1].numpy()
    here, there = frames_from_lafs(lafs0)[matches[:, 0]], frames_from_lafs(lafs1)[matches[:, 1]]
    expected = np.column_stack([here.centers[:, 1], texture.shape[1] - 1 - here.centers[:, 0]])
    right = np.linalg.norm(there.centers - expected, axis=1) < 3
    assert right.sum() >= 10
    assert right.mean() > 0.5
    turned = np.angle(np.exp(1j * (there.angles - here.angles)))[right]
    assert np.median(np.abs(turned - -math.pi / 2)) < 0.2  # x goes to -y: np.rot90 turns counter-clockwise


def test_no_frames(texture):
    none = Frames(np.zeros((0, 2)), np.zeros((0, 2, 2)))
    lafs = lafs_from_frames(none)
    assert lafs.shape == (1, 0, 2, 3)
    assert len(frames_from_lafs(lafs)) == 0
    with pytest.warns(UserWarning, match="no keypoints"):
        assert laf_descriptor(matchkernel.build("sum"))(as_tensor(texture), lafs).shape == (1, 0, 128)


@pytest.mark.parametrize(
    ("lafs", "error"),
    [
        (torch.zeros(2, 5, 2, 3), ArgumentError), (np.zeros((5, 3, 2)), ArgumentError),
        ([[1, 2, 3]], ArgumentTypeError),
    ],
)  # fmt: skip
def test_what_are_not_the_lafs_of_one_image_is_refused(lafs, error):
    with refuses(error):
        frames_from_lafs(lafs)


def test_missing_kornia_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia.feature", None)
    with refuses(MissingExtraError):
        laf_descriptor(matchkernel.build("sum"))
