import numpy as np
import pytest
from helpers import refuses
from made_hpatches import made_descriptors

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.hpatches.whitening import learn_whitening, pcapl, whiten

random = np.random.default_rng(0)


def test_large_directions_come_out_white_and_small_ones_are_not_blown_up():
    rows = random.normal(size=(5000, 10)) * np.linspace(0.1, 3, 10) + 5
    W = learn_whitening(rows)
    variances = np.sort(np.linalg.eigvalsh(np.cov(rows @ W, rowvar=False, bias=True)))
    assert pytest.approx(W.T) == W
    # Eigenvalues at positions 6 .. 9 of 10 become 1; those below are divided by the one at 6 and stay under 1.
    assert variances[-4:] == pytest.approx(1)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.cov(rows, rowvar=False, bias=True)))
    assert variances[:6] == pytest.approx(eigenvalues[:6] / eigenvalues[6])


def test_an_image_of_one_patch_becomes_zero_not_nan():
    assert np.array_equal(whiten(np.ones((1, 10)), np.eye(10)), np.zeros((1, 10)))


def test_what_cannot_be_whitened_is_refused():
    for function, *arguments in (
        (pcapl, made_descriptors("float"), [], ["i_one"]),
        (pcapl, made_descriptors("bits"), ["v_one"], ["i_one"]),
        (learn_whitening, np.ones((50, 10))),
        (learn_whitening, np.ones((1, 10))),
    ):
        with refuses(ArgumentError):
            function(*arguments)
