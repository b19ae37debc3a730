"""OpenCV, where it is installed."""

from types import ModuleType

from matchkernel.storage.extras import need


def load_opencv() -> ModuleType:
    """The module cv2, or an error that names the extra which brings it."""
    return need("cv2", "photos", "finding and cutting keypoints")
