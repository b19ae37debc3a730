import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_hpatches import GOLDEN, made_result

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.results import read_result, write_result

PHOTOTOURISM = {
    "format": 1,
    "kind": "phototourism",
    "descriptor": "x",
    "dimension": 128,
    "test_set": "liberty",
    "distance": "l2",
    "pairs": {"m50": {"fpr95": 0.25}},
    "retrieval_map": 1 / 3,
    "warnings": [],
}


def test_written_and_read_back_and_the_same_bytes_again(tmp_path):
    result = made_result("ties", "l2")
    write_result(tmp_path / "a.json", result)
    read = read_result(tmp_path / "a.json")
    assert read == json.loads(json.dumps(result))
    write_result(tmp_path / "b.json", dict(reversed(read.items())))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    write_result(tmp_path / "p.json", PHOTOTOURISM)
    assert read_result(tmp_path / "p.json") == PHOTOTOURISM


def test_the_golden_files_are_results():
    files = sorted(GOLDEN.glob("*.json"))
    assert len(files) == 4
    for path in files:
        assert read_result(path)["kind"] == "hpatches"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format '2'"),
        ({"kind": "other"}, "kind 'other'"),
        ({"kind": ["phototourism"]}, "kind"),
        ({"descriptor": None}, "descriptor is missing"),
        ({"dimension": "128"}, "dimension"),
        ({"pairs": {"m50": {}}}, "pairs/m50/fpr95"),
        ({"pairs": {"m50": {"fpr95": 1.5}}}, "not from 0 to 1"),
        ({"pairs": {"m50": {"fpr95": True}}}, "not from 0 to 1"),
        ({"pairs": {"m50": 1}}, "pairs/m50/fpr95"),
        ({"retrieval_map": "high"}, "retrieval_map"),
        ({"warnings": [1]}, "warnings"),
        ({"format": True}, "format"),
        ({"dimension": True}, "dimension"),
        ({"dimension": 0}, "dimension"),
        ({"parameters": -1}, "parameters is '-1'"),
        ({"parameters": 1.5}, "parameters"),
        ({"seed": 2**63}, "seed"),
        ({"hand_crafted": 1}, "hand_crafted"),
        ({"descriptor": ""}, "descriptor is ''"),
        ({"descriptor": "a\nb"}, "descriptor"),
        ({"test_set": " "}, "test_set"),
        ({"distance": "cosine"}, "distance"),
        ({"pairs": {"": {"fpr95": 0.5}}}, "empty name"),
        ({"pairs": {"_1": {"fpr95": 0.5}}}, "list of the name '_1'"),
        ({"pairs": {"m50": {"fpr95": None}}}, "pairs/m50/fpr95"),
        ({"pairs": {"m50": {"fpr95": 0.5, "fpr95_lowest": -1}}}, "fpr95_lowest"),
        ({"pairs": {"m50": {"fpr95": 10**400}}}, "not from 0 to 1"),
        ({"retrieval_queries": 0}, "retrieval_queries"),
        ({"retrieval_map_highest": 2}, "retrieval_map_highest"),
        ({"settings": {"call": "\ud800"}}, "half a character"),
    ],
)
def test_what_is_not_a_result_is_refused(changes, words, tmp_path):
    changed = {**PHOTOTOURISM, **changes}
    path = tmp_path / "x.json"
    with pytest.raises(ArgumentError, match="not a result"):
        write_result(path, changed)
    assert not path.exists()
    path.write_text(json.dumps(changed))
    with pytest.raises(FileError) as caught:
        read_result(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_task_without_its_numbers_is_refused(tmp_path):
    result = copy.deepcopy(made_result("float", "l2"))
    del result["retrieval"]["python"]["mean"]["20000"]
    with pytest.raises(ArgumentError, match="retrieval/python/mean/20000/ap_trapezoid is missing"):
        write_result(tmp_path / "x.json", result)
    for task in ("verification", "matching", "retrieval"):
        del result[task]
    with pytest.raises(ArgumentError, match="none of the three tasks"):
        write_result(tmp_path / "x.json", result)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("matching/per_pair", None, "matching/per_pair"),
        ("matching/per_pair", [], "matching/per_pair"),
        ("matching/per_pair/i_one", 1, "matching/per_pair"),
        ("matching/per_pair/i_one/e", None, "matching/per_pair"),
        ("matching/per_pair/i_one/e/1", {}, "matching/per_pair"),
        ("matching/per_pair/i_one/e/1/ap_trapezoid", 1.5, "matching/per_pair/i_one/e/1/ap_trapezoid is not"),
        ("matching/per_pair/i_one/e/1/ap_trapezoid", None, "is not from 0 to 1"),
        ("verification/per_sequence", "x", "verification/per_sequence"),
        ("retrieval/per_sequence/i_one", None, "retrieval/per_sequence"),
        ("retrieval/per_sequence/i_one/e/ap_step", -0.5, "is not from 0 to 1"),
        ("verification/noise/e/inter/balanced/auc", True, "is not from 0 to 1"),
        ("verification", None, "verification/mean/auc"),
        ("sequences", [], "sequences"),
        ("sequences", ["i_one", ""], "sequences"),
        ("split", "", "split"),
    ],
)
def test_nested_parts_that_are_wrong_are_refused(place, value, words, tmp_path):
    result = json.loads((GOLDEN / "float-l2.json").read_text())
    *path, last = place.split("/")
    part = result
    for key in path:
        part = part[key]
    part[last] = value
    with pytest.raises(ArgumentError) as caught:
        write_result(tmp_path / "x.json", result)
    assert words in str(caught.value)


def test_numbers_without_end_and_nests_without_end_are_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(PHOTOTOURISM | {"other": "x!"}).replace('"x!"', "1e999"))
    with pytest.raises(FileError, match="1e999 is not a number"):
        read_result(path)
    with pytest.raises(ArgumentError, match="inf is not a number"):
        write_result(path, PHOTOTOURISM | {"other": [float("inf")]})
    path.write_text(json.dumps(PHOTOTOURISM | {"other": "x!"}).replace('"x!"', "[" * 400 + "]" * 400))
    with pytest.raises(FileError, match="nested deeper"):
        read_result(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": NaN}', b"[" * 100_000, b'{"format": 1e999}']
)
def test_broken_files(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_result(path)
    assert str(path) in str(caught.value)
    with pytest.raises(FileError, match="cannot be read"):
        read_result(tmp_path / "none.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 400))
def test_mutated_and_truncated_files(place, byte, cut, tmp_path):
    content = bytearray(json.dumps(PHOTOTOURISM).encode())
    content[place % len(content)] = byte
    path = tmp_path / "x.json"
    path.write_bytes(bytes(content[:cut]))
    try:
        outcome = read_result(path)["kind"]
    except FileError as error:
        outcome = str(error)
    assert outcome == "phototourism" or outcome.startswith(str(path))
