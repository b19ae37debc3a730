"""Small runs for the tests of training."""

import json
import shutil

import pytest
from made_runs import arithmetic_of_a_new_process, config, small_tables, weights

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.training.loop import train


@pytest.fixture(scope="session")
def small_sets(tmp_path_factory):
    """Folders of two training sets and a validation set."""
    folder = tmp_path_factory.mktemp("sets")
    for name, points, seed in (("train", 40, 0), ("validation", 20, 1), ("other", 40, 2)):
        build_synthetic(folder / name, SyntheticSettings(points=points, patches=3, size=32, seed=seed))
    return folder


@pytest.fixture
def small(small_sets):
    """Settings of a run of well under a second, as nested tables."""
    return small_tables(small_sets)


@pytest.fixture
def synthetic(small):
    """The same on synthetic sets."""
    return {**small, "data": {"synthetic": {"points": 12, "patches": 2, "validation_points": 4}}}


@pytest.fixture(autouse=True)
def arithmetic():
    """Bits do not depend on what ran before in this process."""
    with arithmetic_of_a_new_process():
        yield


@pytest.fixture(scope="session")
def whole_run(small_sets, tmp_path_factory):
    """The folder of a finished run of `small`, never interrupted; only to be read."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    with arithmetic_of_a_new_process():
        train(config(small_tables(small_sets)), folder, device="cpu")
    return folder


@pytest.fixture
def whole(whole_run):
    """The weights of that run."""
    return weights(whole_run)


@pytest.fixture
def finished(whole_run, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(whole_run, tmp_path / "run")


@pytest.fixture
def small_toml(small, tmp_path):
    """The settings of `small` as a TOML file."""
    lines = []
    for name, table in small.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path = tmp_path / "small.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
