"""Pictures of matches."""

import numpy as np
import pytest
from made_images import texture

from matchkernel.plots.matches import MARGIN, TITLE, draw_matches, title_of


@pytest.mark.parametrize("shape", [(900, 1300), (900, 1300, 3), (1, 5000), (5000, 7)])
def test_a_picture_is_reduced_by_means(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    none = np.empty((0, 2))
    picture = draw_matches(image, image, none, none, None)
    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (1440, 3)
    drawn = picture[TITLE:, MARGIN:720]
    drawn = drawn[(drawn != 255).any(2)]
    assert abs(drawn.mean() - image.mean()) < 3


def test_a_picture_of_what_was_not_verified_does_not_say_agree():
    both, one = np.array([True, True]), np.array([True, False])
    assert "agree" not in title_of(both, None, "")
    assert "agree" in title_of(one, one, "")
    points = np.array([[3.0, 4], [50, 60]])
    drawn = [draw_matches(texture(), texture(), points, points, inliers) for inliers in (None, both, one, ~both)]
    titles, images = ([part[:TITLE] for part in drawn], [part[TITLE:] for part in drawn])
    assert np.array_equal(images[0], images[1])
    assert not any(np.array_equal(titles[0], other) for other in titles[1:])
    assert not any(np.array_equal(images[0], other) for other in images[2:])
