"""A small TOML writer: what it writes, `load_config` reads back as the same config."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from typing import Any, cast

from isentrope.config.schema import Auto, Choice, RunConfig
from isentrope.core.errors import ConfigError

Table = Mapping[str, Any]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def config_to_toml(config: RunConfig) -> str:
    """The whole config, every default written out, so that a later version's defaults cannot change a run."""
    return table_to_toml(as_table(config))


def as_table(section: object) -> dict[str, Any]:
    """A dataclass as nested tables. None has no TOML form: a setting that is None is left out."""
    if not is_dataclass(section):
        raise TypeError(f"expected a dataclass, got {type(section).__name__}")
    if isinstance(section, Choice):
        return {"kind": section.kind, **section.options}
    table: dict[str, Any] = {}
    for item in fields(section):
        value = getattr(section, item.name)
        if value is not None:
            table[item.name] = as_table(value) if is_dataclass(value) else value
    return table


def table_to_toml(table: Table) -> str:
    lines: list[str] = []
    _write_table(table, (), lines)
    return "\n".join(lines).strip("\n") + "\n"


def _write_table(table: Table, path: tuple[str, ...], lines: list[str]) -> None:
    """Plain values before sub-tables: in TOML whatever follows a header belongs to that header."""
    inner: Table = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner}
    if path and (plain or not inner):
        lines += ["", f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(key)} = {value_to_toml(value)}" for key, value in plain.items()]
    for key, value in inner.items():
        _write_table(value, (*path, key), lines)


def value_to_toml(value: object) -> str:
    """One value as it would stand behind `key =`."""
    if isinstance(value, Auto):
        return '"auto"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{_key(key)} = {value_to_toml(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_to_toml(item) for item in cast("Sequence[object]", value)) + "]"
    raise ConfigError(
        f"a setting cannot hold a {type(value).__name__}: {value!r:.80}; use text, numbers, lists, tables"
    )


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return '"' + "".join(_character(char) for char in text) + '"'


def _character(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\u{ord(char):04x}"
    if 0xD800 <= ord(char) <= 0xDFFF:
        raise ConfigError(f"a setting holds the character {char!r}, which is not valid UTF-8; remove it")
    return char
