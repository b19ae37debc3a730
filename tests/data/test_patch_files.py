"""Stacks of patches from .npy files and strips."""

import io

import numpy as np
import pytest
from helpers import refuses
from made_images import png_claiming
from PIL import Image

from matchkernel.data.patch_files import read_patches
from matchkernel.errors import FileError


@pytest.fixture
def patches():
    return np.random.default_rng(0).integers(0, 256, (5, 9, 9), dtype=np.uint8)


def test_npy_is_memory_mapped(patches, tmp_path):
    np.save(tmp_path / "p.npy", patches)
    read = read_patches(tmp_path / "p.npy")
    assert isinstance(read, np.memmap)
    assert np.array_equal(read, patches)


@pytest.mark.parametrize("mode", ["L", "RGB", "I;16"])
def test_a_strip_is_cut_into_patches_from_the_top(patches, tmp_path, mode):
    expected = patches.astype(np.uint16) * 257 if mode == "I;16" else patches
    strip = Image.fromarray(expected.reshape(-1, 9))
    (strip if mode == "I;16" else strip.convert(mode)).save(tmp_path / "p.png")
    read = read_patches(tmp_path / "p.png")
    assert read.dtype == expected.dtype
    assert np.array_equal(read, expected)


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def image(array, mode=None, kind="PNG"):
    file, made = io.BytesIO(), Image.fromarray(array)
    (made.convert(mode) if mode else made).save(file, format=kind)
    return file.getvalue()


ZEROS = np.zeros((5, 9, 9), np.uint8)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.txt", b"1 2 3"),
        ("flat.npy", npy(ZEROS[0])),
        ("wide.npy", npy(ZEROS[:, :, :5])),
        ("complex.npy", npy(ZEROS.astype(complex))),
        ("pickle.npy", npy(np.array([{}]), allow_pickle=True)),
        ("claims_too_much.npy", npy(ZEROS).replace(b"(5, 9, 9), }" + b" " * 12, b"(5, 9999999, 9999999), }")),
        ("odd.png", image(ZEROS[0][:, :5])),
        ("rgba.png", image(ZEROS[0], "RGBA")),
        ("jpeg.png", image(ZEROS[0], kind="JPEG")),
        ("bomb.png", png_claiming(30_000, 30_000)),
        ("hollow.png", png_claiming(9, 9)),
        ("empty.png", b""),
        ("absent.npy", None),
        ("v_lewis", {"ref.png": b""}),
        ("set", {"patches.npy": b""}),
        ("folder", {}),
    ],
)
def test_files_and_folders_that_are_refused(name, content, tmp_path):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
        for inner in content:
            (path / inner).touch()
    with refuses(FileError):
        read_patches(path)
