import json

import pytest

from matchkernel import weights
from matchkernel.config import VARIANTS
from matchkernel.counting import count_parameters
from matchkernel.descriptors import build
from matchkernel.overview import card_facts, overview, trained_weights


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package with two trained files in it."""
    monkeypatch.setattr(weights, "SHIPPED", tmp_path)
    weights.save(build("polar", d=8, s=1), tmp_path / "polar-small.safetensors")
    weights.save(build("dual", d=8, s=1), tmp_path / "dual.safetensors")


def test_weights_are_listed_with_their_descriptor(shipped):
    assert weights.available() == ["dual", "polar-small"]
    listed = {row.variant: row.weights for row in overview()}
    assert listed.pop("dual") == ["dual"]
    assert listed.pop("polar") == ["polar-small"]
    assert all(names == [] for names in listed.values())


def test_weights_load_by_name_from_anywhere(shipped, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    assert weights.load("polar-small").config.variant == "polar"
    assert weights.load("dual", patch_size=48).config.patch_size == 48
    assert weights.read_card("dual")["format"] == "pt"


def test_every_row_tells_the_truth():
    rows = overview()
    assert [row.variant for row in rows] == list(VARIANTS)
    for row in rows:
        model = build(row.variant)
        assert (row.parameters, row.D) == (count_parameters(model), model.config.D)
        assert ("multiples of 4" in row.sizes) == VARIANTS[row.variant].any_size


def test_weights_are_told_one_by_one(shipped, tmp_path):
    rows = {row.name: row for row in trained_weights()}
    assert (rows["polar-small"].descriptor, rows["polar-small"].training) == ("polar, s=1", "-")
    assert rows["dual"].parameters == count_parameters(build("dual", d=8, s=1))
    training = {"sampling": {"steps": 2000, "pairs": 16}, "seed": 3}
    card = {"training": json.dumps(training), "metrics": '{"validation_matching": 51.25}', "odd": "{", "step": "2000"}
    weights.save(build("fc", d=8), tmp_path / "fc.safetensors", card)
    row = {row.name: row for row in trained_weights()}["fc"]
    assert (row.training, row.matching, row.descriptor) == ("2,000 x 16", 51.25, "fc")
    facts = card_facts(tmp_path / "fc.safetensors")
    assert (facts["training"], facts["odd"], facts["step"]) == (training, "{", "2000")
    assert facts["config"]["variant"] == "fc"
