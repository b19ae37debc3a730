import contextlib
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from matchkernel.data.phototourism import check_range, read_table
from matchkernel.errors import FileError


def table_of(text, folder):
    path = folder / "t.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(text, columns, folder, *words):
    path = table_of(text, folder)
    with pytest.raises(FileError) as caught:
        read_table(path, columns)
    assert str(caught.value).startswith(str(path))
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 120


@pytest.mark.parametrize(
    "text", ["1 2\n-3 4\n", "1 2\r\n-3 4\r\n", "1 2\n-3 4", "1 2\n-3 4\n\n \n\n", " 1\t2 \n -3   4 5.5 words\n"]
)
def test_whole_numbers_are_read_whatever_the_line_ends(text, tmp_path):
    read = read_table(table_of(text, tmp_path), 2)
    assert read.dtype == np.int64
    assert read.tolist() == [[1, 2], [-3, 4]]


def test_the_largest_numbers_are_kept(tmp_path):
    assert read_table(table_of(f"{2**63 - 1} {-(2**63)}", tmp_path), 2).tolist() == [[2**63 - 1, -(2**63)]]


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n"])
def test_an_empty_table_has_no_rows(text, tmp_path):
    assert read_table(table_of(text, tmp_path), 3).shape == (0, 3)


@pytest.mark.parametrize(
    "second",
    ["a b c", "1 2", "1 2.0 3", "1 2 x", "", "1,2,3", f"1 2 {2**63}", "1 2 nan", "9" * 5000 + " 1 1", "0x1 2 3"],
)
def test_a_wrong_line_is_named(second, tmp_path):
    refused(f"1 2 3\n{second}\n4 5 6\n", 3, tmp_path, ", line 2: expected 3 whole numbers", repr(second[:60]))


def test_a_line_of_one_number_is_too_short(tmp_path):
    refused("1 2 3\n7\n", 3, tmp_path, ", line 2: expected 3 whole numbers, got '7'")


def test_an_underscore_is_no_digit(tmp_path):
    refused("1_0\n", 1, tmp_path, ", line 1")


def test_files_that_are_no_tables(tmp_path):
    refused("1 é\n", 1, tmp_path, "not a text file")
    refused(b"\xff\xfe1\0", 1, tmp_path, "not a text file")
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(FileError) as caught:
            read_table(path, 1)
        assert str(caught.value).startswith(f"{path}: cannot be read (")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("values", "line"), [([0, 4, 5], 3), ([-1, 9, 0], 1), ([4, 10**15], 2)])
def test_a_value_out_of_range_is_named_with_its_line(values, line):
    with pytest.raises(FileError) as caught:
        check_range("m50.txt", np.array(values), 5, "patch")
    assert str(caught.value) == f"m50.txt, line {line}: patch {values[line - 1]} is outside 0 .. 4"


def test_values_in_range_pass():
    check_range("m50.txt", np.array([0, 4, 2]), 5, "patch")
    check_range("m50.txt", np.array([], np.int64), 0, "patch")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3), max_size=20))
def test_any_table_reads_back(rows, tmp_path):
    text = io.StringIO()
    for row in rows:
        print(*row, file=text)
    assert read_table(table_of(text.getvalue(), tmp_path), 3).tolist() == [list(row) for row in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=60), st.text("0123456789 -+_.e\n\r\t\0\x0b\x1c", max_size=60)))
def test_random_bytes_give_a_table_or_our_error(content, tmp_path):
    path = table_of(content, tmp_path)
    for columns in (1, 6):
        with contextlib.suppress(FileError):
            assert read_table(path, columns).shape[1] == columns
