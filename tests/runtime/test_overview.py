import json

import pytest
from helpers import count_parameters, refuses

from matchkernel.errors import WeightsError
from matchkernel.model import weights
from matchkernel.model.descriptors import build
from matchkernel.runtime import weights as files
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.overview import card_facts, card_sections, overview, trained_weights


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A package with two trained files in it."""
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    weights.save(build("polar", d=8, s=1), tmp_path / "polar-small.safetensors")
    weights.save(build("dual", d=8, s=1), tmp_path / "dual.safetensors")


def test_weights_are_listed_with_their_descriptor(shipped):
    assert files.available() == ["dual", "polar-small"]
    listed = {row.variant: row.weights for row in overview() if row.weights}
    assert listed == {"dual": ["dual"], "polar": ["polar-small"]}


def test_every_row_describes_its_descriptor():
    rows = overview()
    assert [row.variant for row in rows] == list(VARIANTS)
    for row in rows:
        model = build(row.variant)
        assert (row.parameters, row.D) == (count_parameters(model), model.config.D)
        assert ("multiples of 4" in row.sizes) == VARIANTS[row.variant].any_size


def test_a_damaged_file_is_refused(tmp_path):
    weights.save(build("sum", d=4), tmp_path / "a.safetensors")
    data = bytearray((tmp_path / "a.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "a.safetensors").write_bytes(data)
    with refuses(WeightsError):
        card_facts(tmp_path / "a.safetensors")


def test_every_shipped_weight_file_has_a_row(shipped, tmp_path):
    rows = {row.name: row for row in trained_weights()}
    assert (rows["polar-small"].descriptor, rows["polar-small"].training) == ("polar, s=1", "-")
    assert rows["dual"].parameters == count_parameters(build("dual", d=8, s=1))
    training = {"sampling": {"steps": 2000, "pairs": 16}, "seed": 3}
    card = {"training": json.dumps(training), "metrics": '{"validation_matching": 51.25}', "odd": "{", "step": "2000"}
    weights.save(build("fc", d=8), tmp_path / "fc.safetensors", card)
    row = {row.name: row for row in trained_weights()}["fc"]
    assert (row.training, row.matching, row.descriptor) == ("2,000 x 16", 51.25, "fc")
    facts = card_facts(tmp_path / "fc.safetensors")
    assert (facts["training"], facts["odd"], facts["step"]) == (training, "{", 2000)
    assert facts["config"]["variant"] == "fc"


def test_a_card_by_sections(tmp_path):
    training = {"loss": {"margin": 1.2}, "seed": 3, "model": {"s": 1}, "data": {"train": ["sets/a"], "validation": []}}
    card = {
        "training": json.dumps(training), "trained_on": "a", "training_sets": '[{"name": "a"}]', "step": "20",
        "metrics": '{"validation_matching": 51.25}', "validation": '{"map": 0.5}', "licence": "CC0", "author": "me",
    }  # fmt: skip
    model = build("sum", d=8)
    weights.save(model, tmp_path / "a.safetensors", card)
    facts = card_facts(tmp_path / "a.safetensors")
    sections = card_sections(facts)
    assert list(sections) == ["configuration", "training", "data", "scores", "licence", "file"]
    assert list(sections["configuration"])[:2] == ["variant", "parameters"]
    expected = {**model.config.to_dict(), "parameters": count_parameters(model)}
    assert sections["configuration"].items() >= expected.items()
    assert list(sections["training"].items()) == [("step", 20), ("seed", 3), ("loss", {"margin": 1.2})]
    assert sections["data"] == {"trained_on": "a"}
    assert sections["scores"] == {"validation_matching": 51.25, "validation_map": 0.5}
    assert sections["licence"] == {"licence": "CC0"}
    assert sections["file"] == {"author": "me", "sha256": facts["sha256"]}
    assert facts == card_facts(tmp_path / "a.safetensors")  # not changed
