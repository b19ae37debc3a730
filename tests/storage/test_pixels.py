"""Whatever can be given as an image: the same picture gives the same pixels, and the rest is refused in one line."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from made_images import png_claiming, texture
from PIL import Image

from matchkernel.data.sample_pair import FOLDER
from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError
from matchkernel.photos.adapters.opencv import DescriptorExtractor
from matchkernel.photos.extract import extract
from matchkernel.photos.matcher import Matcher
from matchkernel.photos.pipeline import match_images
from matchkernel.plots.matches import save_picture
from matchkernel.storage.images import read_colour, read_gray
from matchkernel.storage.pixels import as_colour, as_gray

GRAY = texture(3)
RGB = np.stack([GRAY, texture(4), texture(5)], 2)


def png(pixels, **options):
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, "PNG", **options)
    return file.getvalue()


def channels_first(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)


@pytest.fixture(params=["gray", "colour", "transparent", "palette", "16 bit", "two-coloured", "turned"])
def picture(request, tmp_path):
    """A file."""
    made = {
        "gray": lambda: png(GRAY),
        "colour": lambda: png(RGB),
        "transparent": lambda: png(np.dstack([RGB, GRAY])),
        "palette": lambda: png(Image.fromarray(RGB).quantize(200)),
        "16 bit": lambda: png(GRAY.astype(np.uint16) * 256 + 77),
        "two-coloured": lambda: png(Image.fromarray(GRAY).convert("1")),
        "turned": lambda: png(RGB, exif=turned_to_the_right()),
    }
    path = tmp_path / "picture.png"
    path.write_bytes(made[request.param]())
    return path


def turned_to_the_right():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def test_a_file_its_bytes_and_its_pil_image_are_the_same_picture(picture):
    """A palette image too, whose array holds numbers of colours that look like gray values."""
    expected, colours = read_gray(picture), read_colour(picture)
    with Image.open(picture) as opened:
        for form in (str(picture), picture.read_bytes(), bytearray(picture.read_bytes()), opened, opened.copy()):
            np.testing.assert_array_equal(as_gray(form), expected)
            np.testing.assert_array_equal(as_colour(form)[0], colours)


@pytest.mark.parametrize("pixels", [GRAY, RGB, np.dstack([RGB, GRAY])], ids=["gray", "rgb", "rgba"])
def test_arrays_and_tensors_of_all_types_are_the_same_picture(pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected, colours = read_gray(tmp_path / "a.png"), read_colour(tmp_path / "a.png")
    arrays = [pixels, pixels.astype(np.uint16) << 8, pixels / 255, (pixels / 255).astype(np.float32)]
    forms = [*arrays, *(channels_first(array) if array.ndim == 3 else torch.from_numpy(array) for array in arrays)]
    forms += [pixels[::-1].copy()[::-1], arrays[1].astype(">u2"), forms[-1].half(), forms[-1].clone().requires_grad_()]
    if pixels.ndim == 2:
        forms += [pixels[..., None], torch.from_numpy(pixels)[None]]
    for form in forms:
        np.testing.assert_array_equal(as_gray(form), expected)
        np.testing.assert_array_equal(as_colour(form)[0], colours)


def closed_image():
    with Image.open(FOLDER / "left.png") as opened:
        return opened


WRONG = {
    "floats to 255": lambda: RGB.astype(float),
    "NaN": lambda: np.full((9, 9), np.nan),
    "whole numbers": lambda: RGB.astype(np.int64),
    "truth values": lambda: GRAY > 9,
    "a list": lambda: RGB.tolist(),
    "channels first": lambda: np.moveaxis(RGB, 2, 0),
    "a tensor with channels last": lambda: torch.from_numpy(RGB),
    "a tensor of two channels": lambda: torch.zeros(2, 4, 4),
    "a batch": lambda: channels_first(RGB)[None],
    "a sparse tensor": lambda: torch.zeros(3, 4, 4).to_sparse(),
    "a tensor on no device": lambda: torch.zeros(3, 4, 4, device="meta"),
    "complex numbers": lambda: torch.zeros(4, 4, dtype=torch.cfloat),
    "infinity": lambda: torch.full((4, 4), torch.inf),
    "huge numbers": lambda: torch.full((4, 4), 3e38),
    "truth values of torch": lambda: torch.zeros(4, 4, dtype=torch.bool),
    "an opened file": lambda: io.BytesIO(png(RGB)),
    "nothing": lambda: None,
    "no pixels": lambda: RGB[:0],
    "bytes of text": lambda: b"not an image",
    "no bytes": lambda: b"",
    "a header that claims too much": lambda: png_claiming(30_000, 30_000),
    "gray floats of Pillow": lambda: Image.new("F", (9, 9)),
    "a PIL image whose file was closed": closed_image,
}


@pytest.mark.parametrize("image", WRONG.values(), ids=WRONG)
def test_what_is_no_image_is_refused_in_one_line(image):
    for function in (as_gray, as_colour):
        with refuses(MatchKernelError):
            function(image())


MATCHED = match_images(GRAY, GRAY, "sift", keypoints=50)


def in_picture(image, folder):
    save_picture(MATCHED, image, GRAY, folder / "p.png")
    return len(MATCHED.features[0])


def in_opened_matcher(image, folder):
    with Matcher("sift", keypoints=50) as matcher:
        return len(matcher(GRAY, image).features[1])


FUNCTIONS = {
    "extract": lambda image, folder: len(extract(image, "sift", keypoints=50)),
    "match_images": lambda image, folder: len(match_images(GRAY, image, "sift", keypoints=50).features[1]),
    "match_images, aligned": lambda image, folder: len(
        match_images(image, GRAY, "sift", keypoints=50, align=True).features[0]
    ),
    "Matcher": in_opened_matcher,
    "save_picture": in_picture,
    "DescriptorExtractor": lambda image, folder: len(DescriptorExtractor("sift", keypoints=50).detect(image)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_function_takes_images_in_any_form_and_refuses_what_is_none(function, tmp_path):
    (tmp_path / "a.png").write_bytes(png(RGB))
    for image in (tmp_path / "a.png", Image.fromarray(RGB).quantize(64), channels_first(RGB).float() / 255):
        assert function(image, tmp_path) >= 30
    for image in (RGB.tolist(), RGB.astype(float)):
        with refuses(MatchKernelError):
            function(image, tmp_path)


@pytest.mark.parametrize(
    ("image", "error", "advice"),
    [
        (np.moveaxis(RGB, 2, 0), ArgumentError, "moveaxis"),
        (channels_first(RGB)[None], ArgumentError, "batch"),
        (RGB.astype(np.float32), ArgumentError, "from 0 to 1"),
        (RGB.astype(np.int32), ArgumentTypeError, "uint8"),
        (io.BytesIO(), ArgumentTypeError, r"read\(\)"),
        (MATCHED.features[0], ArgumentTypeError, "match_images"),
    ],
)
def test_the_advice_fits_the_mistake(image, error, advice):
    with pytest.raises(error, match=advice):
        as_gray(image)


def test_reading_arrays_and_files_imports_no_torch_and_arrays_no_pillow():
    code = """
import sys, numpy
from matchkernel.storage.pixels import as_gray
as_gray(numpy.zeros((3, 4, 3)))
print("torch" in sys.modules, "PIL" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


ODD = arrays_of.arrays(
    st.one_of(arrays_of.scalar_dtypes(), arrays_of.nested_dtypes(max_leaves=2)),
    arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


@settings(max_examples=150, deadline=None)
@given(ODD | st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: png(GRAY[:9, :9])[:60] + tail))
def test_any_array_and_any_bytes_become_pixels_or_one_line(image):
    for function, axes in ((as_gray, (2,)), (lambda given: as_colour(given)[0], (2, 3))):
        try:
            pixels = function(image)
        except MatchKernelError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017 - most are refused
        else:
            assert pixels.dtype == np.uint8
            assert pixels.ndim in axes
            assert pixels.size
