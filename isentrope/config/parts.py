"""Finds the parts of a run by name: one of ours, one that an installed package offers, or your own `module:Class`.

    METHODS = Parts("method", "isentrope.methods", {"epo": "isentrope.methods.epo:Epo"})
    METHODS.load("epo"), METHODS.load("my_module:Mine")

A package offers parts by entry points: `[project.entry-points."isentrope.methods"]`, `mine = "my_module:Mine"`.

Loading runs code, so a name has to come from the user: from the command line, from Python, or from a recipe given
there. A run folder may be somebody else's: `refuse_foreign` stops a `module:Class` that only such a folder names.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, cast

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import ConfigError, IsentropeError


@dataclass(frozen=True, eq=False)
class Parts(Mapping[str, Any]):
    """All parts of one kind by their names. Looking one up imports it."""

    what: str  # in messages: method, loss, world
    group: str  # of entry points
    inside: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> module:Class, of this package
    error: type[IsentropeError] = ConfigError

    def load(self, name: str) -> Any:
        """The class or function of that name; an unknown name is an error with the nearest one."""
        if name in self.inside:
            return load_object(self.inside[name])
        offered = _offered(self.group).get(name)
        try:
            if offered is not None:
                return offered.load()
            if ":" in name:
                return load_object(name)
        except Exception as error:  # the import runs somebody's code, which may raise anything
            source = "" if offered is None else f" from {offered.value}"
            told = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
            raise self.error(f"could not load the {self.what} {name!r}{source}: {told}") from error
        raise self.error(self.unknown(name))

    def unknown(self, name: str) -> str:
        """What to say about a name that is none of these."""
        hint = did_you_mean(name, self)
        return f"no {self.what} named {name!r} (one of your own is named by package.module:Class){hint}"

    def __getitem__(self, name: str) -> Any:
        if name not in self and ":" not in name:
            raise KeyError(name)
        return self.load(name)

    def __contains__(self, name: object) -> bool:
        return name in self.inside or name in _offered(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter({**self.inside, **_offered(self.group)})

    def __len__(self) -> int:
        return len({**self.inside, **_offered(self.group)})


@cache
def _offered(group: str) -> dict[str, EntryPoint]:
    """The parts that installed packages offer. Nothing is imported."""
    return {point.name: point for point in entry_points(group=group)}


GROUPS = {
    "learn.advantage": "isentrope.advantages",
    "learn.loss": "isentrope.losses",
    "engine": "isentrope.engines",
    "task.sampler": "isentrope.samplers",
}


def offered_names(path: str) -> list[str]:
    """The parts that installed packages offer for the table at `path`."""
    return list(_offered(GROUPS[path]))


def is_offered(path: str, kind: str) -> bool:
    """Whether an installed package offers a part of this name, for the table at `path`."""
    return kind in _offered(GROUPS[path])


def load_object(target: str) -> Any:
    """`module:Class` or `module:function`. The current folder is searched too, for what is not found elsewhere."""
    module_name, _, attribute = target.partition(":")
    if module_name.split(".")[0] not in sys.modules and find_spec(module_name.split(".")[0]) is None:
        here = os.getcwd()
        sys.path += [] if here in sys.path else [here]
    found: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def name_of(part: object) -> str:
    """The name of a class or function, as settings have it: `module:Class`. Text stays as it is."""
    if isinstance(part, str):
        return part
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", "")
    if not module or not name or "<" in name:
        raise ConfigError(f"{part!r:.80} has no name to import it by; give a class or function of a module")
    return f"{module}:{name}"


# Settings that name code: sections and keys; a * stands for every entry of a list.
_CODE = (
    "task.world", "task.sampler", "task.sampler.kind", "task.reward", "methods.*", "engine", "engine.kind",
    "learn.advantage", "learn.advantage.kind", "learn.loss", "learn.loss.kind", "instruments.on_alarm",
    "task.options.rewards.*", "task.options.describe", "task.options.opponent", "task.options.env_id",
)  # fmt: skip
# Options of our worlds that name a module or a program by itself, each with the values that are our own.
_MODULES = {
    "task.options.module": ("", "minigrid"),  # gym: imported before the environment is made
    "task.options.env": ("",),  # verifiers: an installed package or a module
    "task.options.image": ("",),  # code repair: a docker image, fetched and started
}


def code_names(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings of a recipe's table that name code of somebody's own, each with that name, such as `my_module:Mine`."""
    named = [(path, name) for pattern in _CODE for path, name in _values(table, pattern.split("."), "") if ":" in name]
    for path, ours in _MODULES.items():
        named += [(path, name) for path, name in _values(table, path.split("."), "") if name not in ours]
    return named


def _values(value: object, parts: Sequence[str], path: str) -> Iterable[tuple[str, str]]:
    if not parts:
        if isinstance(value, str):
            yield path, value.removeprefix("switch:")
    elif parts[0] == "*" and isinstance(value, list | tuple | str):
        items = value.split(",") if isinstance(value, str) else cast("list[object]", value)  # a list as --set has it
        for item in items:
            yield from _values(item.strip() if isinstance(item, str) else item, parts[1:], path)
    elif isinstance(value, Mapping) and parts[0] in value:
        inner = cast("Mapping[str, object]", value)[parts[0]]
        yield from _values(inner, parts[1:], f"{path}.{parts[0]}" if path else parts[0])


def _said(table: Mapping[str, Any], path: str) -> str:
    """A setting as `--set` takes it: all of a list, and `switch:` before a method."""
    value: Any = table
    for part in path.split("."):
        value = value[part]
    return ",".join(map(str, cast("list[object]", value))) if isinstance(value, list | tuple) else str(value)


def _deed(path: str, name: str) -> str:
    return f"start {name}" if path == "task.options.image" else f"import {name.partition(':')[0]}"


def refuse_foreign(recorded: Mapping[str, Any], named: Mapping[str, Any], source: str) -> None:
    """Stop if the table of a run folder names code that the user has not named too. `named` are the user's settings."""
    known = {name for _, name in code_names(named)}
    foreign = [(path, name) for path, name in code_names(recorded) if name not in known]
    if foreign:
        told = "; ".join(f"{path} = {name!r} would {_deed(path, name)}" for path, name in foreign)
        again = " ".join(dict.fromkeys(f"--set {path}={_said(recorded, path)}" for path, _ in foreign))
        raise ConfigError(
            f"{source} names code that is not part of isentrope: {told}. A run folder may be somebody else's, so its "
            f"code is not run unless you say so: --trust, or name it again ({again}; in Python trust=True)"
        )
