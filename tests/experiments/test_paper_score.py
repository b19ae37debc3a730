"""What the experiments add to evaluation: strips are decoded once for many models."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

import score

from matchkernel.data import hpatches
from matchkernel.data.hpatches import IMAGES, open_hpatches
from matchkernel.evaluation.hpatches.evaluate import evaluate_hpatches
from matchkernel.evaluation.methods import Method

PROJECTION = np.random.default_rng(1).standard_normal((65 * 65, 16)).astype(np.float32)


def describe(patches, progress=None):
    rows = patches.reshape(len(patches), -1) @ PROJECTION
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


METHOD = Method("projection", "l2", {}, describe)


@pytest.fixture
def strips(tmp_path):
    """One sequence of nine patches, noisier from strip to strip, with a split that names it."""
    random = np.random.default_rng(0)
    base = random.integers(0, 256, (9 * 65, 65))
    (tmp_path / "v_made").mkdir()
    for k, image in enumerate(IMAGES):
        noisy = base + random.normal(0, 12 * k, base.shape)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / "v_made" / f"{image}.png")
    (tmp_path / "tasks" / "splits").mkdir(parents=True)
    (tmp_path / "tasks" / "splits" / "splits.json").write_text('{"full": {"name": "full", "test": ["v_made"]}}')
    return tmp_path


def test_strips_are_decoded_once_for_many_models(strips, monkeypatch):
    (wanted,) = evaluate_hpatches(METHOD, strips, only=("matching",))
    (opened,) = evaluate_hpatches(METHOD, open_hpatches(strips), only=("matching",))
    assert opened == wanted
    read, seen = hpatches.read_patches, []
    monkeypatch.setattr(hpatches, "read_patches", lambda path: seen.append(path.stem) or read(path))
    scores = [score.score_strips(METHOD, strips) for _ in range(3)]
    assert scores == 3 * [{noise: part["ap_trapezoid"] for noise, part in wanted["matching"]["mean"].items()}]
    assert 0.2 < scores[0]["all"] < 1
    assert sorted(seen) == sorted([*IMAGES, "ref"])  # ref once more, to count the patches
