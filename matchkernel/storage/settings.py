"""Settings as frozen dataclasses: read from nested tables, with every value checked for type and range."""

import dataclasses
import math
import numbers
import tomllib
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, short_message
from matchkernel.storage.files import read_small_text

Settings = TypeVar("Settings")
TOML_BYTES = 2**20
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
SHOWN_DIFFERENCES = 3


@dataclasses.dataclass(frozen=True)
class Range:
    """The values that a setting may take: finite numbers within bounds, or one of several strings."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | None = None

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, (str, bool)):
            return self.choices is None or value in self.choices
        return (
            (isinstance(value, numbers.Integral) or math.isfinite(value))
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices is not None:
            return f"one of {', '.join(self.choices)}"
        if self.low is not None and self.high is not None:
            return f"from {self.low:,} to {self.high:,}"
        bounds = {"at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
        parts = [f"{name} {bound:,}" for name, bound in bounds.items() if bound is not None]
        return " and ".join(parts) or "finite"


def setting(
    default: Any,
    *,
    choices: Iterable[str] | None = None,
    about: str = "",
    omit_default: bool = False,
    **bounds: float | None,
) -> Any:
    """A field of a dataclass of settings, with the range that `check_ranges` enforces.

    Args:
        default: value of the field.
        choices: the strings allowed.
        about: help of the command-line option that is derived from the field (metadata "help").
        omit_default: `to_dict` leaves the field out if it has its default. For settings that are newer than saved runs
            and weights, which do not contain them.
        bounds: `low` and `high`, inclusive; `above` and `below`, exclusive.
    """
    allowed = Range(**bounds, choices=None if choices is None else tuple(choices))
    return dataclasses.field(default=default, metadata={"range": allowed, "help": about, "omit_default": omit_default})


def check_ranges(settings: Any, where: str = "") -> None:
    """Refuse a dataclass with a value of the wrong type or outside its range; call it in `__post_init__`.

    Numbers of numpy, and whole numbers where a field takes any, become Python's int and float. Fields that are bool,
    int, float, str, tuples of these, Literals, dataclasses, or one of these or None are checked. `where` is the name of
    the table, for messages.
    """
    prefix, hints = f"{where}." if where else "", typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        kinds, allowed = _kinds(hints[field.name]), field.metadata.get("range", Range())
        value = _checked(getattr(settings, field.name), kinds, allowed, prefix + field.name)
        object.__setattr__(settings, field.name, value)


class Checked:
    """A dataclass whose values are checked by check_ranges when it is made."""

    def __post_init__(self) -> None:
        check_ranges(self)


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types of a union, and the values of a Literal."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return tuple(kind for part in typing.get_args(hint) for kind in _kinds(part))
    return (hint,)


def _checked(value: Any, kinds: tuple[Any, ...], allowed: Range, name: str) -> Any:
    """A value as one of these types and in the range, if it can be."""
    literals = [kind for kind in kinds if isinstance(kind, str)]
    if (value is None and types.NoneType in kinds) or (isinstance(value, str) and value in literals):
        return value
    is_list = any(typing.get_origin(kind) is tuple for kind in kinds)
    plain = [typing.get_args(kind)[0] if is_list else kind for kind in kinds if kind is not types.NoneType]
    kind = next((kind for kind in plain if kind in NAMES), None)
    if kind is None:
        tables = tuple(kind for kind in kinds if dataclasses.is_dataclass(kind))
        if tables and not isinstance(value, tables):  # type: ignore[arg-type]
            raise ArgumentTypeError(f"{name} must be a table of names and values, got {short_repr(value)}")
        if literals:
            raise ArgumentError(f"{name} must be one of {', '.join(literals)}, got {short_repr(value)}")
        return value
    special = " or a list of these" * is_list + "".join(f" or {literal!r}" for literal in literals)
    items = [_plain(item, kind) for item in (value if is_list and isinstance(value, (list, tuple)) else [value])]
    for item in items:
        if type(item) is not kind:
            raise ArgumentTypeError(f"{name} must be {NAMES[kind]}{special}, got {short_repr(item)}")
        if item not in allowed:
            raise ArgumentError(f"{name} must be {allowed}{special}, got {short_repr(item)}")
    return tuple(items) if is_list else items[0]


def _plain(value: Any, kind: type) -> Any:
    """A number of numpy, or a whole one where any is expected, as Python's number; other values as they are."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is float and is_number and not (is_whole and abs(value) >= 2**53):
        return float(value)
    return int(value) if kind is int and is_whole else value


def read_toml(path: str | Path) -> dict[str, Any]:
    """The contents of a TOML file; any problem becomes a one-line FileError."""
    text = read_small_text(path, TOML_BYTES, what="a TOML file")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise FileError(f"{path}: not a TOML file ({short_message(error)})") from None


def from_dict(kind: type[Settings], values: Mapping[str, Any], where: str = "") -> Settings:
    """Build a dataclass from a table of values; fields that are dataclasses are built from nested tables.

    It is frozen and calls check_ranges, as do those in it, unless it has a method `from_dict`, which then builds it.
    `where` is the name of the table, for messages.
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"{where or 'settings'} must be a table of names and values, got {short_repr(values)}")
    hints, prefix = typing.get_type_hints(kind), f"{where}." if where else ""
    built = {}
    for name, value in values.items():
        if name not in hints:
            raise ArgumentError(f"unknown setting {short_repr(prefix + str(name))}; known are {', '.join(hints)}")
        table = next((part for part in _kinds(hints[name]) if dataclasses.is_dataclass(part)), None)
        if table is None or not isinstance(value, Mapping):
            built[name] = value
        elif hasattr(table, "from_dict"):
            built[name] = table.from_dict(value)
        else:
            built[name] = from_dict(table, value, prefix + name)  # type: ignore[arg-type]
    return kind(**built)


def to_dict(settings: Any) -> dict[str, Any]:
    """A dataclass as nested tables, without None and what `omit_default` leaves out; the inverse of `from_dict`."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        is_omitted = field.metadata.get("omit_default", False) and value == field.default
        if value is None or is_omitted:
            continue
        plain = list(value) if isinstance(value, tuple) else value
        result[field.name] = to_dict(value) if dataclasses.is_dataclass(value) else plain
    return result


def with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """A dataclass with these fields changed; fields of a dataclass inside it may be named directly."""
    own = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    changes = {name: value for name, value in options.items() if name in own}
    rest = {name: value for name, value in options.items() if name not in own}
    every = set(own)
    for name in own if rest else ():
        inner = getattr(settings, name)
        known = {field.name for field in dataclasses.fields(inner)} if dataclasses.is_dataclass(inner) else set()
        every |= known
        if known & rest.keys():
            changes[name] = with_options(inner, {key: rest.pop(key) for key in known & rest.keys()})
    if rest:
        from difflib import get_close_matches  # 2 ms, which only a mistake costs

        wrong, names = min(rest), sorted(every)
        near = get_close_matches(wrong, names, 1)
        hint = f"did you mean {near[0]}" if near else f"known are {', '.join(names)}"
        raise ArgumentError(f"there is no option {short_repr(wrong)}; {hint}")
    return dataclasses.replace(settings, **changes)  # type: ignore[type-var]


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables: later values override earlier ones, nested tables are merged."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            old = result.get(name)
            both_tables = isinstance(old, Mapping) and isinstance(value, Mapping)
            result[name] = merged(old, value) if both_tables else value  # type: ignore[arg-type]
    return result


def parse_override(text: str) -> dict[str, Any]:
    """`loss.margin=0.5` as nested tables; the value is read as TOML, or as a string if it is not valid TOML."""
    name, equals, value = text.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise ArgumentError(f"--set takes key=value, such as --set loss.margin=0.5, got {short_repr(text)}")
    try:
        table = tomllib.loads(f"value = {value.strip()}")
    except (ValueError, RecursionError):
        table = {}
    parsed: Any = table["value"] if table.keys() == {"value"} else value.strip()
    for key in reversed(keys):
        parsed = {key: parsed}
    return dict(parsed)


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys (dotted) at which two nested tables differ, with both values."""
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = mine.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{name}.")
        elif a != b or type(a) is not type(b):
            yield prefix + name, a, b


def without(tables: Mapping[str, Any], names: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Nested tables without the keys of these (dotted) names."""
    return {
        key: without(value, names, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in tables.items()
        if prefix + key not in names
    }


def first_difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first of the differences, if there is one."""
    return next(differences(mine, theirs), None)


def describe_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first differences for a message: `made with keypoints 500, now 600`; empty if there is none."""
    found = [f"{name} {short_repr(a)}, now {short_repr(b)}" for name, a, b in differences(before, now) if a != b]
    more = [f"{len(found) - SHOWN_DIFFERENCES} more"] * (len(found) > SHOWN_DIFFERENCES)
    return f"made with {' and '.join(found[:SHOWN_DIFFERENCES] + more)}" if found else ""


def short_repr(value: object) -> str:
    """The repr of a value for a message: on one line and at most 60 characters."""
    is_huge = isinstance(value, int) and abs(value) >= 10**20
    try:
        text = "a number of more than 20 digits" if is_huge else repr(value)
    except (ValueError, RecursionError):  # it contains such a number
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 60 else text[:57] + "..."
