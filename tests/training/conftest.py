"""Small runs for the tests of training."""

import json

import pytest
from made_runs import config, weights

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.training.loop import train

SMALL = {
    "model": {"variant": "cartesian", "s": 1, "patch_size": 8, "d": 16, "D": 16},
    "sampling": {"pairs": 8, "steps": 12},
    "loop": {"log_every": 4, "save_every": 3, "validate_every": 6},
}


@pytest.fixture(scope="session")
def small_sets(tmp_path_factory):
    """Folders of a training and a validation set."""
    folder = tmp_path_factory.mktemp("sets")
    for name, points, seed in (("train", 40, 0), ("validation", 20, 1), ("other", 40, 2)):
        build_synthetic(folder / name, SyntheticSettings(points=points, patches=3, size=32, seed=seed))
    return folder


@pytest.fixture
def small(small_sets):
    """Settings of a run of well under a second, as nested tables."""
    data = {"train": str(small_sets / "train"), "validation": str(small_sets / "validation")}
    return json.loads(json.dumps({**SMALL, "data": data}))


@pytest.fixture
def whole(small, tmp_path):
    """The weights of an uninterrupted run."""
    train(config(small), tmp_path / "whole", device="cpu")
    return weights(tmp_path / "whole")


@pytest.fixture
def small_toml(small, tmp_path):
    """The same as a TOML file."""
    path = tmp_path / "small.toml"
    write_toml(path, small)
    return path


def write_toml(path, tables):
    """Nested tables of words, numbers and truth values as TOML."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
