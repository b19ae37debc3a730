"""A small PhotoTourism set of two mosaics, and what tests of its packing share."""

import numpy as np
import torch
from helpers import refuses

from matchkernel.data.phototourism import pack_phototourism, write_mosaics, write_tables
from matchkernel.errors import FileError

COUNT = 300  # one mosaic and a part of a second
number, row, column = np.ogrid[:COUNT, :64, :64]
PATCHES = (number % 128 + number // 128 % 2 * row + number // 256 * column).astype(np.uint8)  # all different
LABELS = np.array([5, 0, 5, 9000, -7, 2**40, *(k // 3 * 2 for k in range(6, COUNT))])  # gaps, singletons, unsorted
INTEREST = np.column_stack([np.arange(COUNT) // 7, np.linspace(0, 800, COUNT), *np.ones((3, COUNT))])
PAIRS = {
    "m50_4_4_0": np.array([[0, 2, 1], [6, 8, 1], [3, 4, 0], [299, 1, 0]]),
    "m50_2_2_0": np.array([[9, 10, 1], [5, 250, 0]]),
}


def write_set(folder):
    """The set as the package writes it."""
    folder.mkdir()
    assert [path.name for path in write_mosaics(folder, PATCHES)] == ["patches0000.png", "patches0001.png"]
    write_tables(folder, LABELS, INTEREST, PAIRS)
    return folder


def refused(source, target, error=FileError):
    """The packing fails with one line and leaves no target."""
    with refuses(error):
        pack_phototourism(source, target)
    assert not target.exists()


def write_cache(path, patches=PATCHES, labels=LABELS, matches=PAIRS["m50_4_4_0"]):
    """A .pt file as torchvision caches it."""
    torch.save(tuple(torch.from_numpy(np.asarray(array)) for array in (patches, labels, matches)), path)
    return path


def same_set(read, patches=PATCHES):
    """An opened patch set holds what was written."""
    assert np.array_equal(read.patches, patches)
    assert np.array_equal(read.labels, LABELS)
    assert read.pairs.keys() == PAIRS.keys()
    assert all(np.array_equal(read.pairs[name], PAIRS[name]) for name in PAIRS)
    assert np.array_equal(read.columns["reference_image"], INTEREST[:, 0])
