"""A rendered scene with exact truth, made once."""

import pytest
from made_scene import render_scene


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """Folder with images/, sparse/ (text), database.db and truth/."""
    folder = tmp_path_factory.mktemp("scene") / "planes"
    render_scene(folder, photos=6, seed=1, width=400, height=300)
    return folder
