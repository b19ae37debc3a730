"""What the tests of reconstructions share."""

import shutil

import pytest

from matchkernel.collection.reconstruct import ReconstructSettings
from matchkernel.geometry.detect import Detector

needs_colmap = pytest.mark.skipif(
    shutil.which("colmap") is None, reason="COLMAP is not installed (apt-get install colmap)"
)
SETTINGS = ReconstructSettings(Detector(keypoints=500))
