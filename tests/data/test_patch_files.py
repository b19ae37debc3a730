"""Stacks of patches from .npy files and strips."""

import contextlib
import io

import numpy as np
import pytest
from damage import damaged
from helpers import refuses
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


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def image(array, mode=None, kind="PNG"):
    file, made = io.BytesIO(), Image.fromarray(array)
    (made.convert(mode) if mode else made).save(file, format=kind)
    return file.getvalue()


def npz(array):
    file = io.BytesIO()
    np.savez(file, array)
    return file.getvalue()


def header(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


ZEROS = np.zeros((5, 9, 9), np.uint8)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.txt", b"1 2 3"),
        ("flat.npy", npy(ZEROS[0])),
        ("wide.npy", npy(ZEROS[:, :, :5])),
        ("complex.npy", npy(ZEROS.astype(complex))),
        ("archive.npy", npz(ZEROS)),
        ("pickle.npy", npy(np.array([{}]), allow_pickle=True)),
        ("claims_too_much.npy", header((10**12, 64, 64))),
        ("odd.png", image(ZEROS[0][:, :5])),
        ("rgba.png", image(ZEROS[0], "RGBA")),
        ("jpeg.png", image(ZEROS[0], kind="JPEG")),
        ("bomb.png", png_header(30_000, 30_000)),
        ("hollow.png", png_header(9, 9)),
        ("empty.png", b""),
    ],
)
def test_files_that_are_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with refuses(FileError):
        read_patches(tmp_path / name)


def test_folders_and_missing_files_are_refused(hpatches_sample, tmp_path):
    (tmp_path / "patches.npy").touch()
    for path in (tmp_path / "absent.npy", tmp_path, hpatches_sample, hpatches_sample.parent):
        with refuses(FileError):
            read_patches(path)


@pytest.mark.parametrize("suffix", [".npy", ".png"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_patches_or_our_error(suffix, tmp_path, data):
    patches = np.random.default_rng(0).integers(0, 256, (3, 5, 5), dtype=np.uint8)
    content = damaged(data, npy(patches) if suffix == ".npy" else image(patches.reshape(-1, 5)))
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
