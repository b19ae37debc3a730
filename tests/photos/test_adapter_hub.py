import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import matchkernel
from matchkernel.runtime.weights import SHIPPED

ROOT = Path(__file__).parents[2]


def test_an_untrained_descriptor_comes_from_the_hub():
    model = torch.hub.load(str(ROOT), "descriptor", "cartesian", source="local", s=1, patch_size=16)
    assert isinstance(model, matchkernel.Descriptor)
    assert not model.training
    assert model.config.s == 1
    assert model(torch.rand(3, 1, 16, 16)).shape == (3, 128)


def test_there_is_an_entry_for_every_trained_model():
    """torch.hub.list and torch.hub.help know GitHub only; what they would show is what hubconf.py defines."""
    spec = importlib.util.spec_from_file_location("hubconf", ROOT / "hubconf.py")
    hubconf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hubconf)
    entries = {"descriptor", *(name.replace("-", "_") for name in matchkernel.available())}
    assert all("(B, 1, N, N)" in getattr(hubconf, entry).__doc__ for entry in entries)
    assert set(hubconf.dependencies) == {"torch", "numpy", "safetensors"}


@pytest.mark.parametrize("name", matchkernel.available())
def test_trained_weights_come_from_the_hub(name, textures):
    model = torch.hub.load(str(ROOT), name.replace("-", "_"), source="local")
    size = model.config.patch_size
    assert torch.equal(model(textures(2, size)), matchkernel.load(name)(textures(2, size)))


def test_weights_that_come_with_the_package_become_an_entry(tmp_path, trained_like):
    """A copy of the package with one file of weights, in a process of its own: load them by name at another size."""
    shutil.copytree(
        ROOT / "matchkernel", tmp_path / "matchkernel", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors")
    )
    shutil.copy(ROOT / "hubconf.py", tmp_path)
    model = trained_like(matchkernel.build("polar", s=1, d=8, D=8))
    matchkernel.save(model, tmp_path / SHIPPED.relative_to(ROOT) / "polar-test.safetensors")
    code = """
import json, sys, torch
model = torch.hub.load(sys.argv[1], "polar_test", source="local", patch_size=48)
rows = model(torch.linspace(0, 1, 48 * 48).reshape(1, 1, 48, 48))
place = sys.modules["matchkernel"].__file__
print(json.dumps([place, model.config.patch_size, rows[0, :4].tolist()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place, size, row = json.loads(done.stdout)
    expected = model(torch.linspace(0, 1, 48 * 48).reshape(1, 1, 48, 48))[0, :4].tolist()
    assert Path(place).is_relative_to(tmp_path)  # the copy, not the package that is installed
    assert size == 48
    assert row == pytest.approx(expected, abs=1e-6)
