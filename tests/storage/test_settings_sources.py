"""Where settings come from: tables that are merged, overrides, TOML files; and how two differ."""

import contextlib
import math
import tomllib

import pytest
from helpers import attempt
from hypothesis import example, given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.storage.settings import (
    first_difference,
    merged,
    parse_override,
    read_toml,
    told_differences,
)


def test_later_tables_win_and_tables_within_tables_are_merged():
    first = {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "s": {"k": 1}}
    second = {"a": 2, "t": {"y": {"w": 2}}, "s": 5}
    assert merged(first, second) == {"a": 2, "t": {"x": 1, "y": {"z": 1, "w": 2}}, "s": 5}
    assert merged(second, first) == {"a": 1, "t": {"x": 1, "y": {"z": 1, "w": 2}}, "s": {"k": 1}}
    assert first == {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "s": {"k": 1}}  # what is given stays as it was
    assert merged() == {}


tables = st.recursive(
    st.integers(0, 2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
).filter(lambda table: isinstance(table, dict))


def leaves(table, path=()):
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


@given(tables, tables)
def test_merging_keeps_the_later_and_no_more_than_both(first, second):
    result = dict(leaves(merged(first, second)))
    later = dict(leaves(second))
    for path, value in later.items():
        assert value == {} or result[path] == value  # an empty table lets the earlier one through
    assert result.keys() <= dict(leaves(first)).keys() | later.keys()
    assert merged(first, {}) == merged({}, first) == merged(first, first) == first


def test_overrides():
    for text, result in [
        ("loss.margin=0.5", {"loss": {"margin": 0.5}}),
        ("seed=3", {"seed": 3}),
        (" seed = 3 ", {"seed": 3}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("a . b=1", {"a": {"b": 1}}),
        ("preset=hardnet", {"preset": "hardnet"}),
        ('preset="hardnet"', {"preset": "hardnet"}),
        ('data.train=["x", "y"]', {"data": {"train": ["x", "y"]}}),
        ("data.train=/sets/a=b", {"data": {"train": "/sets/a=b"}}),
        ("data.train=../sets/liberty", {"data": {"train": "../sets/liberty"}}),
        ('data={train = "x"}', {"data": {"train": "x"}}),
        ("loss.margin=inf", {"loss": {"margin": math.inf}}),
        ("name=", {"name": ""}),
        ("name=two words", {"name": "two words"}),
        ("rate=1e-3", {"rate": 1e-3}),
    ]:
        assert parse_override(text) == result


def test_overrides_that_are_refused():
    for text in ["", "=", "=3", "seed", "a..b=1", ".a=1", "a.=1", "  =1", "x" * 999]:
        with pytest.raises(ArgumentError, match="--set takes key=value") as caught:
            parse_override(text)
        assert len(str(caught.value)) < 200, text


@given(st.text() | st.text("abc.=[]{}\"'-+0123456789eTZ:x_# \n", max_size=20).map("key={}".format))
@example("a=" + "[" * 5000)
@example("a.b=" + "{x=" * 5000)
def test_any_text_is_an_override_or_refused(text):
    try:
        table = parse_override(text)
    except ArgumentError:
        return
    name = text.partition("=")[0]
    for key in name.split("."):
        assert list(table) == [key.strip()]
        table = table[key.strip()]


def test_an_override_of_5000_digits_is_a_value_or_refused():
    with contextlib.suppress(MatchKernelError):
        parse_override("seed=" + "1" * 5000)


def test_nothing_of_an_override_is_dropped():
    try:
        result = parse_override("seed=1\npreset=2")
    except ArgumentError:
        return
    assert result == {"seed": "1\npreset=2"}


def test_the_first_difference():
    for mine, theirs, difference in [
        ({}, {}, None),
        ({"a": 1, "t": {"x": [1, 2]}}, {"t": {"x": [1, 2]}, "a": 1}, None),
        ({"a": 1}, {"a": 2}, ("a", 1, 2)),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, ("b", 1, 2)),
        ({"a": 1}, {}, ("a", 1, None)),
        ({}, {"a": 1}, ("a", None, 1)),
        ({"a": 1}, {"a": 1.0}, ("a", 1, 1.0)),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"t": {"u": {"x": 1}}}, {"t": {"u": {"x": 2}}}, ("t.u.x", 1, 2)),
        ({"t": {"x": 1}}, {"t": 3}, ("t", {"x": 1}, 3)),
        ({"t": {"x": 1}, "v": 1}, {"t": {"x": 1}, "v": 2}, ("v", 1, 2)),
    ]:
        found = first_difference(mine, theirs)
        assert found == difference, (mine, theirs)
        types = [type(value) for value in found or ()]
        assert types == [type(value) for value in difference or ()], (mine, theirs)


def test_differences_are_told_by_name_at_most_three():
    before, now = {"detector": {"keypoints": 500, "contrast": 0.01}, "pixels": 3}, {"detector": {"keypoints": 600}}
    assert told_differences(before, {**now, "pixels": 3.0}) == (
        "made with detector.keypoints 500, now 600 and detector.contrast 0.01, now None"
    )
    assert told_differences({"a": 1, "b": 1.0}, {"a": 1.0, "b": 1}) == ""  # the same value
    told = told_differences(dict.fromkeys("abcde", 1), dict.fromkeys("abcde", 2))
    assert told == "made with a 1, now 2 and b 1, now 2 and c 1, now 2 and 2 more"


@given(tables, tables)
def test_a_difference_is_found_where_there_is_one_and_only_there(mine, theirs):
    assert (first_difference(mine, theirs) is None) == (mine == theirs)
    assert first_difference(mine, mine) is None


def test_toml_is_read_as_tomllib_reads_it(tmp_path):
    text = '# ä\nname = "ψ"\n[t]\nx = [1, 2.5, true]\n'
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    assert read_toml(tmp_path / "x.toml") == read_toml(str(tmp_path / "x.toml")) == tomllib.loads(text)


def test_a_file_that_is_no_toml_is_named_on_one_line(tmp_path):
    path = tmp_path / "x.toml"
    for content in [
        b"a = ",
        b"\xff\xfe",
        b"a = 1\na = 2",
        b"a = 1\x00",
        b"a = " + b"[" * 5000,
        b"a = 1e" * 999,
    ]:
        path.write_bytes(content)
        with pytest.raises(FileError) as caught:
            read_toml(path)
        message = str(caught.value)
        assert message.startswith(f"{path}: not a TOML file ("), content[:10]
        assert "\n" not in message, content[:10]
        assert len(message) < len(str(path)) + 200, content[:10]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(FileError) as caught:
            read_toml(path)
        assert str(caught.value).startswith(f"{path}: cannot be read (")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("toml") / "x.toml"


pieces = st.sampled_from(
    [b"a", b" = ", b"[", b"]", b"\n", b'"', b"1979-05-27", b"T07:32", b"0x", b"9" * 30, b"inf", b"\\u"]
)


@given(st.binary(max_size=60) | st.lists(pieces, max_size=12).map(b"".join))
def test_any_bytes_give_a_table_or_a_file_error(scratch, content):
    scratch.write_bytes(content)
    table, error = attempt(read_toml, scratch, expected=FileError)
    if error:
        assert error.startswith(f"{scratch}: ")
        assert "\n" not in error
        return
    assert table == tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n")) or "nan" in str(table)


def test_a_file_with_5000_digits_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text("a = " + "1" * 5000)
    with pytest.raises(FileError):
        read_toml(tmp_path / "x.toml")
