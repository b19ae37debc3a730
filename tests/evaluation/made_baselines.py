"""Patches and weight files for tests of baselines."""

from pathlib import Path

import cv2
import numpy as np
import pytest

WEIGHTS = Path(__file__).resolve().parents[3] / "shared/data/weights"
FILES = {"tfeat": "tfeat-liberty.params", "hardtfeat": "HardTFeat.pth"} | dict.fromkeys(
    ("mkd-liberty", "mkd-notredame", "mkd-yosemite"), "mkd-concat-64.pth"
)


def weights(name):
    """The path of a weight file; the test is skipped where it is missing."""
    if not (WEIGHTS / name).is_file():
        pytest.skip(f"weights {name} are not here (they lie beside the checkout, not in it)")
    return WEIGHTS / name


def made_patches():
    """(200, 65, 65) random textures with some blur."""
    noise = np.random.default_rng(0).uniform(0, 255, (200, 65, 65)).astype(np.float32)
    smooth = np.stack([cv2.GaussianBlur(patch, (0, 0), 2.5) for patch in noise])
    return np.clip((smooth - 127) * 8 + 127, 0, 255).astype(np.uint8)
