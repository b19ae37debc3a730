"""A PhotoTourism set for the tests of packing."""

import shutil

import pytest
from made_phototourism import write_set


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A set of two mosaics as the package writes it; read only."""
    return write_set(tmp_path_factory.mktemp("written") / "liberty")


@pytest.fixture
def source(written, tmp_path):
    """A copy of the set to be damaged."""
    return shutil.copytree(written, tmp_path / "source" / "liberty")


@pytest.fixture
def target(tmp_path):
    """Where the set is packed."""
    return tmp_path / "set"
