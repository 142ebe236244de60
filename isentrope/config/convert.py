"""Converts text and TOML values to settings of the right type, and reports every problem at once.

    options = parse_section(HouseholdOptions, config.task.options, "task.options")

Strict means: no unknown key, no text where a number belongs, no true where an integer belongs, nothing out of
its limits. An integer is taken where a float is expected; nothing else is converted.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from isentrope.config.kinds import KINDS
from isentrope.config.older import SHARED, gone, hint
from isentrope.config.parts import is_offered, offered_names
from isentrope.config.schema import Auto, Choice
from isentrope.config.suggest import nearest, other_kind, plain_name
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError

_PLURALS = {str: "text", int: "integers", float: "numbers", bool: "true or false"}


def field_kinds(cls: type[Any]) -> dict[str, Any]:
    """Name -> type of every setting of a dataclass, annotations written as text resolved."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.init}


def inside_optional(kind: Any) -> Any | None:
    """X for `X | None`, else None."""
    if get_origin(kind) in (types.UnionType, Union):
        inner = [member for member in get_args(kind) if member is not type(None)]
        return inner[0] if len(inner) == 1 else None
    return None


def allowed_values(kind: Any, limits: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    if "auto" in limits:
        return f"{allowed_values(kind, {key: value for key, value in limits.items() if key != 'auto'})}, or auto"
    choices = limits.get("choices")
    bounds = _bounds_in_words(limits)
    if choices and kind is str:
        return "one of " + ", ".join(choices)
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"an integer{bounds}"
    if kind is float:
        return f"a number{bounds}"
    if kind is str:
        return "text"
    if get_origin(kind) is tuple:
        items = "one of " + ", ".join(choices) if choices else f"{_PLURALS.get(get_args(kind)[0], 'values')}{bounds}"
        return f"a list of {items}"
    inner = inside_optional(kind)
    return allowed_values(inner, limits) if inner is not None else "a table"


def _bounds_in_words(limits: Mapping[str, Any]) -> str:
    low, high, above = (limits.get(name) for name in ("low", "high", "above"))
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    words = [
        f" {word} {bound:g}"
        for word, bound in (("above", above), ("of at least", low), ("of at most", high))
        if bound is not None
    ]
    return " and".join(words)


T = TypeVar("T")
_SECRETS = ("key", "token", "secret", "password")  # a setting called so may hold one, which is not repeated
_OPTIONS = "task.options."  # whose lists may be text with commas: --set does not know which of them are lists
_BAD = object()  # what a reader returns after it has noted a problem


def parse_section(cls: type[T], table: Mapping[str, Any], path: str = "") -> T:
    """An instance of `cls` from `table`, or a ConfigError that lists all that is wrong, with full key paths."""
    problems: list[str] = []
    section = read_section(cls, table, path, problems)
    if section is None:
        raise ConfigError("\n".join(problems))
    return section


def read_section(
    cls: type[T], table: Mapping[str, Any], path: str, problems: list[str], elsewhere: Iterable[str] = ()
) -> T | None:
    """As `parse_section`, but adds to `problems` and returns None instead of raising.

    `elsewhere` holds full paths of other settings, for the user who wrote `lr` and meant `learn.lr`.
    """
    before = len(problems)
    if not is_dataclass(cls):
        raise ConfigError(f"{path}: its settings are {cls!r:.60}, expected a dataclass")
    kinds = field_kinds(cls)
    for key in table:
        if key not in kinds:
            told = "" if _may_hold_secret(key, table[key]) else f" = {_shown(table[key])}"
            hint = gone(_join(path, key), table) or _hint(key, path, kinds, elsewhere)
            problems.append(f"{_join(path, key)}{told}: no such setting{hint}")
    values: dict[str, Any] = {}
    for item in fields(cast(Any, cls)):
        where = _join(path, item.name)
        if item.name in table:
            kind, found = kinds[item.name], table[item.name]
            if kind is Choice:
                values[item.name] = _read_choice(found, where, item.default_factory, problems, elsewhere)
            elif is_dataclass(kind) and isinstance(found, Mapping):
                inner = cast("Mapping[str, Any]", found)
                values[item.name] = read_section(cast("type[Any]", kind), inner, where, problems, elsewhere)
            else:
                values[item.name] = _read_value(kind, found, where, item.metadata, problems)
        elif item.default is MISSING and item.default_factory is MISSING:
            problems.append(f"{where}: missing; expected {allowed_values(kinds[item.name], item.metadata)}")
    if len(problems) > before:
        return None
    try:
        return cls(**values)
    except ValueError as error:  # the dataclass has a check of its own
        problems.append(f"{path}: {error}")
        return None


def _read_choice(value: Any, path: str, default: Any, problems: list[str], elsewhere: Iterable[str]) -> Any:
    """A part's table: its kind, and its options, which are checked here if the part is one of ours."""
    table = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {"kind": value}
    kind, known = table.pop("kind", default().kind), KINDS[path]
    if not isinstance(kind, str) or not (kind in known or ":" in kind or is_offered(path, kind)):
        names = [*known, *offered_names(path)]
        guess = nearest(kind, names) if isinstance(kind, str) else None
        other = other_kind(str(kind)) if plain_name(str(kind)) not in known else None
        hint_ = other or (f"; did you mean {guess}?" if guess else "")
        problems.append(f"{path}.kind = {_shown(kind)}: expected one of {', '.join(names)}, or module:Class{hint_}")
        return _BAD
    if kind in known:
        before = len(problems)
        read_options(known[kind], table, path, problems, elsewhere)
        if len(problems) > before:
            return _BAD
    return Choice(kind, table)


def read_options(
    cls: type[T], options: Mapping[str, Any], path: str, problems: list[str], elsewhere: Iterable[str] = ()
) -> T | None:
    """The options of a part. Those that older versions took with any kind, and this one does not read, are left out."""
    names, shared = field_kinds(cls) if is_dataclass(cls) else {}, SHARED.get(path, frozenset[str]())
    for key in options:
        if key in shared and key not in names:
            hint(f"{path}.{key} = {_shown(options[key])} changes nothing here: only other kinds read it")
    table = {key: value for key, value in options.items() if key in names or key not in shared}
    return read_section(cls, table, path, problems, elsewhere)


def parse_choice(cls: type[T], choice: Choice, path: str) -> T:
    """The options of a part, or a ConfigError that lists all that is wrong."""
    problems: list[str] = []
    options = read_options(cls, choice.options, path, problems)
    if options is None:
        raise ConfigError("\n".join(problems))
    return options


def _read_value(kind: Any, value: Any, path: str, limits: Mapping[str, Any], problems: list[str]) -> Any:
    if "auto" in limits and (isinstance(value, Auto) or value == "auto"):
        return limits["auto"]
    inner = inside_optional(kind)
    if inner is not None:
        return None if value is None else _read_value(inner, value, path, limits, problems)
    if get_origin(kind) is tuple and isinstance(value, str) and path.startswith(_OPTIONS):
        value = [_item(part.strip(), get_args(kind)[0]) for part in value.split(",")]
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        element = get_args(kind)[0]
        items = cast("list[Any]", value)
        return tuple(_read_value(element, item, f"{path}[{n}]", limits, problems) for n, item in enumerate(items))
    read = _read_leaf(kind, value)
    if read is _BAD or not _within(read, limits):
        problems.append(_complaint(kind, value, path, limits))
        return _BAD
    return read


def _item(text: str, kind: Any) -> Any:
    """One item of a list that was given as text; what is no number stays text, and is complained of as such."""
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _read_leaf(kind: Any, value: Any) -> Any:
    """`value` as `kind`, or _BAD."""
    if isinstance(value, bool):
        return value if kind is bool else _BAD
    if kind is int and isinstance(value, int):
        return value if abs(value) < 2**63 else _BAD  # what TOML promises, and what torch's seeds can take
    if kind is float and isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else _BAD  # also refuses nan and inf
    if kind is str and isinstance(value, str):
        return value if value.isprintable() or _encodable(value) else _BAD
    if get_origin(kind) is dict and isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return _BAD


def _within(value: Any, limits: Mapping[str, Any]) -> bool:
    choices = limits.get("choices")
    if isinstance(value, str):
        return not choices or value in choices
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, high, above = (limits.get(name) for name in ("low", "high", "above"))
    return not (
        (low is not None and value < low)
        or (high is not None and value > high)
        or (above is not None and value <= above)
    )


def _complaint(kind: Any, value: Any, path: str, limits: Mapping[str, Any]) -> str:
    text = f"{path} = {_shown(value)}: expected {allowed_values(kind, limits)}"
    choices = limits.get("choices")
    if isinstance(value, str) and choices:
        other = other_kind(value) if path == "learn.algorithm" and plain_name(value) not in choices else None
        guess = nearest(value, choices)
        return text + (other or (f"; did you mean {guess}?" if guess else ""))
    if isinstance(value, str) and kind in (int, float, bool) and _looks_plain(value):
        return text + "; write it without quotes"
    if isinstance(value, float) and kind is int and value.is_integer():
        return text + f"; write {int(value)}"
    return text


def _hint(key: str, path: str, kinds: Mapping[str, Any], elsewhere: Iterable[str]) -> str:
    guess = nearest(key, kinds)  # by the last part alone: a long path in common makes any two names look alike
    if guess is not None:
        return f"; did you mean {_join(path, guess)}?"
    same_name = [other for other in elsewhere if other.rsplit(".", 1)[-1] == key]
    if same_name:
        return f"; did you mean {' or '.join(same_name)}?"
    return f"; there is: {', '.join(_join(path, name) for name in kinds)}"


def _may_hold_secret(key: str, value: Any) -> bool:
    names = f"{key} {value}" if isinstance(value, Mapping) else key  # an unknown table: its own names count too
    return any(word in names.lower() for word in _SECRETS)


def _looks_plain(text: str) -> bool:
    """A number or a truth value that somebody put in quotes."""
    try:
        float(text)
    except ValueError:
        return text in ("true", "false")
    return True


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, from a command line that was not UTF-8
        return False
    return True


def _shown(value: object) -> str:
    try:
        text = value_to_toml(value)
    except ConfigError:
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
