"""Random copies of a photo: seen through a homography, in another light, blurred, noisy, compressed."""

import numpy as np

from matchkernel.storage.extras import need_opencv

CORNER, SHIFT = 0.18, 0.12  # maximum shift of a corner, and of the whole, in sides
ZOOM_OUT, ZOOM_IN = 0.6, 0.5  # maximum logarithms
FREE_TURNS, SMALL_TURN = 0.5, 0.35  # share of copies turned by any angle; maximum angle of the others
BORDER = 21  # pixels at the border of the warped photo without keypoints


def random_homography(size: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """(3, 3) from a photo of this width and height to a copy of the same size."""
    cv2, sides = need_opencv(), np.array(size, np.float64)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * sides
    moved = corners + random.uniform(-CORNER, CORNER, (4, 2)) * sides
    H = cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32))
    most = np.pi if random.random() < FREE_TURNS else SMALL_TURN
    a, s = random.uniform(-most, most), np.exp(random.uniform(-ZOOM_OUT, ZOOM_IN))
    similarity = np.array([[s * np.cos(a), -s * np.sin(a), 0], [s * np.sin(a), s * np.cos(a), 0], [0, 0, 1]])
    similarity[:2, 2] = sides / 2 - similarity[:2, :2] @ (sides / 2) + random.uniform(-SHIFT, SHIFT, 2) * sides
    return np.asarray(similarity @ H)


def warped_copy(gray: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A random copy of (H, W) uint8 pixels; its homography; (H, W) uint8, not 0 where keypoints may lie."""
    cv2, size = need_opencv(), gray.shape[::-1]
    H = random_homography(size, random)
    copy = cv2.warpPerspective(gray, H, size)
    inside = cv2.warpPerspective(np.full(gray.shape, 255, np.uint8), H, size)
    return changed_light(copy, random), H, cv2.erode(inside, np.ones((BORDER, BORDER), np.uint8), borderValue=0)


def changed_light(gray: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(H, W) uint8 with another gamma, contrast and brightness, and at random blurred, noisy, or compressed as JPEG."""
    cv2, x = need_opencv(), gray.astype(np.float32) / 255
    x = x ** np.exp(random.uniform(-0.6, 0.6))
    x = np.clip((x - 0.5) * random.uniform(0.6, 1.4) + 0.5 + random.uniform(-0.15, 0.15), 0, 1)
    if random.random() < 0.4:
        x = cv2.GaussianBlur(x, (0, 0), random.uniform(0.5, 1.8))
    if random.random() < 0.5:
        x = x + random.normal(0, random.uniform(0.005, 0.035), x.shape)
    changed = (np.clip(x, 0, 1) * 255).astype(np.uint8)
    if random.random() < 0.5:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(random.integers(25, 90))]
        changed = cv2.imdecode(cv2.imencode(".jpg", changed, quality)[1], cv2.IMREAD_GRAYSCALE)
    return np.asarray(changed)
