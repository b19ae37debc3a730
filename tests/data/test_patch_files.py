import contextlib
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_images import png_header
from PIL import Image

from matchkernel.data.patch_files import read_patches
from matchkernel.errors import FileError


@pytest.fixture
def patches():
    return np.random.default_rng(0).integers(0, 256, (5, 9, 9), dtype=np.uint8)


def strip_of(patches, path, mode=None):
    image = Image.fromarray(patches.reshape(-1, patches.shape[-1]))
    (image.convert(mode) if mode else image).save(path)
    return path


def test_npy_is_memory_mapped(patches, tmp_path):
    np.save(tmp_path / "p.npy", patches)
    read = read_patches(tmp_path / "p.npy")
    assert isinstance(read, np.memmap)
    assert np.array_equal(read, patches)


@pytest.mark.parametrize("mode", [None, "RGB"])
def test_strip_is_cut_into_patches_from_the_top(patches, tmp_path, mode):
    read = read_patches(strip_of(patches, tmp_path / "p.png", mode))
    assert read.dtype == np.uint8
    assert np.array_equal(read, patches)


def test_sixteen_bit_strip_keeps_its_values(patches, tmp_path):
    wide = patches.astype(np.uint16) * 257
    assert np.array_equal(read_patches(strip_of(wide, tmp_path / "p.png")), wide)


def test_an_hpatches_strip(hpatches_sample):
    read = read_patches(hpatches_sample / "ref.png")
    assert read.shape == (100, 65, 65)
    with Image.open(hpatches_sample / "ref.png") as image:
        assert np.array_equal(read[7], np.asarray(image)[7 * 65 : 8 * 65])


def refused(path, reason):
    with pytest.raises(FileError) as caught:
        read_patches(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_refused(patches, tmp_path):
    refused(tmp_path / "absent.npy", "no such file")
    refused(tmp_path, "is a folder")
    (tmp_path / "p.txt").write_text("1 2 3")
    refused(tmp_path / "p.txt", "not from .txt")
    np.save(tmp_path / "flat.npy", patches[0])
    refused(tmp_path / "flat.npy", "got (9, 9)")
    np.save(tmp_path / "wide.npy", patches[:, :, :5])
    refused(tmp_path / "wide.npy", "got (5, 9, 5)")
    np.savez(tmp_path / "z.npz", patches)
    (tmp_path / "z.npz").rename(tmp_path / "z.npy")
    refused(tmp_path / "z.npy", "an .npz archive")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    refused(tmp_path / "object.npy", "not a whole .npy array")
    Image.fromarray(patches[0][:, :5]).save(tmp_path / "odd.png")
    refused(
        tmp_path / "odd.png",
        "must be a multiple of its width, got 5 x 9 pixels; `matchkernel extract` describes photos",
    )
    with pytest.raises(FileError, match=r"5 x 9 pixels; give two photos$"):
        read_patches(tmp_path / "odd.png", "; give two photos")
    strip_of(patches, tmp_path / "rgba.png", "RGBA")
    refused(tmp_path / "rgba.png", "mode RGBA")
    Image.fromarray(patches[0]).save(tmp_path / "jpeg.jpg")
    (tmp_path / "jpeg.jpg").rename(tmp_path / "jpeg.png")
    refused(tmp_path / "jpeg.png", "not a whole image")
    (tmp_path / "bomb.png").write_bytes(png_header(30_000, 30_000))
    refused(tmp_path / "bomb.png", "more than")
    (tmp_path / "empty.png").touch()
    refused(tmp_path / "empty.png", "not a whole image")
    (tmp_path / "hollow.png").write_bytes(png_header(9, 9))
    refused(tmp_path / "hollow.png", "not a whole image")


def test_a_header_that_claims_too_much_is_refused_at_once(tmp_path):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 64, 64)})
    (tmp_path / "huge.npy").write_bytes(file.getvalue())
    refused(tmp_path / "huge.npy", "not a whole .npy array")


def valid_bytes(suffix):
    patches = np.random.default_rng(0).integers(0, 256, (3, 5, 5), dtype=np.uint8)
    file = io.BytesIO()
    if suffix == ".npy":
        np.save(file, patches)
    else:
        Image.fromarray(patches.reshape(-1, 5)).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize("suffix", [".npy", ".png"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_patches_or_our_error(suffix, tmp_path, data):
    content = bytearray(valid_bytes(suffix))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"p{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(FileError):
        read = read_patches(path)
        assert read.ndim in (3, 4)
        assert read.shape[-1] == read.shape[-2]


@pytest.mark.parametrize("suffix", [".npy", ".png"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_random_bytes_give_our_error(suffix, tmp_path, content):
    path = tmp_path / f"p{suffix}"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_patches(path)
