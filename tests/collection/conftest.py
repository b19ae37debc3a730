"""A small scene and its reconstruction; a small disk; SIFT."""

import subprocess

import pytest
from made_reconstruction import SETTINGS

from matchkernel.collection.reconstruct import reconstruct
from matchkernel.photos.describers import open_describer


@pytest.fixture(scope="module")
def scene(rendered):
    """Six rendered photos of textured planes, 400 x 300."""
    return rendered / "images"


@pytest.fixture(scope="module")
def workspace(scene, tmp_path_factory):
    folder = tmp_path_factory.mktemp("colmap") / "workspace"
    return folder, reconstruct(scene, folder, "rootsift", SETTINGS)


@pytest.fixture
def sift():
    return open_describer("sift")


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of so many bytes, with more from the second call on."""
    folder = tmp_path / "small"

    def resize(size):
        kind = "remount," if folder.exists() else ""
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"{kind}size={size}", "tmpfs", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small tmpfs here")
        return folder

    yield resize
    subprocess.run(["umount", folder], check=True)
