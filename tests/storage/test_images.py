import contextlib
import io
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_images import png_header
from PIL import Image

from matchkernel.errors import FileError, MatchKernelError, WriteError
from matchkernel.storage.images import MAX_PIXELS, as_jpeg, open_image, read_colour, read_gray, write_png

RAMP = np.add.outer(np.arange(0, 120, 10), np.arange(0, 130, 10)).astype(np.uint8)  # (12, 13)


def saved(image, path, **options):
    image.save(path, **options)
    return path


def mode_of(path):
    with Image.open(path) as image:
        return image.mode


def refused(path, reason):
    with pytest.raises(FileError) as caught:
        read_gray(path)
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm", "gif"])
def test_eight_bit_gray_is_read_as_it_is(suffix, tmp_path):
    read = read_gray(saved(Image.fromarray(RAMP), tmp_path / f"p.{suffix}"))
    assert read.dtype == np.uint8
    assert np.array_equal(read, RAMP)
    assert read.flags.writeable


def test_webp_is_read(tmp_path):
    lossless = saved(Image.fromarray(RAMP).convert("RGB"), tmp_path / "p.webp", lossless=True)
    assert np.array_equal(read_gray(lossless), RAMP)
    lossless.write_bytes(lossless.read_bytes()[:40])
    refused(lossless, "not a whole image")


def test_heic_is_read(tmp_path):
    """With the extra `heic`; what makes a HEIC file is its content, not its name."""
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "p.jpg"
    gray = np.kron(RAMP, np.ones((8, 8), np.uint8))
    pillow_heif.from_pillow(Image.fromarray(gray).convert("RGB")).save(tmp_path / "p.heic", quality=95)
    (tmp_path / "p.heic").rename(path)
    assert np.abs(read_gray(path).astype(int) - gray).mean() < 3
    path.write_bytes(path.read_bytes()[:200])
    refused(path, "not a whole image")


def test_without_the_extra_a_heic_photo_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "p.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    refused(tmp_path / "p.heic", "reading HEIC photos needs pillow-heif: pip install 'matchkernel[heic]'")


def test_a_string_will_do_for_a_path(tmp_path):
    assert np.array_equal(read_gray(str(saved(Image.fromarray(RAMP), tmp_path / "p.png"))), RAMP)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_lose_their_lower_byte(suffix, tmp_path):
    wide = RAMP.astype(np.uint16) * 256 + 255
    assert np.array_equal(read_gray(saved(Image.fromarray(wide), tmp_path / f"p.{suffix}")), RAMP)


def test_thirty_two_bits_are_read_where_sixteen_would_do_and_else_refused(tmp_path):
    wide = RAMP.astype(np.int32) * 256
    assert np.array_equal(read_gray(saved(Image.fromarray(wide), tmp_path / "p.tif")), RAMP)
    refused(saved(Image.fromarray(wide + 65536), tmp_path / "large.tif"), "beyond 16 bits")
    refused(saved(Image.fromarray(wide - 1), tmp_path / "negative.tif"), "beyond 16 bits")


def test_floating_point_is_refused(tmp_path):
    refused(saved(Image.fromarray(RAMP.astype(np.float32)), tmp_path / "p.tif"), "save 8 or 16 bits")


def test_a_colour_mode_that_pillow_cannot_convert_is_named(tmp_path):
    path = saved(Image.new("LAB", (5, 4), (120, 10, 20)), tmp_path / "lab.tif")
    for read in (read_gray, read_colour, as_jpeg):
        with pytest.raises(FileError, match=r"tif: the colour mode LAB is not read; save the photo as RGB or gray$"):
            read(path)


def test_colours_are_weighed_as_itu_r_601_does(tmp_path):
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]]], np.uint8)
    path = saved(Image.fromarray(colours), tmp_path / "p.png")
    assert read_gray(path).tolist() == [[76, 150, 29, 9]]  # 0.299, 0.587, 0.114 of 255, rounded


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparency_is_dropped(mode, tmp_path):
    image = Image.fromarray(RAMP).convert(mode)
    image.putalpha(0)
    assert np.array_equal(read_gray(saved(image, tmp_path / "p.png")), RAMP)


def test_a_palette_is_looked_up(tmp_path):
    image = Image.fromarray(RAMP // 10)
    image.putpalette([value for k in range(256) for value in (255 - k,) * 3])
    path = saved(image, tmp_path / "p.png")
    assert mode_of(path) == "P"
    assert np.array_equal(read_gray(path), 255 - RAMP // 10)


def test_one_bit_is_black_and_white(tmp_path):
    path = saved(Image.fromarray(RAMP > 100), tmp_path / "p.png")
    assert mode_of(path) == "1"
    assert np.array_equal(read_gray(path), np.where(RAMP > 100, 255, 0))


def test_cmyk_jpeg(tmp_path):
    inks = np.zeros((8, 24, 4), np.uint8)
    inks[:, 8:16, 3] = 255
    inks[:, 16:, :3] = 255
    path = saved(Image.frombytes("CMYK", (24, 8), inks.tobytes()), tmp_path / "p.jpg")
    assert mode_of(path) == "CMYK"
    read = read_gray(path).astype(int)
    # Paper, black ink, all three colours; each fills whole JPEG blocks, so only quantisation moves the values.
    for columns, value in ((slice(0, 8), 255), (slice(8, 16), 0), (slice(16, 24), 0)):
        assert np.abs(read[:, columns] - value).max() <= 4


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    frames = [Image.fromarray(np.full((5, 6), value, np.uint8)) for value in (10, 200, 90)]
    path = saved(frames[0], tmp_path / "p.gif", save_all=True, append_images=frames[1:])
    with Image.open(path) as image:
        assert image.n_frames == 3
    assert np.array_equal(read_gray(path), np.full((5, 6), 10))


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_pixels_stay_where_they_are_whatever_exif_says(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = saved(Image.fromarray(RAMP), tmp_path / "turned.jpg", exif=exif)
    plain = saved(Image.fromarray(RAMP), tmp_path / "plain.jpg")
    with Image.open(turned) as image:
        assert image.getexif()[0x0112] == orientation
    assert np.array_equal(read_gray(turned), read_gray(plain))
    assert np.abs(read_gray(turned).astype(int) - RAMP).max() < 25  # JPEG's loss at Pillow's quality 75, no turn


def test_one_pixel(tmp_path):
    assert read_gray(saved(Image.fromarray(RAMP[3:4, 4:5]), tmp_path / "p.png")).tolist() == [[70]]


def test_files_that_are_refused(tmp_path):
    refused(tmp_path / "absent.png", "no such file")
    refused(tmp_path, "is a folder, expected an image")
    (tmp_path / "empty.png").touch()
    refused(tmp_path / "empty.png", "not a whole image")
    (tmp_path / "text.jpg").write_text("these are words\nin two lines")
    refused(tmp_path / "text.jpg", "not a whole image")
    (tmp_path / "hollow.png").write_bytes(png_header(9, 9))
    refused(tmp_path / "hollow.png", "not a whole image")


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "pgm"])
def test_half_a_photo_is_refused(suffix, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    path = saved(Image.fromarray(noise), tmp_path / f"p.{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(path, "not a whole image")


def test_a_header_that_claims_too_much_is_refused_at_once(tmp_path):
    (tmp_path / "bomb.png").write_bytes(png_header(30_000, 30_000))
    refused(tmp_path / "bomb.png", "claims far more than 100,000,000 pixels")
    (tmp_path / "large.png").write_bytes(png_header(10_000, MAX_PIXELS // 10_000 + 1))
    refused(tmp_path / "large.png", "10000 x 10001 pixels are more than 100,000,000")
    (tmp_path / "bomb.pgm").write_bytes(b"P5 1000000 1000000 255\n")
    refused(tmp_path / "bomb.pgm", "claims far more")


def test_too_little_memory_is_told_as_that(tmp_path, monkeypatch):
    path = saved(Image.fromarray(RAMP), tmp_path / "p.png")
    for error in (MemoryError(), OSError("out of memory error when reading image file"), np.exceptions.AxisError("x")):
        monkeypatch.setattr(Image.Image, "convert", lambda *_, raised=error: _raise(raised))
        reason = "not a whole image (x)" if "x" in str(error)[:1] else "not enough memory to decode 13 x 12 pixels"
        refused(path, reason)


def _raise(error):
    raise error


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_reading_a_photo_starts_no_other_program(tmp_path, monkeypatch):
    (tmp_path / "photo.jpg").write_bytes(EPS)
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    refused(tmp_path / "photo.jpg", "not a whole image")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("pixels", [RAMP, np.dstack([RAMP, 255 - RAMP, RAMP // 2])])
def test_write_png_writes_the_pixels_and_the_same_bytes_each_time(pixels, tmp_path):
    write_png(tmp_path / "p.png", pixels)
    write_png(tmp_path / "q.png", pixels)
    with Image.open(tmp_path / "p.png") as image:
        assert np.array_equal(np.asarray(image), pixels)
    assert (tmp_path / "p.png").read_bytes() == (tmp_path / "q.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.png", "q.png"]


def test_write_png_keeps_the_old_picture_where_the_disk_is_full(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small tmpfs here")
    try:
        write_png(mount / "p.png", RAMP)
        with pytest.raises(WriteError, match=r"p\.png: could not be written"):
            write_png(mount / "p.png", np.random.default_rng(0).integers(0, 256, (400, 400), dtype=np.uint8))
        assert np.array_equal(read_gray(mount / "p.png"), RAMP)
        assert [path.name for path in mount.iterdir()] == ["p.png"]
    finally:
        subprocess.run(["umount", mount], check=True)


def valid_bytes(suffix):
    file = io.BytesIO()
    image = Image.fromarray(RAMP).convert("RGB") if suffix in ("jpeg", "ppm") else Image.fromarray(RAMP)
    image.save(file, format=suffix)
    return file.getvalue()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suffix=st.sampled_from(["png", "jpeg", "bmp", "tiff", "ppm", "gif"]), data=st.data())
def test_damaged_photos_give_gray_or_our_error(suffix, tmp_path, data):
    content = bytearray(valid_bytes(suffix))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            # A flipped bit low in a byte changes sizes a little: headers that claim 100 million are tested above.
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / f"p.{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(MatchKernelError):
        read = read_gray(path)
        assert read.ndim == 2
        assert read.dtype == np.uint8


STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\0", b"P5 ", b"GIF89a"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=200))
def test_random_bytes_give_our_error(tmp_path, start, rest):
    path = tmp_path / "p.png"
    path.write_bytes(start + rest)
    with contextlib.suppress(FileError):
        assert read_gray(path).dtype == np.uint8


def test_photos_are_read_at_the_same_time(tmp_path):
    saved(Image.new("L", (8, 8)), tmp_path / "a.png")
    both = threading.Barrier(2, timeout=20)

    def read(_):
        with open_image(tmp_path / "a.png"):
            both.wait()  # for the other, inside too
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(read, range(2)))


def test_threads_leave_the_filters_of_warnings_as_they_were(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400), dtype=np.uint8)
    write_png(tmp_path / "a.png", pixels)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read_gray, [tmp_path / "a.png"] * 64))
    assert all(np.array_equal(image, pixels) for image in found)
    assert warnings.filters == before
