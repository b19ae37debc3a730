"""What several tests of evaluation use."""

import numpy as np
import pytest

from matchkernel.data.patch_set import create_patch_set


@pytest.fixture(scope="module")
def patch_set(tmp_path_factory):
    """70 points with two noisy patches each, 40 px; two of the patches are constant."""
    from helpers import textures

    folder = tmp_path_factory.mktemp("sets") / "points"
    patches = np.repeat(textures(70, 40).numpy()[:, 0], 2, axis=0)
    patches += np.random.default_rng(0).normal(0, 5, patches.shape)
    patches[[0, 10]] = 7
    with create_patch_set(folder, 140, 40, {}) as build:
        for number in build.steps(["all"]):
            build.store(range(140), patches.clip(0, 255).astype(np.uint8) + number)
        build.finish(np.repeat(np.arange(70), 2), {}, {}, {})
    return folder
