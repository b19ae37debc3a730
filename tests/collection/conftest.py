"""A small scene and its reconstruction; SIFT."""

import pytest
from made_collection import SETTINGS

from matchkernel.collection.reconstruct import reconstruct
from matchkernel.photos.extract import open_describer


@pytest.fixture(scope="module")
def scene(rendered):
    """Six rendered photos of textured planes, 400 x 300."""
    return rendered / "images"


@pytest.fixture(scope="module")
def workspace(scene, tmp_path_factory, each_colmap):
    folder = tmp_path_factory.mktemp("colmap") / "workspace"
    return folder, reconstruct(scene, folder, "rootsift", SETTINGS)


@pytest.fixture
def sift():
    return open_describer("sift")


@pytest.fixture(params=["out", "features.h5"])
def out(request, tmp_path):
    """Where features are written: a folder, or one file."""
    return tmp_path / request.param
