"""The settings that only their owners know: the options of a run's methods, its world, and its other parts.

Methods are imported where a run has some: `isentrope config` without them need not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from isentrope.config.convert import parse_choice, parse_section, read_options, read_section
from isentrope.config.kinds import KINDS
from isentrope.config.parts import is_offered
from isentrope.config.schema import Choice, RunConfig
from isentrope.config.text import as_table
from isentrope.config.validate import switched_in, switched_method
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.part import NoOptions
from isentrope.worlds.registry import world_options


def owners(config: RunConfig) -> dict[str, type[Any]]:
    """Path of a table -> the dataclass that says what may stand in it: `task.options`, `engine`, `method.NAME`, …"""
    found: dict[str, type[Any]] = {}
    world = _options_of_world(config.task.world)
    if world is not None:
        found["task.options"] = world
    for path, choice in choices(config).items():
        found[path] = _options_of_part(path, choice.kind)
    switched = switched_method(config.instruments.on_alarm)
    if config.methods or switched:
        from isentrope.methods.registry import METHODS, method_class

        names = [*config.methods, *([switched] if switched else [])]
        kinds = [method_class(name) for name in names if name in METHODS or ":" in name]
        found |= {f"method.{kind.name}": kind.options_class for kind in kinds}
    return found


def choices(config: RunConfig) -> dict[str, Choice]:
    """The parts of a run that have a kind and options."""
    learn = config.learn
    parts = {"engine": config.engine, "learn.advantage": learn.advantage, "learn.loss": learn.loss}
    return parts | {"task.sampler": config.task.sampler}


def with_options(config: RunConfig) -> RunConfig:
    """The config with every option of its parts, methods and world written out, as a run records it."""
    task, method, parts = config.task, dict(config.method), choices(config)
    for path, kind in owners(config).items():
        if path == "task.options":
            task = replace(task, options=as_table(parse_section(kind, task.options, path)))
        elif path in parts:
            parts[path] = replace(parts[path], options=as_table(parse_choice(kind, parts[path], path)))
        else:
            name = path.removeprefix("method.")
            options = as_table(parse_section(kind, method.get(name, {}), path))
            method |= {name: options} if options else {}
    learn = replace(config.learn, advantage=parts["learn.advantage"], loss=parts["learn.loss"])
    task = replace(task, sampler=parts["task.sampler"])
    return replace(config, task=task, method=method, learn=learn, engine=parts["engine"])


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
    for path in KINDS:
        _part_problems(table, path, problems)
    if table.get("methods") or switched_in(table.get("instruments")):
        from isentrope.methods.registry import method_problems

        problems += method_problems(table)
    return problems


def _part_problems(table: Mapping[str, Any], path: str, problems: list[str]) -> None:
    """What is wrong with the options of a part from outside; those of our own were checked with the config."""
    inner: Any = table
    for name in path.split("."):
        inner = cast("Mapping[str, Any]", inner).get(name) if isinstance(inner, Mapping) else None
    kind = cast("Mapping[str, Any]", inner).get("kind") if isinstance(inner, Mapping) else None
    if not isinstance(kind, str) or kind in KINDS[path] or not (":" in kind or is_offered(path, kind)):
        return  # the config's own check says what is wrong with a name that is none
    try:
        options = _options_of_part(path, kind)
    except ConfigError as error:
        problems.append(f"{path}.kind: {error}")
        return
    given = {key: value for key, value in cast("Mapping[str, Any]", inner).items() if key != "kind"}
    read_options(options, given, path, problems)


def _options_of_part(path: str, kind: str) -> type[Any]:
    if kind in KINDS[path]:
        return KINDS[path][kind]
    from isentrope.engines.registry import ENGINES
    from isentrope.learning.registry import ADVANTAGES, LOSSES
    from isentrope.rollout.sampler import SAMPLERS

    known = {"engine": ENGINES, "learn.advantage": ADVANTAGES, "learn.loss": LOSSES, "task.sampler": SAMPLERS}
    part = known[path].load(kind)
    return getattr(part, "options_class", NoOptions)


def _options_of_world(name: str) -> type[Any] | None:
    """None if it has none, or if it cannot be loaded: the run itself will say why."""
    try:
        return world_options(name)
    except TaskError:
        return None
