"""What the tests of reconstructions share."""

from matchkernel.collection.reconstruct import ReconstructSettings
from matchkernel.geometry.detect import Detector

SETTINGS = ReconstructSettings(Detector(keypoints=500))
