"""Photos that lie on their side in the file are shown upright, and points are found again."""

import io

import numpy as np
import pytest
from made_images import texture
from PIL import Image, ImageOps

from matchkernel.colmap.georeference import read_gps
from matchkernel.explore.photos import decode
from matchkernel.explore.settings import ExploreSettings
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.pipeline import ImageMatches
from matchkernel.plots.matches import draw_matches, save_picture
from matchkernel.storage.images import as_jpeg, decode_photo, open_image, read_gray
from matchkernel.storage.pixels import as_colour, as_gray
from matchkernel.storage.upright import AS_STORED, ORIENTATION, TURNS, to_stored, turn_of, turned, turned_points

STORED = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10


def photo_file(pixels, orientation, kind="PNG"):
    file, exif = io.BytesIO(), Image.Exif()
    exif[ORIENTATION] = orientation
    exif.get_ifd(0x8769)[0xA405] = 35  # mm, the focal length on film
    exif.get_ifd(0x8825).update({1: "N", 2: (47.0, 30.0, 0.0), 3: "E", 4: (8.0, 0.0, 0.0)})
    Image.fromarray(pixels).save(file, kind, exif=exif.tobytes())
    return file.getvalue()


@pytest.mark.parametrize("orientation", [*range(1, 9), 0, 77])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP"])  # Pillow turns TIFF by itself
def test_a_photo_is_turned_as_its_header_says(orientation, kind):
    with Image.open(io.BytesIO(photo_file(STORED, orientation, kind))) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    with Image.open(io.BytesIO(photo_file(STORED, orientation, kind))) as image:
        pixels, turn = np.asarray(image), turn_of(image)
    np.testing.assert_array_equal(turned(pixels, turn), expected)


@pytest.mark.parametrize("orientation", [*range(1, 9), 77])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_pixels_are_read_as_they_are_stored_and_shown_upright(orientation, kind, tmp_path):
    path = tmp_path / "p"
    path.write_bytes(photo_file(STORED, orientation, kind))
    upright = turned(STORED, TURNS.get(orientation, AS_STORED))
    with open_image(path) as image:
        assert image.size == STORED.shape[::-1]
        assert image.getexif().get_ifd(0x8769)[0xA405] == 35
    assert read_gps(path) == (47.5, 8, 0)
    for form in (path, path.read_bytes()):
        np.testing.assert_array_equal(as_gray(form), STORED)
        pixels, turn = as_colour(form)
        np.testing.assert_array_equal(turned(pixels, turn), upright)
    gray, _, to_file = decode_photo(path.read_bytes(), "p", max_pixels=100, preview_side=100)
    np.testing.assert_array_equal(gray, upright)
    x, y, _ = (to_file @ [0, 0, 1]).astype(int)
    assert STORED[y, x] == upright[0, 0]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_jpeg_of_a_photo_keeps_its_header(kind, tmp_path):
    (tmp_path / "p").write_bytes(photo_file(STORED, 6, kind))
    with Image.open(io.BytesIO(as_jpeg(tmp_path / "p"))) as image:
        assert turn_of(image) == TURNS[6]


@pytest.mark.parametrize("turn", [AS_STORED, *TURNS.values()])
def test_points_are_found_again(turn):
    upright = turned(STORED, turn)
    rows, columns = np.indices(upright.shape).reshape(2, -1)
    points = np.column_stack([columns, rows, np.ones(rows.size)])
    x, y, _ = (to_stored(turn, *upright.shape[::-1]) @ points.T).astype(int)
    np.testing.assert_array_equal(STORED[y, x], upright[rows, columns])
    back = turned_points(np.column_stack([x, y]), turn, STORED.shape[::-1])
    np.testing.assert_array_equal(back, points[:, :2])


def test_the_page_turns_photos_and_shrinks_large_ones(tmp_path):
    y, x = np.mgrid[0:480, 0:640]
    pixels = np.where((x > 400) & (y > 300), 200, 50).astype(np.uint8)  # a bright corner
    data = photo_file(pixels, 6)
    photo = decode(data, "p", ExploreSettings(upload_pixels=40_000))  # of 307,200: by 3
    assert photo.gray.shape == (214, 160)
    assert photo.facts["shrunk"] == 3
    with Image.open(io.BytesIO(photo.jpeg)) as shown:
        assert shown.size == (160, 214)
    (tmp_path / "p.png").write_bytes(data)
    stored = read_gray(tmp_path / "p.png")
    corner = np.argwhere(photo.gray > 150)  # rows and columns of the bright pixels, upright
    for row, column in (corner.min(0) + 2, corner.max(0) - 2):
        x, y, _ = photo.to_file @ [column, row, 1]
        assert stored[round(y), round(x)] == 200
    assert len(corner) == pytest.approx((pixels == 200).sum() / 9, rel=0.03)


def test_48_million_pixels_are_shrunk_not_refused():
    photo = decode(photo_file(np.zeros((6048, 8064), np.uint8), 1, "JPEG"), "p", ExploreSettings())
    assert (photo.facts["width"], photo.facts["height"], photo.facts["shrunk"]) == (4032, 3024, 2)


@pytest.mark.parametrize("factor", [2, 3, 4, 5, 6, 8, 12])
@pytest.mark.parametrize("colour", [False, True])
def test_what_the_decoder_shrinks_has_the_places_and_gray_values_of_what_is_shrunk_after(factor, colour):
    pixels = texture(1, 403, 501)
    file = photo_file(np.dstack([pixels, pixels, 255 - pixels]) if colour else pixels, 1, "JPEG")
    limits = ExploreSettings(upload_pixels=403 * 501 // factor**2 + 1)
    photo = decode(file, "p", limits)
    with Image.open(io.BytesIO(file)) as image:
        stored = Image.fromarray(np.asarray(image))
    expected = np.asarray(stored.reduce(factor).convert("L")).astype(int)
    assert photo.gray.shape == expected.shape
    assert np.abs(photo.gray - expected).mean() < 1
    np.testing.assert_array_equal(photo.to_file[:2, 2], (factor - 1) / 2)


def test_pictures_of_matches_are_upright(tmp_path):
    a = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    (tmp_path / "a.png").write_bytes(photo_file(a, 8))
    (tmp_path / "b.png").write_bytes(photo_file(a, 1))
    points = np.array([[5.0, 10.0], [70.0, 50.0]])
    frames, rows = Frames(points, np.tile(np.eye(2), (2, 1, 1))), np.eye(2, dtype=np.float32)
    features = Features(frames, rows, np.ones(2, np.float32), (80, 60), "sift")
    found = ImageMatches((features,) * 2, Matches(np.array([[0, 0], [1, 1]]), np.zeros(2), np.zeros(2)), None, {})
    save_picture(found, tmp_path / "a.png", tmp_path / "b.png", tmp_path / "found.png")
    upright = np.rot90(a)
    turned_by_hand = np.column_stack([points[:, 1], 79 - points[:, 0]])
    expected = draw_matches(upright, a, turned_by_hand, points, None, "sift")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "found.png")), expected)
