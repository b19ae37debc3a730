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
    for module, named in {
        "not_there": "'matchkernel[photos]' (in a clone: '.[photos]')",
        "cv2": "opencv-python-headless: pip install 'matchkernel[photos]'",
        "cv2.part": "opencv-python-headless: pip install 'matchkernel[photos]'",
        "cracked": "pip install --force-reinstall --no-deps cracked",
        "hungry": "not_there_at_all",
    }.items():
        with pytest.raises(MissingExtraError) as caught:
            need(module, "photos", "matching")
        assert named in str(caught.value), module
        assert "\n" not in str(caught.value)


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
