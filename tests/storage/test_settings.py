"""Settings of dataclasses: read, written, checked."""

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import pytest
from helpers import attempt
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError
from matchkernel.storage.settings import (
    check_ranges,
    from_dict,
    setting,
    short_repr,
    to_dict,
)


@dataclass(frozen=True)
class Spice:
    heat: float = 1.5
    is_ground: bool = False


@dataclass(frozen=True)
class Dish:
    """One field of every kind a dataclass of settings may have."""

    count: int = 3
    weight: float = 0.5
    is_hot: bool = True
    name: str = "soup"
    steps: tuple[str, ...] = ()
    spice: Spice = field(default_factory=Spice)
    garnish: Spice | None = None
    limit: int | None = None


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
spices = st.builds(Spice, heat=st.floats(allow_nan=False), is_ground=st.booleans())
dishes = st.builds(
    Dish,
    count=st.integers(),
    weight=st.floats(allow_nan=False),
    is_hot=st.booleans(),
    name=st.text(),
    steps=st.lists(st.text()).map(tuple),
    spice=spices,
    garnish=st.none() | spices,
    limit=st.none() | st.integers(),
)


def test_every_kind_of_field_is_read():
    assert from_dict(Dish, FULL) == BUILT
    assert from_dict(Dish, {}) == from_dict(Dish, {"limit": None, "garnish": None}) == Dish()


def test_every_kind_of_field_is_written():
    assert to_dict(BUILT) == {**FULL, "garnish": {"heat": 0.0, "is_ground": False}}
    plain = {"count": 3, "weight": 0.5, "is_hot": True, "name": "soup", "steps": [], "spice": to_dict(Spice())}
    assert to_dict(Dish()) == plain  # None left out


@given(dishes)
def test_written_and_read_is_the_same(dish):
    assert from_dict(Dish, to_dict(dish)) == dish


def test_a_tables_own_readers_and_writers_are_used():
    @dataclass(frozen=True)
    class Inner:
        value: int = 0

        @classmethod
        def from_dict(cls, values):
            return cls(values["twice"] // 2)

        def to_dict(self):
            return {"twice": 2 * self.value}

    Outer = dataclasses.make_dataclass("Outer", [("inner", Inner)], frozen=True)
    assert from_dict(Outer, {"inner": {"twice": 6}}).inner == Inner(3)
    assert to_dict(Outer(Inner(3))) == {"inner": {"twice": 6}}
    with pytest.raises(ArgumentTypeError, match="inner must be a table"):
        from_dict(Outer, {"inner": 6})


def test_a_whole_number_serves_as_a_real_one_and_one_word_as_a_list():
    dish = from_dict(Dish, {"weight": 2, "steps": "boil"})
    assert (dish.weight, type(dish.weight)) == (2.0, float)
    assert dish.steps == ("boil",)
    assert from_dict(Dish, {"weight": 2**53 - 1}).weight == 2.0**53 - 1  # the last before floats leave some out


def test_unknown_names_are_refused_with_their_place():
    for values, name in [
        ({"conut": 3}, "'conut'"),
        ({"spice": {"heet": 3}}, "'spice.heet'"),
        ({"garnish": {"spice": {}}}, "'garnish.spice'"),
        ({3: 4}, "'3'"),
        ({"x" * 10**5: 1}, "'xxxx"),
    ]:
        with pytest.raises(ArgumentError, match="unknown setting") as caught:
            from_dict(Dish, values)
        assert name in str(caught.value)
        assert len(str(caught.value)) < 200


def test_values_of_the_wrong_kind_are_refused_by_name():
    for values, name in [
        ({"count": True}, "count"),
        ({"count": 3.0}, "count"),
        ({"count": "3"}, "count"),
        ({"count": None}, "count"),
        ({"count": [3]}, "count"),
        ({"weight": False}, "weight"),
        ({"weight": "0.5"}, "weight"),
        ({"weight": 2**53}, "weight"),
        ({"weight": -(10**400)}, "weight"),
        ({"is_hot": 1}, "is_hot"),
        ({"is_hot": "true"}, "is_hot"),
        ({"name": 3}, "name"),
        ({"name": ["soup"]}, "name"),
        ({"steps": 3}, "steps"),
        ({"steps": ["boil", 3]}, "steps"),
        ({"steps": {"boil": 1}}, "steps"),
        ({"spice": 3}, "spice"),
        ({"spice": None}, "spice"),
        ({"spice": [1.0]}, "spice"),
        ({"spice": {"heat": "9"}}, "spice.heat"),
        ({"garnish": {"is_ground": 0}}, "garnish.is_ground"),
        ({"limit": 1.0}, "limit"),
        ({"limit": float("nan")}, "limit"),
    ]:
        with pytest.raises(ArgumentTypeError) as caught:
            from_dict(Dish, values)
        message = str(caught.value)
        assert message.startswith(f"{name} must be "), (values, message)
        assert "\n" not in message, values
        assert len(message) < 200, values


def test_not_a_number_is_a_number_to_the_reader():
    """Whether NaN makes sense is for each dataclass to say."""
    assert math.isnan(from_dict(Dish, {"weight": float("nan")}).weight)


def test_settings_that_are_no_table_are_refused():
    for values in [3, None, "count", ["count"]]:
        with pytest.raises(ArgumentTypeError, match="table of names and values"):
            from_dict(Dish, values)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["heat", "count"]), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*FULL, "heat"]), junk, max_size=4))
def test_any_table_gives_settings_or_our_error(values):
    dish, error = attempt(from_dict, Dish, values)
    if error:
        assert "\n" not in error
        return
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


def test_values_outside_their_range_are_refused():
    for values, message in [
        ({"heat": 0}, "oven.heat must be above 0 and at most 300, got 0.0"),
        ({"heat": 1e39}, "oven.heat must be above 0 and at most 300, got 1e+39"),
        ({"heat": 1e308}, "oven.heat must be above 0 and at most 300, got 1e+308"),
        ({"heat": math.nan}, "oven.heat must be above 0 and at most 300, got nan"),
        ({"heat": 10**400}, "oven.heat must be a number, got a number of more than 20 digits"),
        ({"heat": True}, "oven.heat must be a number, got True"),
        ({"heat": None}, "oven.heat must be a number, got None"),
        ({"weight": -1}, "oven.weight must be at least 0 and finite, got -1.0"),
        ({"weight": math.inf}, "oven.weight must be at least 0 and finite, got inf"),
        ({"share": 1.0}, "oven.share must be at least 0 and below 1, got 1.0"),
        ({"shelves": 0}, "oven.shelves must be from 1 to 1,000, got 0"),
        ({"shelves": 10**400}, "oven.shelves must be from 1 to 1,000, got a number of more than 20 digits"),
        ({"shelves": 2.0}, "oven.shelves must be a whole number, got 2.0"),
        ({"racks": (3, 0)}, "oven.racks must be at least 1, got 0"),
        ({"racks": (3.0,)}, "oven.racks must be a whole number or a list of whole numbers, got (3.0,)"),
        ({"mode": "fan"}, "oven.mode must be one of air, grill, got 'fan'"),
        ({"mode": 3}, "oven.mode must be a string, got 3"),
        ({"timer": 99.75}, "oven.timer must be above 0 and at most 99.5 or 'auto', got 99.75"),
        ({"timer": "soon"}, "oven.timer must be a number or 'auto', got 'soon'"),
        ({"weight": ".5"}, "oven.weight must be a number, written 0.5 and not .5, got '.5'"),
        ({"is_hot": 1}, "oven.is_hot must be true or false, got 1"),
        ({"door": "ajar"}, "oven.door must be one of open, shut, got 'ajar'"),
        ({"door": None}, "oven.door must be one of open, shut, got None"),
        ({"clock": -1}, "oven.clock must be at least 0, got -1"),
    ]:
        with pytest.raises((ArgumentError, ArgumentTypeError)) as caught:
            Oven(**values)
        assert str(caught.value) == message


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


def test_a_huge_number_is_told_without_its_digits():
    for value in (10**5000, -(10**5000)):
        with pytest.raises(ArgumentTypeError, match="more than 20 digits"):
            from_dict(Dish, {"name": value})


def test_a_huge_number_within_a_list_is_told_too():
    with pytest.raises(MatchKernelError):
        from_dict(Dish, {"count": [10**5000]})


def test_a_value_in_a_message_is_short_and_on_one_line():
    assert short_repr(3) == "3"
    assert short_repr("a\nb") == "'a\\nb'"
    assert short_repr("x" * 58) == repr("x" * 58)
    assert len(short_repr("x" * 59)) == 60
    assert short_repr("x" * 59).endswith("...")
    assert short_repr(10**20 - 1) == "9" * 20
    assert "20 digits" in short_repr(10**20)
