"""Settings as frozen dataclasses: read from tables of names and values, each value of its field's type and in range."""

import dataclasses
import math
import numbers
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, short_message
from matchkernel.storage.files import read_small_text

Settings = TypeVar("Settings")
TOML_BYTES = 2**20
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclasses.dataclass(frozen=True)
class Range:
    """The values a setting may take: numbers within bounds, or one of several strings."""

    low: float | None = None  # at least this
    high: float | None = None  # at most this
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | None = None

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range; NaN and infinity lie in none."""
        if self.choices is not None:
            return value in self.choices
        if isinstance(value, (str, bool)):
            return True
        if isinstance(value, float) and not math.isfinite(value):
            return False
        low, high = self.low is None or value >= self.low, self.high is None or value <= self.high
        above, below = self.above is None or value > self.above, self.below is None or value < self.below
        return low and high and above and below

    def described(self, value: Any) -> str:
        """A description of the range, for the message about a value outside it."""
        if self.choices is not None:
            return f"one of {', '.join(self.choices)}"
        if self.low is not None and self.high is not None:
            return f"from {_number(self.low)} to {_number(self.high)}"
        bounds = {"at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
        parts = [f"{name} {_number(bound)}" for name, bound in bounds.items() if bound is not None]
        is_open = isinstance(value, float) and self.high is None and self.below is None
        return " and ".join([*parts, "finite"] if is_open else parts)


def setting(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Iterable[str] | None = None,
    about: str = "",
    omit_default: bool = False,
) -> Any:
    """A field of a dataclass of settings, with the range that `check_ranges` enforces.

    Args:
        default: value of the field.
        low, high: minimum and maximum, inclusive.
        above, below: exclusive bounds.
        choices: the strings allowed.
        about: what it is, for the help of an option that is derived from the field (metadata "help").
        omit_default: `to_dict` leaves the field out if it has its default. For settings that are newer than saved runs
            and weights, which do not contain them.
    """
    allowed = Range(low, high, above, below, None if choices is None else tuple(choices))
    return dataclasses.field(default=default, metadata={"range": allowed, "help": about, "omit_default": omit_default})


def check_ranges(settings: Any, where: str = "") -> None:
    """Refuse a dataclass with a value of the wrong type, not finite, or outside its range; for `__post_init__`.

    Numbers of numpy, and whole numbers where a field takes any, become Python's int and float.

    Args:
        settings: an instance of a frozen dataclass; fields that are None or a `Literal` string where they may be, and
            fields of other types than `from_dict` reads, are left alone.
        where: name of the table, for messages.
    """
    prefix, hints = f"{where}." if where else "", typing.get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        kinds = _kinds(hints[field.name])
        value, name = getattr(settings, field.name), prefix + field.name
        kind = next((kind for kind in kinds if kind in NAMES or typing.get_origin(kind) is tuple), None)
        literals = [kind for kind in kinds if isinstance(kind, str)]
        if (value is None and types.NoneType in kinds) or (isinstance(value, str) and value in literals):
            continue
        if kind is None and literals:
            raise ArgumentError(f"{name} must be one of {', '.join(literals)}, got {short_repr(value)}")
        if kind is None:
            continue
        special = "".join(f" or {literal!r}" for literal in literals)
        value = _converted(kind, value, name, special)
        allowed = field.metadata.get("range", Range())
        for item in value if isinstance(value, tuple) else (value,):
            if not allowed.holds(item):
                raise ArgumentError(f"{name} must be {allowed.described(item)}{special}, got {short_repr(item)}")
        object.__setattr__(settings, field.name, value)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The contents of a TOML file; any problem becomes a one-line FileError."""
    text = read_small_text(path, TOML_BYTES, what="a TOML file")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise FileError(f"{path}: not a TOML file ({short_message(error)})") from None


def from_dict(kind: type[Settings], values: Mapping[str, Any], where: str = "") -> Settings:
    """Build a dataclass from a table of values; fields that are dataclasses are built from nested tables.

    Args:
        kind: a frozen dataclass whose fields are bool, int, float, str, tuple[str, ...], tuple[int, ...], dataclasses,
            or one of these or None.
        values: names to values.
        where: name of the table, for messages.
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(
            f"{where or 'the settings'} must be a table of names and values, got {short_repr(values)}"
        )
    hints = typing.get_type_hints(kind)
    prefix = f"{where}." if where else ""
    for name in values:
        if name not in hints:
            raise ArgumentError(f"unknown setting {short_repr(prefix + str(name))}; known are {', '.join(hints)}")
    return kind(**{name: _converted(hints[name], value, prefix + name) for name, value in values.items()})


def to_dict(settings: Any) -> dict[str, Any]:
    """A dataclass as nested tables, without None and what `omit_default` leaves out; the inverse of `from_dict`."""
    if hasattr(settings, "to_dict"):
        return dict(settings.to_dict())
    result = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        is_omitted = field.metadata.get("omit_default", False) and value == field.default
        if value is not None and not is_omitted:
            result[field.name] = to_dict(value) if dataclasses.is_dataclass(value) else _plain(value)
    return result


def with_options(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """A dataclass with these fields changed; fields of a dataclass inside it may be named directly."""
    own = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    changes = {name: value for name, value in options.items() if name in own}
    rest = {name: value for name, value in options.items() if name not in own}
    for name in own if rest else ():
        inner = getattr(settings, name)
        known = {field.name for field in dataclasses.fields(inner)} if dataclasses.is_dataclass(inner) else set()
        if known & rest.keys():
            changes[name] = with_options(inner, {key: rest.pop(key) for key in known & rest.keys()})
    if rest:
        raise ArgumentError(f"there is no option {', '.join(sorted(rest))}: see {type(settings).__name__}")
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


TOLD = 3  # differences named in a message


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys (dotted) at which two nested tables differ, with both values."""
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = mine.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{name}.")
        elif a != b or type(a) is not type(b):
            yield prefix + name, a, b


def first_difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first of the differences, if there is one."""
    return next(differences(mine, theirs), None)


def told_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`made with keypoints 500, now 600`, of the first differences; empty if there is none."""
    found = [f"{name} {short_repr(a)}, now {short_repr(b)}" for name, a, b in differences(before, now) if a != b]
    more = [f"{len(found) - TOLD} more"] * (len(found) > TOLD)
    return f"made with {' and '.join(found[:TOLD] + more)}" if found else ""


def short_repr(value: object) -> str:
    """The repr of a value for a message: on one line and at most 60 characters."""
    is_huge = isinstance(value, int) and abs(value) >= 10**20
    try:
        text = "a number of more than 20 digits" if is_huge else repr(value)
    except (ValueError, RecursionError):  # such a number within it
        text = f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The parts of a union, or the values of a Literal."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return tuple(kind for part in parts for kind in (_kinds(part) if part is not hint else (part,)))


def _converted(hint: Any, value: Any, name: str, special: str = "") -> Any:
    if value is None and types.NoneType in _kinds(hint):
        return None
    kind = next(part for part in _kinds(hint) if part is not types.NoneType)
    if dataclasses.is_dataclass(kind):
        own = getattr(kind, "from_dict", None)
        if own is None:
            return from_dict(kind, value, name)  # type: ignore[arg-type]
        if not isinstance(value, Mapping):
            raise ArgumentTypeError(f"{name} must be a table of names and values, got {short_repr(value)}")
        return own(value)
    return _list(kind, value, name) if typing.get_origin(kind) is tuple else _scalar(kind, value, name, special)


def _scalar(kind: type, value: Any, name: str, special: str) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_whole = is_number and isinstance(value, numbers.Integral)
    if kind is float and is_number and not (is_whole and abs(value) >= 2**53):
        return float(value)
    if kind is int and is_whole:
        return int(value)
    if type(value) is not kind:
        is_bare = kind is float and isinstance(value, str) and value.startswith((".", "-."))
        hint = ", written 0.5 and not .5" if is_bare else ""
        raise ArgumentTypeError(f"{name} must be {NAMES[kind]}{special}{hint}, got {short_repr(value)}")
    return value


def _list(hint: Any, value: Any, name: str) -> tuple[Any, ...]:
    kind = typing.get_args(hint)[0]
    items = [value] if type(value) is kind else value
    if not isinstance(items, (list, tuple)) or not all(type(item) is kind for item in items):
        thing = NAMES[kind].removeprefix("a ")
        raise ArgumentTypeError(f"{name} must be a {thing} or a list of {thing}s, got {short_repr(value)}")
    return tuple(items)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
