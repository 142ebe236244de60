"""Worlds by name.

    world = make_world("household", {"rooms": "small"})
    world = make_world("my_package.my_module:MyWorld", {})      # your own

A world's class takes no argument, or one: its options, a dataclass made with `setting(...)`. The annotation of
that argument says which, so `[task.options]` is checked against it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, cast, get_type_hints

from isentrope.config.convert import parse_section
from isentrope.config.kinds import inside_optional
from isentrope.config.suggest import did_you_mean
from isentrope.errors import TaskError
from isentrope.tasks.contract import World
from isentrope.tasks.needs import NOTHING, Needs


@dataclass(frozen=True)
class Known:
    """A world that comes with the package."""

    target: str  # module:Class
    summary: str
    needs: Needs = NOTHING


WORLDS: dict[str, Known] = {
    "household": Known(
        "isentrope.tasks.household.world:HouseholdWorld",
        "find, clean, heat, cool and bring things (ALFWorld's text games)",
    ),
}

Factory = Callable[..., World]


def make_world(name: str, options: Mapping[str, Any] | None = None) -> World:
    """The world of that name (or "module:Class"), set up with its `[task.options]`."""
    factory = world_factory(name)
    options_class = _options_of(name, factory)
    if options_class is None:
        if options:
            raise TaskError(f"the world {name} has no options, but task.options sets {', '.join(options)}")
        return factory()
    return factory(parse_section(options_class, options or {}, "task.options"))


def world_options(name: str) -> type[Any] | None:
    """The dataclass of a world's options, or None if it has none."""
    return _options_of(name, world_factory(name))


def world_factory(name: str) -> Factory:
    target = WORLDS[name].target if name in WORLDS else name
    module_name, colon, attribute = target.partition(":")
    if not colon:
        raise TaskError(
            f"no world named {name!r} (one of your own is named by package.module:Class){did_you_mean(name, WORLDS)}"
        )
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise TaskError(f"could not load the world {name!r} from {target}: {error}") from error
    if not callable(found):
        raise TaskError(f"{target} is a {type(found).__name__}, not a world's class")
    return cast(Factory, found)


def _options_of(name: str, factory: Factory) -> type[Any] | None:
    parameters = list(inspect.signature(factory).parameters.values())
    if not parameters:
        return None
    first, others = parameters[0], parameters[1:]
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    kind = hints.get(first.name)
    kind = inside_optional(kind) or kind
    if not is_dataclass(kind) or any(other.default is inspect.Parameter.empty for other in others):
        raise TaskError(f"the class of the world {name} must take one argument: its options, a dataclass")
    return cast("type[Any]", kind)
