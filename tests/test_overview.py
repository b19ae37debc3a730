import pytest

from matchkernel import weights
from matchkernel.config import VARIANTS
from matchkernel.counting import count_parameters
from matchkernel.descriptors import build
from matchkernel.overview import overview


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
