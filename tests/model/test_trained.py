"""The trained weights of the package: complete, small, with true cards, and better than untrained ones."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import matchkernel
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import state_digest
from matchkernel.photos.context import shipped_matchers
from matchkernel.photos.extract import SIFTS, open_describer
from matchkernel.runtime.weights import read_card
from matchkernel.training.config import TrainingConfig

ROOT = Path(__file__).parents[2]
NAMES = ["dual", "dual-paper", "fc", "light", "light-wide", "small-wide", "tiny"]
JOBS = {
    "dual": "dual-x6",
    "light": "light-cartesian-x6",
    "light-wide": "light-x6-to-x12-seed0",
    "small-wide": "wide-fifth-seed0",
    "tiny": "tiny-seed0",
}
LATER = {"light-wide": "poses", "small-wide": "students", "tiny": "students"}  # other experiments than `ship`
NON_COMMERCIAL = {"truck", "statue"}
VALIDATION = {"sceaux", "british_museum"}


def test_these_weights_are_in_the_package_and_small():
    assert matchkernel.available() == NAMES
    package = Path(matchkernel.__file__).parent
    assert sum(path.stat().st_size for path in package.rglob("*.safetensors")) < 25e6


def test_matchers_record_what_they_are_and_whose_rows_they_judge():
    matchers = shipped_matchers()
    assert [one.facts["descriptor"] for one in matchers] == ["light-wide", "small-wide", "tiny"]
    for one in matchers:
        card, describer = one.facts["card"], open_describer(one.name)
        scenes = set(card["trained_on"].split(", "))
        assert scenes == set(card["scenes"])
        assert scenes.isdisjoint(NON_COMMERCIAL | VALIDATION)
        assert "photos trained on belong to their authors" in card["licence"]
        assert card["validation"]["maa10"] > 0.8
        assert one.facts["descriptor_sha256"] == describer.settings["weights"]
        assert "/tmp" not in json.dumps(card)
    teacher, student, _ = matchers  # the second is a copy, as the rows are
    assert student.facts["card"]["rows_trained_on"] == {
        name: teacher.facts[name] for name in ("descriptor", "descriptor_sha256")
    }
    assert {name for name, values in teacher.tensors.items() if (values != student.tensors[name]).any()} == set()
    assert "rows_trained_on" not in teacher.facts["card"]
    assert read_card("small-wide").training["teacher"]["weights"] == ["light-wide"]


@pytest.mark.parametrize("name", NAMES)
def test_a_card_records_what_the_weights_are(name):
    card = read_card(name)
    scenes = set(card.trained_on.split(", "))
    assert len(scenes) == 14
    assert scenes.isdisjoint(NON_COMMERCIAL | VALIDATION)
    assert set(dict(card.training_sets)) == scenes
    assert "Apache-2.0" in card.licence
    assert card.metrics["validation_matching"] > 40
    assert "/tmp" not in json.dumps(card.to_strings())


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_command_trains_the_same(name):
    """The TOML of a model card is the training that the weight file records."""
    recorded = TrainingConfig.from_dict(read_card(name).training)
    documented = TrainingConfig.from_toml(ROOT / "configs" / "trained" / f"{name}.toml")
    assert documented.binding() == recorded.binding()
    assert documented.data.train == recorded.data.train


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_the_models_says_what_the_cards_say(name):
    row = next(line for line in _page().splitlines() if line.startswith(f"| `{name}` |"))
    metrics = read_card(name).metrics
    for key in ("verification", "matching", "retrieval", "fpr95_hard", "map"):
        assert f"{metrics[f'validation_{key}']:.2f}" in row, key


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """80 points with two patches each, turned, scaled, shifted and in other light."""
    return build_synthetic(tmp_path_factory.mktemp("trained") / "set", SyntheticSettings(points=80, patches=2)).patches


@pytest.mark.parametrize("name", NAMES)
def test_training_helps_to_recognise_a_changed_patch(name, synthetic):
    """The other patch of a point is found among 80 more often than without training; measured: 0.90, 0.20 more."""
    found = []
    for model in (matchkernel.load(name), Descriptor(matchkernel.load(name).config, torch.Generator().manual_seed(0))):
        rows = matchkernel.describe(synthetic, model.eval(), resize=True)
        found.append(((rows[1::2] @ rows[::2].T).argmax(1) == np.arange(80)).mean())
    assert found[0] > 0.8
    assert found[0] > found[1] + 0.1


def test_thresholds_are_those_measured():
    results, measured = ROOT / "experiments" / "results", {}
    for suffix in ("", "_wide", "_tiny", "_small"):
        measured |= json.loads((results / f"matching_validation{suffix}.json").read_text())["thresholds"]
    assert {name: measured[name] for name in SIFTS} == {name: distance for name, (distance, _) in SIFTS.items()}
    for name in NAMES:
        assert read_card(name).match_threshold == measured[name]
        assert open_describer(name).settings["match_threshold"] == measured[name]


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_of_the_files_in_the_package(name):
    results = ROOT / "experiments" / "results"
    digest = json.loads((results / f"{LATER.get(name, 'ship')}.json").read_text())[JOBS.get(name, name)]["state_sha256"]
    assert state_digest(matchkernel.load(name)) == digest
    for split in ("validation", "test"):
        models = json.loads((results / f"matching_{split}.json").read_text())["models"]
        assert name in models or name in LATER  # these photos did not decide about them
        assert name not in models or models[name]["weights"] == digest


def _page():
    return re.sub(r" +", " ", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"))
