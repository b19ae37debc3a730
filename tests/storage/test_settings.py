"""Settings as dataclasses: read, written and checked; tables that are merged, overrides, TOML files."""

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import pytest
from helpers import attempt, refuses
from hypothesis import example, given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError
from matchkernel.storage.settings import (
    check_ranges,
    describe_differences,
    first_difference,
    from_dict,
    merged,
    parse_override,
    read_toml,
    setting,
    short_repr,
    to_dict,
)


@dataclass(frozen=True)
class Spice:
    heat: float = 1.5
    is_ground: bool = False

    def __post_init__(self):
        check_ranges(self)


@dataclass(frozen=True)
class Dish:
    """One field of every kind that a dataclass of settings may have."""

    count: int = 3
    weight: float = 0.5
    is_hot: bool = True
    name: str = "soup"
    steps: tuple[str, ...] = ()
    spice: Spice = field(default_factory=Spice)
    garnish: Spice | None = None
    limit: int | None = None

    def __post_init__(self):
        check_ranges(self)


FULL = {
    "count": 7,
    "weight": 2.25,
    "is_hot": False,
    "name": "stew",
    "steps": ["cut", "boil"],
    "spice": {"heat": 9.0, "is_ground": True},
    "garnish": {"heat": 0.0},
    "limit": -4,
}
BUILT = Dish(7, 2.25, False, "stew", ("cut", "boil"), Spice(9.0, True), Spice(0.0), -4)


def test_every_kind_of_field_is_read_and_written():
    assert from_dict(Dish, FULL) == BUILT
    assert from_dict(Dish, {}) == from_dict(Dish, {"limit": None, "garnish": None}) == Dish()
    assert to_dict(BUILT) == {**FULL, "garnish": {"heat": 0.0, "is_ground": False}}
    plain = {"count": 3, "weight": 0.5, "is_hot": True, "name": "soup", "steps": [], "spice": to_dict(Spice())}
    assert to_dict(Dish()) == plain  # without None


def test_a_method_of_a_dataclass_reads_its_table():
    @dataclass(frozen=True)
    class Inner:
        value: int = 0

        @classmethod
        def from_dict(cls, values):
            return cls(values["twice"] // 2)

    checked = {"__post_init__": check_ranges}
    Outer = dataclasses.make_dataclass("Outer", [("inner", Inner)], frozen=True, namespace=checked)
    assert from_dict(Outer, {"inner": {"twice": 6}}).inner == Inner(3)
    with refuses(ArgumentTypeError):
        from_dict(Outer, {"inner": 6})


def test_a_whole_number_is_read_as_a_float_and_one_string_as_a_list():
    dish = from_dict(Dish, {"weight": 2, "steps": "boil"})
    assert (dish.weight, type(dish.weight)) == (2.0, float)
    assert dish.steps == ("boil",)
    assert from_dict(Dish, {"weight": 2**53 - 1}).weight == 2.0**53 - 1  # the largest that is exact


@pytest.mark.parametrize(
    ("values", "error"),
    [
        *((values, ArgumentTypeError) for values in (3, None, "count", ["count"])),
        *(({"count": value}, ArgumentTypeError) for value in (True, 3.0, "3", None, [3], [10**5000])),
        *(({"weight": value}, ArgumentTypeError) for value in (False, "0.5", 2**53, -(10**400))),
        *(({"is_hot": value}, ArgumentTypeError) for value in (1, "true")),
        *(({"name": value}, ArgumentTypeError) for value in (3, ["soup"], 10**5000, -(10**5000))),
        *(({"steps": value}, ArgumentTypeError) for value in (3, ["boil", 3], {"boil": 1})),
        *(({"spice": value}, ArgumentTypeError) for value in (3, None, [1.0], {"heat": "9"})),
        ({"garnish": {"is_ground": 0}}, ArgumentTypeError),
        *(({"limit": value}, ArgumentTypeError) for value in (1.0, float("nan"))),
        *((values, ArgumentError) for values in ({"conut": 3}, {"spice": {"heet": 3}}, {3: 4}, {"x" * 10**5: 1})),
    ],
    ids=short_repr,
)
def test_tables_that_are_refused(values, error):
    with refuses(error):
        from_dict(Dish, values)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["heat", "count"]), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*FULL, "heat"]), junk, max_size=4))
def test_any_table_gives_settings_that_are_written_and_read_or_our_error(values):
    dish, error = attempt(from_dict, Dish, values)
    assert "\n" not in error
    if dish is not None:
        assert from_dict(Dish, to_dict(dish)) == dish


@dataclass(frozen=True)
class Oven:
    heat: float = setting(200, above=0, high=300)
    weight: float = setting(0.5, low=0)
    share: float = setting(0.0, low=0, below=1)
    shelves: int = setting(2, low=1, high=1000)
    racks: tuple[int, ...] = setting((), low=1)
    mode: str = setting("air", choices=("air", "grill"))
    timer: float | Literal["auto"] | None = setting("auto", above=0, high=99.5)
    is_hot: bool = False
    door: Literal["open", "shut"] = "shut"
    spice: Spice = field(default_factory=Spice)
    clock: int | None = setting(None, low=0, omit_default=True)

    def __post_init__(self):
        check_ranges(self, "oven")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *(("heat", value, ArgumentError) for value in (0, 1e39, 1e308, math.nan)),
        *(("heat", value, ArgumentTypeError) for value in (10**400, True, None)),
        *(("weight", value, ArgumentError) for value in (-1, math.inf)),
        ("weight", ".5", ArgumentTypeError),
        ("share", 1.0, ArgumentError),
        *(("shelves", value, ArgumentError) for value in (0, 10**400)),
        ("shelves", 2.0, ArgumentTypeError),
        ("racks", (3, 0), ArgumentError),
        ("racks", (3.0,), ArgumentTypeError),
        ("mode", "fan", ArgumentError),
        ("mode", 3, ArgumentTypeError),
        ("timer", 99.75, ArgumentError),
        ("timer", "soon", ArgumentTypeError),
        ("is_hot", 1, ArgumentTypeError),
        *(("door", value, ArgumentError) for value in ("ajar", None)),
        ("clock", -1, ArgumentError),
    ],
    ids=short_repr,
)
def test_values_outside_their_range_are_refused(name, value, error):
    with refuses(error):
        Oven(**{name: value})


def test_values_in_their_range_are_kept_as_plain_numbers():
    assert (Oven().timer, Oven().clock, Oven(timer=None).timer) == ("auto", None, None)
    oven = Oven(np.float32(1.5), 2, shelves=np.int64(1000), racks=[1, 2], timer=99.5, clock=7)
    assert oven == Oven(1.5, 2.0, shelves=1000, racks=(1, 2), timer=99.5, clock=7)
    assert [type(value) for value in (oven.heat, oven.weight, oven.shelves, oven.racks)] == [float, float, int, tuple]
    assert "clock" not in to_dict(Oven())
    assert to_dict(oven)["clock"] == 7


@given(st.integers() | st.floats() | st.text(max_size=3) | st.none() | st.booleans() | st.fractions())
def test_any_value_is_in_range_or_refused_on_one_line(value):
    for name in ("heat", "weight", "shelves", "mode", "timer", "clock"):
        oven, error = attempt(partial(Oven, **{name: value}))
        assert error.startswith(f"oven.{name} must be ") or not error
        assert "\n" not in error
        kept = getattr(oven, name, 1)
        assert kept in ("air", "grill", "auto", None) or (math.isfinite(kept) and kept >= 0)


def test_a_value_in_a_message_is_short_and_on_one_line():
    assert short_repr(3) == "3"
    assert short_repr("a\nb") == "'a\\nb'"
    assert short_repr("x" * 58) == repr("x" * 58)
    assert len(short_repr("x" * 59)) == 60
    assert short_repr(10**20 - 1) == "9" * 20
    assert len(short_repr(10**5000)) < 60


def test_later_tables_win_and_nested_tables_are_merged():
    first = {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "s": {"k": 1}}
    second = {"a": 2, "t": {"y": {"w": 2}}, "s": 5}
    assert merged(first, second) == {"a": 2, "t": {"x": 1, "y": {"z": 1, "w": 2}}, "s": 5}
    assert merged(second, first) == {"a": 1, "t": {"x": 1, "y": {"z": 1, "w": 2}}, "s": {"k": 1}}
    assert first == {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "s": {"k": 1}}  # the arguments are not changed
    assert merged() == {}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("loss.margin=0.5", {"loss": {"margin": 0.5}}),
        (" seed = 3 ", {"seed": 3}),
        ("a.b.c=true", {"a": {"b": {"c": True}}}),
        ("a . b=1", {"a": {"b": 1}}),
        ("preset=hardnet", {"preset": "hardnet"}),
        ('preset="hardnet"', {"preset": "hardnet"}),
        ('data.train=["x", "y"]', {"data": {"train": ["x", "y"]}}),
        ("data.train=/sets/a=b", {"data": {"train": "/sets/a=b"}}),
        ('data={train = "x"}', {"data": {"train": "x"}}),
        ("loss.margin=inf", {"loss": {"margin": math.inf}}),
        ("name=", {"name": ""}),
        ("name=two words", {"name": "two words"}),
        ("seed=1\npreset=2", {"seed": "1\npreset=2"}),
        *((text, None) for text in ("", "=", "=3", "seed", "a..b=1", ".a=1", "a.=1", "  =1", "x" * 999)),
    ],
)
def test_overrides(text, result):
    if result is None:
        with refuses(ArgumentError):
            parse_override(text)
    else:
        assert parse_override(text) == result


@given(st.text() | st.text("abc.=[]{}\"'-+0123456789eTZ:x_# \n", max_size=20).map("key={}".format))
@example("a=" + "[" * 5000)
@example("a.b=" + "{x=" * 5000)
@example("seed=" + "1" * 5000)
def test_any_text_is_an_override_or_refused(text):
    table, error = attempt(parse_override, text, expected=ArgumentError)
    for key in () if error else text.partition("=")[0].split("."):
        assert list(table) == [key.strip()]
        table = table[key.strip()]


@pytest.mark.parametrize(
    ("mine", "theirs", "difference"),
    [
        ({}, {}, None),
        ({"a": 1, "t": {"x": [1, 2]}}, {"t": {"x": [1, 2]}, "a": 1}, None),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, ("b", 1, 2)),
        ({"a": 1}, {}, ("a", 1, None)),
        ({}, {"a": 1}, ("a", None, 1)),
        ({"a": 1}, {"a": 1.0}, ("a", 1, 1.0)),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"t": {"u": {"x": 1}}}, {"t": {"u": {"x": 2}}}, ("t.u.x", 1, 2)),
        ({"t": {"x": 1}}, {"t": 3}, ("t", {"x": 1}, 3)),
    ],
)
def test_the_first_difference_of_value_or_type(mine, theirs, difference):
    found = first_difference(mine, theirs)
    assert found == difference
    assert [type(value) for value in found or ()] == [type(value) for value in difference or ()]


def test_a_message_names_at_most_three_differences():
    before, now = {"detector": {"keypoints": 500, "contrast": 0.01}, "pixels": 3}, {"detector": {"keypoints": 600}}
    message = describe_differences(before, {**now, "pixels": 3.0})
    assert "detector.keypoints 500, now 600" in message
    assert "pixels" not in message
    assert describe_differences({"a": 1, "b": 1.0}, {"a": 1.0, "b": 1}) == ""  # the same values
    assert describe_differences(dict.fromkeys("abcde", 1), dict.fromkeys("abcde", 2)).endswith("c 1, now 2 and 2 more")


def test_toml_is_read_as_tomllib_reads_it(tmp_path):
    text = '# ä\nname = "ψ"\n[t]\nx = [1, 2.5, true]\n'
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    assert read_toml(tmp_path / "x.toml") == read_toml(str(tmp_path / "x.toml")) == tomllib.loads(text)
    for place in (tmp_path / "absent.toml", tmp_path):
        with refuses(FileError):
            read_toml(place)


pieces = st.sampled_from(
    [b"a", b" = ", b"[", b"]", b"\n", b'"', b"1979-05-27", b"T07:32", b"0x", b"9" * 30, b"inf", b"\\u"]
)


@given(st.binary(max_size=60) | st.lists(pieces, max_size=12).map(b"".join))
@example(b"a = 1\na = 2")
@example(b"a = " + b"[" * 5000)
@example(b"a = 1e" * 999)
@example(b"a = " + b"1" * 5000)
def test_any_bytes_give_a_table_or_a_file_error_of_one_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "x.toml"
    path.write_bytes(content)
    table, error = attempt(read_toml, path, expected=FileError)
    if error:
        assert error.startswith(f"{path}: ")
        assert "\n" not in error
        assert len(error) < len(str(path)) + 200
        return
    assert table == tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n")) or "nan" in str(table)
