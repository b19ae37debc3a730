"""Features with random keypoints and descriptors, and matches made by hand."""

import numpy as np

from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import Features


def made_features(points=5, rows=None, model="ours", D=8, **settings):
    """Features of so many random keypoints, or at these points; random unit rows, or these.

    Args:
        points: number of keypoints, or (K, 2).
        rows: (K, D) descriptors.
        model: name of the descriptor.
        D: dimension of random rows.
        settings: recorded with the features.
    """
    random = np.random.default_rng(0)
    points = random.uniform(0, 100, (points, 2)) if isinstance(points, int) else np.asarray(points, float)
    K = len(points)
    frames = Frames.turned_squares(points, np.linspace(6, 60, K), np.linspace(-1, 1, K))
    if rows is None:
        rows = random.normal(size=(K, D))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Features(frames, rows.astype(np.float32), np.ones(K, np.float32), (100, 80), model, settings)
