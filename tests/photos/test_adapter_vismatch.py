"""Our matcher in vismatch (`make test-peers` installs it)."""

import numpy as np
import pytest
from helpers import refuses
from made_images import texture, turned
from PIL import Image

from matchkernel import match_images
from matchkernel.errors import ArgumentError

vismatch = pytest.importorskip("vismatch", exc_type=Exception, reason="vismatch is not installed (make test-peers)")

IMAGE = texture()
COPY, H = turned(IMAGE, 15)


@pytest.fixture(scope="module")
def matcher():
    from matchkernel.photos.adapters.vismatch import MatchKernelMatcher

    return MatchKernelMatcher(model="tiny", keypoints=80, ransac_reproj_thresh=2)


def test_it_runs_as_vismatch_runs_its_own(matcher, tmp_path):
    assert isinstance(matcher, vismatch.BaseMatcher)
    assert (matcher.ransac_reproj_thresh, matcher.name) == (2, "MatchKernelMatcher")
    for name, pixels in (("a.png", IMAGE), ("b.png", COPY)):
        Image.fromarray(pixels).save(tmp_path / name)
    found = matcher(tmp_path / "a.png", matcher.load_image(tmp_path / "b.png"))
    expected = match_images(IMAGE, COPY, "tiny", keypoints=80, geometry="none")
    for number in (0, 1):
        np.testing.assert_array_equal(found[f"matched_kpts{number}"], expected.points[number])
        np.testing.assert_array_equal(found[f"all_kpts{number}"], expected.features[number].keypoints)
        np.testing.assert_array_equal(found[f"all_desc{number}"], expected.features[number].descriptors)
    assert found["num_inliers"] > 30
    np.testing.assert_allclose(found["H"], H, atol=0.1 * np.abs(H).max())
    assert 0 < found["matched_confidences"].min() <= found["matched_confidences"].max() <= 1


def test_an_image_without_keypoints_and_extract(matcher):
    blank = np.full((3, 60, 80), 0.5, np.float32)
    assert matcher(blank, blank)["num_inliers"] == 0
    assert len(matcher.extract(np.stack([IMAGE / 255.0] * 3).astype(np.float32))["all_desc0"]) == 80


def test_a_misspelt_option_is_refused(matcher):
    with refuses(ArgumentError):
        type(matcher)(keypoint=3)
