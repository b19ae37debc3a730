"""What the tests share: settings, and data that is made once."""

import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several test processes share the cores; read as numpy is imported

import helpers
import pytest
import torch
from filelock import FileLock

with suppress(ImportError):  # the GPU tests run where hypothesis is not installed
    import hypothesis

    # Deadlines would be timed tests; a fixed seed keeps CI from failing by chance; examples may share a folder. To look
    # harder, and elsewhere each time: pytest --hypothesis-profile=thorough
    usual = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.function_scoped_fixture]}
    hypothesis.settings.register_profile("matchkernel", derandomize=True, max_examples=25, **usual)
    hypothesis.settings.register_profile("thorough", max_examples=250, **usual)
    hypothesis.settings.load_profile("matchkernel")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a job in the background: programs would never see Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
sys.path.append(str(Path(__file__).parents[1]))  # experiments.baselines
sys.path.append(str(Path(__file__).parents[1] / "experiments" / "photos"))  # rendering.py makes scenes for tests too


@pytest.fixture(autouse=True)
def seeded():
    """Untrained models are the same in every run, whatever ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of reference values, see its README."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def photos_cc0() -> Path:
    """Three real photos with their COLMAP model, see its README."""
    return Path(__file__).parent / "photos_cc0"


@pytest.fixture(scope="module", params=["program", "pycolmap"])
def each_colmap(request) -> Iterator[str]:
    """COLMAP as program and as package, where they are installed."""
    is_there = shutil.which("colmap") if request.param == "program" else importlib.util.find_spec("pycolmap")
    if not is_there:
        pytest.skip(f"COLMAP's {request.param} is not installed")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MATCHKERNEL_COLMAP", request.param)
        yield request.param


@pytest.fixture(scope="session")
def rendered(tmp_path_factory) -> Path:
    """A rendered scene of six photos with exact truth: images/, sparse/ (text), database.db and truth/; read only.

    The first of the processes that share a run of the tests renders it, the others wait for it.
    """
    from made_scene import render_scene  # needs OpenCV

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "planes"
    with FileLock(shared / "planes.lock"):
        if not folder.exists():
            begun = tmp_path_factory.mktemp("rendered") / "planes"
            render_scene(begun, photos=6, seed=1, width=400, height=300, texture=512)
            begun.rename(folder)
    return folder


@pytest.fixture(scope="session")
def hpatches_sample(photos_cc0, tmp_path_factory) -> Path:
    """One sequence of 100 patches in the layout of HPatches, cut from a photo; read only."""
    folder = tmp_path_factory.mktemp("hpatches") / "v_lewis"
    helpers.write_hpatches(folder, photos_cc0 / "images" / "005.jpg")
    return folder


@pytest.fixture(scope="session")
def baseline_weights(tmp_path_factory) -> Path:
    """Weight files in the layout of the published ones; read only."""
    from made_baselines import write_weights  # needs OpenCV

    folder = tmp_path_factory.mktemp("weights")
    write_weights(folder)
    return folder


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a file system of a size such as "64k", or changes its size; returns the folder."""
    mount = tmp_path / "small disk"

    def sized(size: str) -> Path:
        options = f"remount,size={size}" if mount.exists() else f"size={size}"
        mount.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", mount]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no right to mount a small file system here")
        return mount

    yield sized
    gc.collect()  # frames of caught errors may hold memory-mapped files, and those keep the file system busy
    if mount.is_mount():
        subprocess.run(["umount", mount], check=True)


@pytest.fixture
def textures():
    """See helpers.textures."""
    return helpers.textures


@pytest.fixture
def trained_like():
    """See helpers.trained_like."""
    return helpers.trained_like


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, driven by Playwright; no browser is downloaded."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
