"""Frozen dataclasses from names and values: every name known, every value of the kind its field says."""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError

Settings = TypeVar("Settings")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The contents of a TOML file; whatever is wrong with it is a FileError of one line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise FileError(f"{path}: not a TOML file ({' '.join(str(error).split())[:150]})") from None


def from_dict(kind: type[Settings], values: Mapping[str, Any], where: str = "") -> Settings:
    """Build a dataclass from a table of values, fields that are dataclasses from tables within it.

    Args:
        kind: a frozen dataclass whose fields are bool, int, float, str, tuple[str, ...], tuple[int, ...], dataclasses,
            or one of these or None.
        values: names to values.
        where: name of the table, for messages.
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"{where or 'the settings'} must be a table of names and values, got {short(values)}")
    hints = typing.get_type_hints(kind)
    prefix = f"{where}." if where else ""
    for name in values:
        if name not in hints:
            raise ArgumentError(f"unknown setting {short(prefix + str(name))}; known are {', '.join(hints)}")
    return kind(**{name: _converted(hints[name], value, prefix + name) for name, value in values.items()})


def later(default: Any) -> Any:
    """A field that came after runs were saved: `to_dict` leaves its default out, so that what they saved still fits."""
    return dataclasses.field(default=default, metadata={"is_later": True})


def to_dict(settings: Any) -> dict[str, Any]:
    """A dataclass as nested tables, None and what `later` says left out; `from_dict` gives it back."""
    if hasattr(settings, "to_dict"):
        return dict(settings.to_dict())
    result = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        is_left_out = "is_later" in field.metadata and value == field.default
        if value is not None and not is_left_out:
            result[field.name] = to_dict(value) if dataclasses.is_dataclass(value) else _plain(value)
    return result


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over each other: later values win, tables within tables are merged."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            old = result.get(name)
            both_tables = isinstance(old, Mapping) and isinstance(value, Mapping)
            result[name] = merged(old, value) if both_tables else value  # type: ignore[arg-type]
    return result


def parse_override(text: str) -> dict[str, Any]:
    """`loss.margin=0.5` as nested tables; the value is read as TOML, or taken as a word where it is none."""
    name, equals, value = text.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise ArgumentError(f"--set takes key=value, such as --set loss.margin=0.5, got {short(text)}")
    try:
        table = tomllib.loads(f"value = {value.strip()}")
    except (ValueError, RecursionError):
        table = {}
    parsed: Any = table["value"] if table.keys() == {"value"} else value.strip()
    for key in reversed(keys):
        parsed = {key: parsed}
    return dict(parsed)


def first_difference(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> tuple[str, Any, Any] | None:
    """The first key (dotted) at which two nested tables differ, with both values."""
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        a, b = mine.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found = first_difference(a, b, f"{prefix}{name}.")
            if found:
                return found
        elif a != b or type(a) is not type(b):
            return prefix + name, a, b
    return None


def short(value: object) -> str:
    """A value for a message: on one line and not long, whatever it is."""
    is_huge = isinstance(value, int) and abs(value) >= 10**20
    try:
        words = "a number of more than 20 digits" if is_huge else repr(value)
    except (ValueError, RecursionError):  # such a number within it
        words = f"a {type(value).__name__} that is too long to show"
    return words if len(words) <= 60 else words[:57] + "..."


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _converted(hint: Any, value: Any, name: str) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if dataclasses.is_dataclass(hint):
        table = getattr(hint, "from_dict", None)
        if table is None:
            return from_dict(hint, value, name)  # type: ignore[arg-type]
        if not isinstance(value, Mapping):
            raise ArgumentTypeError(f"{name} must be a table of names and values, got {short(value)}")
        return table(value)
    if typing.get_origin(hint) is tuple:
        return _listed(typing.get_args(hint)[0], value, name)
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value)
    if type(value) is not hint:
        kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        hint_at_zero = ", written 0.5 and not .5" if hint is float and isinstance(value, str) else ""
        raise ArgumentTypeError(f"{name} must be {kinds[hint]}{hint_at_zero}, got {short(value)}")
    return value


def _listed(kind: type, value: Any, name: str) -> tuple[Any, ...]:
    items = [value] if type(value) is kind else value
    if not isinstance(items, (list, tuple)) or not all(type(item) is kind for item in items):
        thing = {int: "whole number", str: "word"}[kind]
        raise ArgumentTypeError(f"{name} must be a {thing} or a list of {thing}s, got {short(value)}")
    return tuple(items)
