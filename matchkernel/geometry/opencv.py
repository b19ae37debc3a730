"""OpenCV, where it is installed."""

from typing import Any

from matchkernel.errors import MissingExtraError


def load_opencv() -> Any:
    """The module cv2, or an error that names the extra which brings it."""
    try:
        import cv2
    except ImportError:
        raise MissingExtraError(
            "keypoints and patches of photos need OpenCV: pip install 'matchkernel[images]'"
        ) from None
    return cv2
