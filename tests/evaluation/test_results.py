"""Result files and tables: written and read back, damage in one line, captions about the columns shown."""

import json

import pytest
from helpers import refuses
from made_hpatches import GOLDEN, made_result

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.results import check_files, read_result, write_result

PHOTOTOURISM = {
    "format": 1, "kind": "phototourism", "descriptor": "x", "dimension": 128, "test_set": "liberty", "distance": "l2",
    "pairs": {"m50": {"fpr95": 0.25}}, "retrieval_map": 1 / 3, "warnings": [],
}  # fmt: skip


def test_written_and_read_back_and_the_same_bytes_again(tmp_path):
    result = made_result("ties", "l2")
    write_result(tmp_path / "a.json", result)
    read = read_result(tmp_path / "a.json")
    assert read == json.loads(json.dumps(result))
    write_result(tmp_path / "b.json", dict(reversed(read.items())))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for path in GOLDEN.glob("*.json"):
        assert read_result(path)["kind"] == "hpatches"


def test_a_result_that_does_not_say_its_recipe_is_replaced(tmp_path):
    write_result(tmp_path / "x.json", PHOTOTOURISM)
    check_files(tmp_path / "x.json", [{**PHOTOTOURISM, "recipe": {"optimizer": {"rate": 10.0}}}])
    with refuses(FileError):
        check_files(tmp_path / "x.json", [{**PHOTOTOURISM, "test_set": "yosemite"}])


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2}, {"format": None}, {"kind": "other"}, {"kind": ["phototourism"]}, {"kind": "photos"},
        {"descriptor": None}, {"dimension": "128"}, {"pairs": []}, {"warnings": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_a_result_is_refused(changes, tmp_path):
    changed, path = {**PHOTOTOURISM, **changes}, tmp_path / "x.json"
    with refuses(ArgumentError):
        write_result(path, changed)
    assert not path.exists()
    path.write_text(json.dumps(changed))
    with refuses(FileError):
        read_result(path)


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), "\ud800", {1, 2}], ids=["inf", "nan", "surrogate", "set"]
)
def test_what_json_cannot_hold_is_not_written(value, tmp_path):
    with refuses(ArgumentError):
        write_result(tmp_path / "x.json", PHOTOTOURISM | {"other": [value]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"format": NaN}', b"[" * 100_000])
def test_broken_and_missing_files_are_refused(content, tmp_path):
    (tmp_path / "x.json").write_bytes(content)
    for name in ("x.json", "none.json"):
        with refuses(FileError):
            read_result(tmp_path / name)
