"""The settings that only their owners know: the options of a run's methods and of its world.

The methods are imported where a run has some: `isentrope config` without them need not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from isentrope.config.convert import parse_section, read_section
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.config.validate import switched_in, switched_method
from isentrope.core.errors import TaskError
from isentrope.worlds.registry import world_options


def owners(config: RunConfig) -> dict[str, type[Any]]:
    """Path of a table -> the dataclass that says what may stand in it: `task.options`, then `method.NAME`."""
    found: dict[str, type[Any]] = {}
    world = _options_of_world(config.task.world)
    if world is not None:
        found["task.options"] = world
    switched = switched_method(config.instruments.on_alarm)
    if config.methods or switched:
        from isentrope.methods.registry import METHODS

        names = [*config.methods, *([switched] if switched else [])]
        found |= {f"method.{name}": METHODS[name].options_class for name in names if name in METHODS}
    return found


def with_options(config: RunConfig) -> RunConfig:
    """The config with every option of its methods and of its world written out, as a run records it."""
    task, method = config.task, dict(config.method)
    for path, kind in owners(config).items():
        if path == "task.options":
            task = replace(task, options=as_table(parse_section(kind, task.options, path)))
        else:
            name = path.removeprefix("method.")
            options = as_table(parse_section(kind, method.get(name, {}), path))
            method |= {name: options} if options else {}
    return replace(config, task=task, method=method)


def option_problems(table: Mapping[str, Any]) -> list[str]:
    """What is wrong with the options in a recipe's table; for `load_config`."""
    problems: list[str] = []
    task = table.get("task", {})
    if isinstance(task, Mapping):
        settings = cast("Mapping[str, Any]", task)
        options, world = settings.get("options", {}), settings.get("world", RunConfig().task.world)
        kind = _options_of_world(world) if options and isinstance(world, str) else None
        if kind is not None and isinstance(options, Mapping):
            read_section(kind, cast("Mapping[str, Any]", options), "task.options", problems)
    if table.get("methods") or switched_in(table.get("instruments")):
        from isentrope.methods.registry import method_problems

        problems += method_problems(table)
    return problems


def _options_of_world(name: str) -> type[Any] | None:
    """None if it has none, or if it cannot be loaded: the run itself will say why."""
    try:
        return world_options(name)
    except TaskError:
        return None
