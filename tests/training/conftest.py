"""Small runs for the tests of training."""

import json
import shutil
from types import SimpleNamespace

import pytest
from made_runs import arithmetic_of_a_new_process, config, small_tables, weights

from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.training import log
from matchkernel.training.loop import train
from matchkernel.training.step import Update


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
    return small_tables(small_sets)


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


class SlowClock:
    """A clock of which an update takes a second, so 16 patches of `small`, and other calls what is added."""

    def __init__(self, patch):
        self.patch, self.now = patch, 0.0
        patch.setattr(log, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.add(Update, "__call__", 1)

    def add(self, kind, name, seconds, *, once=False):
        """Let calls of this method take so long, or only the first of each instance."""
        method, called = getattr(kind, name), []

        def slow(instance, *values):
            self.now += 0 if once and instance in called else seconds
            called.append(instance)
            return method(instance, *values)

        self.patch.setattr(kind, name, slow)


@pytest.fixture
def slow_clock(monkeypatch):
    return SlowClock(monkeypatch)
