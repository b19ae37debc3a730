"""The trained weights of the package: whole, small, with honest cards, and better than nothing."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import matchkernel
from matchkernel.training.config import TrainingConfig
from matchkernel.weights import SHIPPED, read_card

ROOT = Path(__file__).parents[1]
NAMES = ["dual", "dual-paper", "fc", "light"]
NON_COMMERCIAL = {"truck", "statue"}
VALIDATION = {"sceaux", "british_museum"}


def card_of(name):
    return read_card(name)


def test_these_weights_are_in_the_package_and_small():
    assert matchkernel.available() == NAMES
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 25e6


@pytest.mark.parametrize("name", NAMES)
def test_a_card_tells_what_the_weights_are(name):
    card = card_of(name)
    scenes = set(card["trained_on"].split(", "))
    assert len(scenes) == 14
    assert scenes.isdisjoint(NON_COMMERCIAL | VALIDATION)
    assert {entry["name"] for entry in json.loads(card["training_sets"])} == scenes
    assert "Apache-2.0" in card["licence"]
    assert json.loads(card["metrics"])["validation_matching"] > 40
    assert "/tmp" not in json.dumps(card)


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_command_trains_the_same(name):
    """The TOML of a model card is the training that the weight file says it had."""
    told = TrainingConfig.from_dict(json.loads(card_of(name)["training"]))
    documented = TrainingConfig.from_toml(ROOT / "configs" / "trained" / f"{name}.toml")
    assert documented.binding() == told.binding()
    assert documented.data.train == told.data.train


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_the_models_says_what_the_cards_say(name):
    row = next(line for line in _page().splitlines() if line.startswith(f"| `{name}` |"))
    metrics = json.loads(card_of(name)["metrics"])
    for key in ("verification", "matching", "retrieval", "fpr95_hard", "map"):
        assert f"{metrics[f'validation_{key}']:.2f}" in row, key
    assert f"configs/trained/{name}.toml" in _page()


@pytest.mark.parametrize("name", NAMES)
def test_trained_weights_know_a_patch_again(name):
    """A turned, brighter, noisy copy is nearer than any other patch; random weights find few of them."""
    generator = np.random.default_rng(0)
    patches = _textures(generator, 200)
    copies = np.clip(np.roll(patches, (2, -1), (1, 2)) * 0.8 + 20 + generator.normal(0, 6, patches.shape), 0, 255)
    a, b = (matchkernel.describe(p.astype(np.float32), matchkernel.load(name), resize=True) for p in (patches, copies))
    assert ((a @ b.T).argmax(1) == np.arange(len(a))).mean() > 0.95


def _textures(generator, count):
    """Smooth random patches, (count, 64, 64)."""
    spectrum = np.fft.rfft2(generator.normal(size=(count, 64, 64)))
    frequency = np.hypot(np.fft.fftfreq(64)[:, None], np.fft.rfftfreq(64))
    smooth = np.fft.irfft2(spectrum * np.exp(-((frequency / 0.06) ** 2)), (64, 64))
    smooth -= smooth.min((1, 2), keepdims=True)
    return 255 * smooth / smooth.max((1, 2), keepdims=True)


def _page():
    return re.sub(r" +", " ", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"))
