import os
import subprocess
import sys

import numpy
import pytest

from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import need


def test_a_module_is_imported():
    assert need("numpy.linalg", "photos", "it") is numpy.linalg


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cracked.py").write_text("raise ImportError('libGL.so.1: cannot open\\nshared object file')")
    (tmp_path / "hungry.py").write_text("import not_there_at_all")
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.setitem(sys.modules, "cv2.part", numpy)
    install = ": pip install 'matchkernel[photos]'"
    for module, message in {
        "not_there": "matching needs not_there" + install,
        "cv2": "matching needs opencv-python-headless" + install,
        "cv2.part": "matching needs opencv-python-headless" + install,
        "cracked": "matching needs cracked, which is installed but cannot be imported "
        "(ImportError: libGL.so.1: cannot open): pip install --force-reinstall --no-deps cracked",
        "hungry": "matching needs hungry (No module named 'not_there_at_all')" + install,
    }.items():
        with pytest.raises(MissingExtraError) as caught:
            need(module, "photos", "matching")
        assert str(caught.value) == message, module


def test_onnxruntime_reports_to_nobody(tmp_path):
    """Its telemetry leaves files in the home, also when nothing can be sent."""
    pytest.importorskip("onnxruntime")
    code = (
        "import numpy, matchkernel\n"
        "matchkernel.describe(numpy.zeros((2, 32, 32), numpy.uint8), matchkernel.load('light'), engine='onnx')\n"
    )
    keep = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    subprocess.run([sys.executable, "-c", code], env={**keep, **home}, check=True)
    assert not [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name or "Microsoft" in path.name]


def test_what_a_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    monkeypatch.setitem(sys.modules, "onnxruntime", numpy)
    need("onnxruntime", "onnx", "it")
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
