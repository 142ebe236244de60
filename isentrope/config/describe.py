"""Every setting with its type, default, limits and meaning: what `isentrope config` and the docs page show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, NamedTuple, cast, get_args, get_origin

from isentrope.config.convert import allowed_values, field_kinds
from isentrope.config.kinds import KINDS
from isentrope.config.schema import Choice, RunConfig
from isentrope.config.text import value_to_toml
from isentrope.core.text import mentions


class SettingInfo(NamedTuple):
    path: str
    type: str
    default: str  # as it would be written in a recipe; empty if the setting has to be given
    allowed: str
    doc: str
    choices: tuple[str, ...] = ()  # if it may be one of a few things only


def sections() -> list[str]:
    """The tables that settings stand in: `run`, `learn`, `learn.loss`, …"""
    paths = [info.path for info in describe_settings()]
    tables = [path.rpartition(".")[0] for path in paths]
    tops = [path.split(".")[0] for path in paths]
    return list(dict.fromkeys(name for pair in zip(tops, tables, strict=True) for name in pair if name))


def settings_in(section: str) -> list[SettingInfo]:
    """Those of a section and of the tables in it; empty if there is no such section."""
    return [info for info in describe_settings() if f"{info.path}.".startswith(f"{section}.")]


def find_settings(words: str, among: Iterable[SettingInfo] | None = None) -> list[SettingInfo]:
    """Those with all the words in their name or meaning; first those with them in the last part of their name."""
    found = [info for info in among or describe_settings() if mentions(words, info.path, info.doc)]
    return sorted(found, key=lambda info: not mentions(words, info.path.rpartition(".")[2]))


def describe_settings() -> list[SettingInfo]:
    """All leaves of RunConfig, in the order of the schema. A part's settings are those of all its kinds."""
    return list(describe(RunConfig))


def describe(cls: type[Any], path: str = "") -> Iterator[SettingInfo]:
    """The settings of any dataclass made with `setting(...)`, nested ones included."""
    kinds = field_kinds(cls)
    for item in fields(cls):
        where = f"{path}.{item.name}" if path else item.name
        kind = kinds[item.name]
        if kind is Choice:
            yield from _describe_choice(where, cast("Choice", item.default_factory()), str(item.metadata["doc"]))  # type: ignore[misc]
        elif is_dataclass(kind):
            yield from describe(cast("type[Any]", kind), where)
        else:
            allowed = allowed_values(kind, item.metadata)
            choices = ("true", "false") if kind is bool else item.metadata.get("choices") or ()
            doc = str(item.metadata.get("doc", ""))
            yield SettingInfo(where, _type_name(kind), _default(item), allowed, doc, tuple(choices))


def _describe_choice(path: str, default: Choice, doc: str) -> Iterator[SettingInfo]:
    """The kind, then the settings of each kind, which their meaning begins with."""
    allowed = f"one of {', '.join(KINDS[path])}, or module:Class"
    yield SettingInfo(f"{path}.kind", "str", value_to_toml(default.kind), allowed, doc, tuple(KINDS[path]))
    readers: dict[SettingInfo, list[str]] = {}
    for kind, options in KINDS[path].items():
        for info in describe(options, path):
            readers.setdefault(info, []).append(kind)
    for info, kinds in readers.items():
        yield info._replace(doc=f"{', '.join(kinds)}: {info.doc}")


def _default(item: Field[Any]) -> str:
    if item.default is not MISSING:
        value: object = item.default
    elif item.default_factory is not MISSING:
        value = item.default_factory()
    else:
        return ""
    return "none" if value is None else value_to_toml(value)


def _type_name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"list of {_type_name(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return "table"
    members = [member for member in get_args(kind) if member is not type(None)]
    if members:
        return f"{_type_name(members[0])} or none"
    return str(getattr(kind, "__name__", kind))
