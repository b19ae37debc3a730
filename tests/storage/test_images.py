"""Photos of every format and mode are read as gray or refused on one line, and PNGs are written whole."""

import contextlib
import io
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from made_images import jpeg_of_scans, png_claiming
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


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm", "gif", "webp"])
def test_eight_bit_gray_is_read_as_it_is(suffix, tmp_path):
    image = Image.fromarray(RAMP).convert("RGB") if suffix == "webp" else Image.fromarray(RAMP)
    path = saved(image, tmp_path / f"p.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    read = read_gray(path)
    assert read.dtype == np.uint8
    assert read.flags.writeable
    assert np.array_equal(read, RAMP)
    assert np.array_equal(read_gray(str(path)), RAMP)


def test_heic_is_recognised_by_its_content(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "p.jpg"
    gray = np.kron(RAMP, np.ones((8, 8), np.uint8))
    pillow_heif.from_pillow(Image.fromarray(gray).convert("RGB")).save(tmp_path / "p.heic", quality=95)
    (tmp_path / "p.heic").rename(path)
    assert np.abs(read_gray(path).astype(int) - gray).mean() < 3
    path.write_bytes(path.read_bytes()[:200])
    with refuses(FileError):
        read_gray(path)


def test_without_the_extra_a_heic_photo_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "p.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    with pytest.raises(FileError, match=r"pip install 'matchkernel\[heic\]'"):
        read_gray(tmp_path / "p.heic")


COLOURS = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]]], np.uint8)
NEGATIVE = Image.fromarray(RAMP // 10)
NEGATIVE.putpalette([value for k in range(256) for value in (255 - k,) * 3])
MODES = {  # mode in the file, image, suffix, gray
    "sixteen bits lose their lower byte": ("I;16", Image.fromarray(RAMP.astype(np.uint16) * 256 + 255), "png", RAMP),
    "so they do in a TIFF": ("I;16", Image.fromarray(RAMP.astype(np.uint16) * 256 + 255), "tif", RAMP),
    "thirty-two bits if sixteen suffice": ("I", Image.fromarray(RAMP.astype(np.int32) * 256), "tif", RAMP),
    "colours by ITU-R 601": ("RGB", Image.fromarray(COLOURS), "png", [[76, 150, 29, 9]]),  # 0.299, 0.587, 0.114 of 255
    "transparent gray": ("LA", Image.merge("LA", [Image.fromarray(RAMP), Image.new("L", (13, 12))]), "png", RAMP),
    "transparent colour": (
        "RGBA",
        Image.merge("RGBA", [Image.fromarray(RAMP)] * 3 + [Image.new("L", (13, 12))]),
        "png",
        RAMP,
    ),
    "a palette": ("P", NEGATIVE, "png", 255 - RAMP // 10),
    "one bit": ("1", Image.fromarray(RAMP > 100), "png", np.where(RAMP > 100, 255, 0)),
}


@pytest.mark.parametrize(("mode", "image", "suffix", "gray"), MODES.values(), ids=MODES)
def test_every_mode_becomes_gray_without_transparency(mode, image, suffix, gray, tmp_path):
    path = saved(image, tmp_path / f"p.{suffix}")
    assert mode_of(path) == mode
    assert np.array_equal(read_gray(path), gray)


def test_inks_become_gray(tmp_path):
    """Paper, black ink, all three colours; each fills whole JPEG blocks, so only quantisation moves the values."""
    inks = np.zeros((8, 24, 4), np.uint8)
    inks[:, 8:16, 3] = 255
    inks[:, 16:, :3] = 255
    path = saved(Image.frombytes("CMYK", (24, 8), inks.tobytes()), tmp_path / "inks.jpg")
    assert mode_of(path) == "CMYK"
    assert np.abs(read_gray(path).astype(int) - np.repeat([255, 0, 0], 8)).max() <= 4


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    frames = [Image.fromarray(np.full((5, 6), value, np.uint8)) for value in (10, 200, 90)]
    path = saved(frames[0], tmp_path / "p.gif", save_all=True, append_images=frames[1:])
    assert np.array_equal(read_gray(path), np.full((5, 6), 10))


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_pixels_keep_their_order_whatever_exif_says(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = saved(Image.fromarray(RAMP), tmp_path / "turned.jpg", exif=exif)
    plain = saved(Image.fromarray(RAMP), tmp_path / "plain.jpg")
    with Image.open(turned) as image:
        assert image.getexif()[0x0112] == orientation
    assert np.array_equal(read_gray(turned), read_gray(plain))
    assert np.abs(read_gray(turned).astype(int) - RAMP).max() < 25  # JPEG's loss at Pillow's quality 75, no turn


def test_warnings_of_pillow_are_silenced(tmp_path):
    """A warning would be an error here. Pillow warns about palettes with transparency in bytes."""
    path = saved(Image.fromarray(RAMP).convert("P"), tmp_path / "p.png", transparency=b"\0\1\2")
    assert read_gray(path).shape == RAMP.shape


def test_a_jpeg_of_thousands_of_scans_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "scans.jpg"
    path.write_bytes(jpeg_of_scans(8000))
    begun = time.process_time()
    with pytest.raises(FileError, match="scans"):
        read_gray(path)
    assert time.process_time() - begun < 5
    path.write_bytes(jpeg_of_scans(50))
    assert read_gray(path).shape == (16, 16)


def refused_files(folder):
    wide, noise = RAMP.astype(np.int32) * 256, np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    yield folder / "absent.png"
    yield folder
    for name, content in {
        "empty.png": b"",
        "text.jpg": b"these are words\nin two lines",
        "hollow.png": png_claiming(9, 9),
        "bomb.png": png_claiming(30_000, 30_000),
        "large.png": png_claiming(10_000, MAX_PIXELS // 10_000 + 1),
        "bomb.pgm": b"P5 1000000 1000000 255\n",
    }.items():
        (folder / name).write_bytes(content)
        yield folder / name
    yield saved(Image.fromarray(wide + 65536), folder / "large.tif")
    yield saved(Image.fromarray(wide - 1), folder / "negative.tif")
    yield saved(Image.fromarray(RAMP.astype(np.float32)), folder / "float.tif")
    yield saved(Image.new("LAB", (5, 4), (120, 10, 20)), folder / "lab.tif")  # Pillow cannot convert it
    for suffix in ("png", "jpg", "bmp", "tif", "pgm", "webp"):
        path = saved(Image.fromarray(noise).convert("RGB"), folder / f"half.{suffix.replace('pgm', 'ppm')}")
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        yield path


def test_files_that_are_refused(tmp_path):
    for path in refused_files(tmp_path):
        for read in (read_gray, read_colour, as_jpeg):
            with refuses(FileError):
                read(path)


@pytest.mark.parametrize("error", [MemoryError(), OSError("out of memory error when reading image file")])
def test_too_little_memory_is_reported(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    path = saved(Image.fromarray(RAMP), tmp_path / "p.png")
    monkeypatch.setattr(Image.Image, "convert", fail)
    with pytest.raises(FileError, match="memory"):
        read_gray(path)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_reading_a_photo_starts_no_other_program(tmp_path, monkeypatch):
    (tmp_path / "photo.jpg").write_bytes(EPS)
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with refuses(FileError):
        read_gray(tmp_path / "photo.jpg")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("pixels", [RAMP, np.dstack([RAMP, 255 - RAMP, RAMP // 2])])
def test_write_png_writes_the_pixels_and_the_same_bytes_each_time(pixels, tmp_path):
    write_png(tmp_path / "p.png", pixels)
    write_png(tmp_path / "q.png", pixels)
    with Image.open(tmp_path / "p.png") as image:
        assert np.array_equal(np.asarray(image), pixels)
    assert (tmp_path / "p.png").read_bytes() == (tmp_path / "q.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.png", "q.png"]


def test_write_png_keeps_the_old_picture_if_the_disk_is_full(small_disk):
    mount = small_disk("64k")
    write_png(mount / "p.png", RAMP)
    with refuses(WriteError):
        write_png(mount / "p.png", np.random.default_rng(0).integers(0, 256, (400, 400), dtype=np.uint8))
    assert np.array_equal(read_gray(mount / "p.png"), RAMP)
    assert [path.name for path in mount.iterdir()] == ["p.png"]


def valid_bytes(suffix):
    file = io.BytesIO()
    image = Image.fromarray(RAMP).convert("RGB") if suffix in ("jpeg", "ppm") else Image.fromarray(RAMP)
    image.save(file, format=suffix)
    return file.getvalue()


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


def test_photos_are_read_at_the_same_time(tmp_path):
    saved(Image.new("L", (8, 8)), tmp_path / "a.png")
    both = threading.Barrier(2, timeout=20)

    def read(_):
        with open_image(tmp_path / "a.png"):
            both.wait()  # until the other thread is inside too
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(read, range(2)))
