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
        "cv2": "matching needs OpenCV" + install,
        "cv2.part": "matching needs OpenCV" + install,
        "cracked": "matching needs cracked (libGL.so.1: cannot open shared object file)" + install,
        "hungry": "matching needs hungry (No module named 'not_there_at_all')" + install,
    }.items():
        with pytest.raises(MissingExtraError) as caught:
            need(module, "photos", "matching")
        assert str(caught.value) == message, module
