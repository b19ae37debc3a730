"""What match refuses before any work, and where it computes."""

from copy import copy

import numpy as np
import pytest
import torch
from helpers import refuses
from made_images import save, texture
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.photos.adapters.opencv import DescriptorExtractor
from matchkernel.photos.describers import open_describer
from matchkernel.photos.extract import extract
from matchkernel.photos.match import match
from matchkernel.photos.pipeline import match_images
from matchkernel.plots.matches import MARGIN, TITLE, draw_matches, title_of


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "a.png/m.png", "--json"], ["-o", "m.jpg"], ["-o", "m.png", "-o", "m.txt"], ["-o", "a.png"],
        ["--pixels", "nan", "--json"], ["--magnification", "1e300"], ["--edge", "1e300"], ["--filter", "ratio:2"],
        ["--filter", "wide"], ["--filter", "distance:-1"], ["--filter", "either:0.8"], ["--device", "banana"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_mistakes_are_reported_before_the_work_and_leave_nothing(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {name: save(texture(), tmp_path / name).read_bytes() for name in ("a.png", "b.png")}
    done = CliRunner().invoke(app, ["match", "a.png", "b.png", "--model", "sift", *options])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


WRONG = [("keypoints", 1.5), ("keypoints", "9"), ("keypoints", None), ("contrast", "low"), ("filter", "a"),
         ("filter", 3), ("pixels", None), ("geometry", "affine"), ("keypoint", 3)]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_options_that_are_refused(name, value):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=name):
        match_images(texture(), texture(), "sift", **{name: value})


def test_a_region_outside_the_image_describes_nothing():
    """Its patch would repeat the pixels of the edge."""
    frames = Frames.turned_squares(
        np.array([[-50.0, 60], [100, 60], [260, 60], [80, 200]]), np.full(4, 9.0), np.zeros(4)
    )
    network = matchkernel.build("sum", generator=torch.Generator().manual_seed(0))
    for model in ("sift", network):
        rows = extract(texture(), model, frames=frames).descriptors
        assert rows.any(1).tolist() == [False, True, False, False]


def test_opencv_manners_with_a_large_image_and_odd_arguments():
    image = texture(0, 300, 400)
    whole, small = (DescriptorExtractor("sift", keypoints=60, choice="strongest") for _ in range(2))
    small.detector = Detector(60, choice="strongest", most_pixels=40_000)
    mask = np.zeros_like(image)
    mask[:, :200] = 255
    points, rows = small.detectAndCompute(image, mask)
    assert len(points) == len(rows) > 10
    assert max(point.pt[0] for point in points) < 201
    near = [min(np.hypot(p.pt[0] - q.pt[0], p.pt[1] - q.pt[1]) for q in whole.detect(image)) for p in points[:5]]
    assert np.median(near) < 1
    assert max(point.octave & 255 for point in points) < 20  # 255 would be the doubled image, which was not searched
    with refuses(ArgumentTypeError):
        small.detect(image, [1])
    with refuses(ArgumentTypeError):
        small.compute(image, None)
    points[0].size = -3
    with refuses(ArgumentError):
        small.compute(image, points)
    with refuses(ArgumentError):
        DescriptorExtractor("sift", contrast=float("nan"))


@pytest.mark.parametrize("shape", [(900, 1300), (900, 1300, 3), (1, 5000), (5000, 7)])
def test_a_picture_is_reduced_by_means(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    none = np.empty((0, 2))
    picture = draw_matches(image, image, none, none, None)
    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (1440, 3)
    drawn = picture[TITLE:, MARGIN:720]
    drawn = drawn[(drawn != 255).any(2)]
    assert abs(drawn.mean() - image.mean()) < 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_finds_the_same_matches():
    rows = np.random.default_rng(0).normal(size=(2, 3000, 128)).astype(np.float32)
    there, here = (match(*rows, device=device) for device in ("cuda", "cpu"))
    assert (there.indices == here.indices).all()
    assert np.abs(there.distances - here.distances).max() < 1e-12
    network = matchkernel.build("sum", generator=torch.Generator().manual_seed(0))
    assert open_describer(network, device="cuda").device == "cuda:0"
    found = [match_images(texture(), texture(), network, keypoints=50, device=device) for device in ("cuda", "cpu")]
    assert (found[0].matches.indices == found[1].matches.indices).all()


def test_a_picture_of_what_was_not_verified_does_not_say_agree():
    both, one = np.array([True, True]), np.array([True, False])
    assert [title_of(both, None, ""), title_of(one, one, "")] == ["2 matches", "1 of 2 matches agree"]
    many = np.arange(400) < 350
    assert title_of(many, many, "a") == "a: 350 of 400 matches agree (at most 300 of each kind drawn)"
    points = np.array([[3.0, 4], [50, 60]])
    drawn = [draw_matches(texture(), texture(), points, points, inliers) for inliers in (None, both, one, ~both)]
    titles, images = ([part[:TITLE] for part in drawn], [part[TITLE:] for part in drawn])
    assert np.array_equal(images[0], images[1])
    assert not any(np.array_equal(titles[0], other) for other in titles[1:])
    assert not any(np.array_equal(images[0], other) for other in images[2:])


def test_a_loaded_model_keeps_its_name_and_its_distance():
    by_name, by_model = (open_describer(model) for model in ("light", matchkernel.load("light")))
    assert (by_name.name, by_name.settings) == (by_model.name, by_model.settings)
    assert by_name.settings["match_threshold"] < 1


def test_a_describer_stays_on_its_device():
    describer = open_describer("sum", untrained=True, device="cpu")
    assert all(open_describer(describer, device=word) is describer for word in (None, "auto", "cpu"))
    elsewhere = copy(describer)
    elsewhere.device = "cuda"
    with refuses(ArgumentError):
        open_describer(elsewhere, device="cpu")
    with refuses(ArgumentError):
        extract(texture(), describer, device="banana")
