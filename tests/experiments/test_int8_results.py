"""The measured losses of int8 stay within the limits it was made for, for every model of the package."""

import json

import pytest
from data import RESULTS
from make_int8 import TASKS

import matchkernel
from matchkernel.runtime.int8 import Ranges
from matchkernel.runtime.onnx_engine import ranges_file

MOST_LOST, LEAST_COMMON = 0.3, 0.97  # points of mAP in each task; share of mutual matches


@pytest.mark.parametrize("name", matchkernel.available())
def test_int8_loses_little(name):
    found = json.loads((RESULTS / "int8.json").read_text())[name]
    ranges = Ranges.read(ranges_file(name))
    assert (found["weights"], found["ranges"]) == (ranges.state_sha256, ranges.sha256)
    for task in TASKS:
        assert 100 * (found["torch"][task] - found["onnx-int8"][task]) <= MOST_LOST, task
    assert min(found["agreement"].values()) >= LEAST_COMMON
