import numpy as np
import pytest
from helpers import refuses
from made_hpatches import made_descriptors

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.hpatches.whitening import learn_whitening, pcapl, whiten

random = np.random.default_rng(0)
MIX = random.normal(size=(10, 10))


def test_large_directions_come_out_white_and_small_ones_are_not_blown_up():
    rows = random.normal(size=(5000, 10)) * np.linspace(0.1, 3, 10) + 5
    W = learn_whitening(rows)
    variances = np.sort(np.linalg.eigvalsh(np.cov(rows @ W, rowvar=False, bias=True)))
    assert pytest.approx(W.T) == W
    # Eigenvalues at positions 6 .. 9 of 10 become 1; those below are divided by the one at 6 and stay under 1.
    assert variances[-4:] == pytest.approx(1)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.cov(rows, rowvar=False, bias=True)))
    assert variances[:6] == pytest.approx(eigenvalues[:6] / eigenvalues[6])


def test_a_rotation_of_the_descriptors_rotates_the_whitening():
    rows = random.normal(size=(500, 10)) @ MIX
    Q = np.linalg.qr(random.normal(size=(10, 10)))[0]
    assert learn_whitening(rows @ Q) == pytest.approx(Q.T @ learn_whitening(rows) @ Q)


def test_rows_are_centred_by_themselves_rooted_and_of_length_one():
    rows, W = random.normal(size=(30, 10)) + 7, learn_whitening(random.normal(size=(300, 10)) @ MIX)
    found = whiten(rows, W)
    assert found == pytest.approx(whiten(rows + 100, W), abs=1e-6)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1)
    projected = (rows - rows.mean(0)) @ W
    signed = np.sign(projected) * np.abs(projected) ** 0.5
    for row, wanted in zip(found, signed, strict=True):
        assert row == pytest.approx(wanted / np.linalg.norm(wanted))


def test_an_image_of_one_patch_becomes_zero_not_nan():
    assert np.array_equal(whiten(np.ones((1, 10)), np.eye(10)), np.zeros((1, 10)))


def test_only_the_training_refs_are_learned_from():
    descriptors = made_descriptors("float")
    found = pcapl(descriptors, ["v_one"], ["i_one", "i_two"])
    W = learn_whitening(descriptors.sequence("v_one")[0])
    assert list(found.counts) == ["i_one", "i_two"]
    assert found.sequence("i_two")[9] == pytest.approx(whiten(descriptors.sequence("i_two")[9], W), abs=1e-6)


def test_what_cannot_be_whitened_is_refused():
    for function, *arguments in (
        (pcapl, made_descriptors("float"), [], ["i_one"]),
        (pcapl, made_descriptors("bits"), ["v_one"], ["i_one"]),
        (learn_whitening, np.ones((50, 10))),
        (learn_whitening, np.ones((1, 10))),
    ):
        with refuses(ArgumentError):
            function(*arguments)
