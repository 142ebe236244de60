"""Methods by name: each is imported when it is first asked for, and made with its own settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from isentrope.config.convert import read_section
from isentrope.config.parts import Parts
from isentrope.config.schema import RunConfig
from isentrope.config.suggest import METHOD_CLASSES, did_you_mean, nearest, other_kind, plain_name
from isentrope.config.validate import switched_in, switched_method
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method

METHODS = Parts("method", "isentrope.methods", METHOD_CLASSES)


def method_class(name: str | type[Any]) -> type[Method]:
    """The class that a name or a `module:Class` stands for; a class stands for itself."""
    kind: Any = METHODS.load(name) if isinstance(name, str) else name
    if not isinstance(kind, type) or not issubclass(kind, Method):
        raise ConfigError(f"methods: {name!r} is {kind!r:.60}, expected a subclass of isentrope.Method")
    if not kind.name or not kind.name.isidentifier():
        raise ConfigError(f"methods: {name!r}: its class has name = {kind.name!r}, expected letters, digits and _")
    if kind.name in METHODS.inside and name != kind.name and METHODS.load(kind.name) is not kind:
        raise ConfigError(
            f"methods: {name!r} calls itself {kind.name!r}, which is a method of isentrope; choose another name"
        )
    return kind


def method_names(names: Sequence[str]) -> tuple[str, ...]:
    """What methods call themselves: the names of their tables `[method.NAME]`. Those from outside are imported."""
    return tuple(method_class(name).name if ":" in name else name for name in names)


def make_methods(config: RunConfig) -> list[Method]:
    """The methods of a run, in the order given, each with its own table of settings."""
    problems: list[str] = []
    made = _make(config.methods, config.method, config.run.steps, config.run.seed, problems)
    problems += _one_order(config.agent.order, made)
    switched = switched_method(config.instruments.on_alarm)
    problems += _unread_tables(config.method, made, switched)
    problems += switch_problems(switched, config.methods) if switched else []
    if problems:
        raise ConfigError("\n".join(problems))
    return made


Listed = str | type[Method] | tuple[str | type[Method], Mapping[str, Any]]
"""A method by its name or class, with its options or without."""


def make_listed(listed: Sequence[Listed], steps: int, seed: int) -> list[Method]:
    """Methods for a trainer that is not ours: `["aem", ("epo", {"coefficient": 0.01}), Mine]`."""
    problems: list[str] = []
    made: list[Method] = []
    for entry in listed:
        name, options = entry if isinstance(entry, tuple) else (entry, cast("Mapping[str, Any]", {}))
        new = _make([name], {}, steps, seed, problems, options)
        problems += [
            f"methods: {method.name!r} is listed twice" for method in new for m in made if m.name == method.name
        ]
        made += new
    if problems:
        raise ConfigError("\n".join(problems))
    return made


def make_switched(config: RunConfig, name: str, options: Mapping[str, Any] | None = None) -> Method:
    """A method that an alarm switches on while the run goes on, with these options or those of its own table."""
    problems = switch_problems(name, config.methods)
    tables = config.method if options is None else {method_names([name])[0]: options}
    made = [] if problems else _make([name], tables, config.run.steps, config.run.seed, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return made[0]


def switch_problems(name: str, methods: Sequence[str]) -> list[str]:
    """Why the method cannot be switched on by an alarm; empty if it can."""
    asked = f'instruments.on_alarm = "switch:{name}"'
    if name not in METHODS and ":" not in name:
        return [f"{asked}: {_unknown(name).removeprefix('methods: ')}"]
    if name in methods:
        return [f"{asked}: `methods` lists {name}, so it is on from the start; leave it out there or switch another on"]
    try:
        kind = method_class(name)
    except ConfigError as error:
        return [f"{asked}: {error}"]
    if kind.orders:
        return [
            f"{asked}: {name} changes the form of a response ({', '.join(kind.orders)}), which the policy has to learn "
            "from the start; name it in `methods`, or switch another on"
        ]
    return []


def method_problems(table: Mapping[str, Any]) -> list[str]:
    """What `make_methods` would refuse in a recipe's table, which may have other faults: they are not ours to tell."""
    defaults = RunConfig()
    names, tables, run, agent = (table.get(key) for key in ("methods", "method", "run", "agent"))
    steps, order = _value(run, "steps"), _value(agent, "order")
    problems: list[str] = []
    made = _make(
        [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else [],
        cast("Mapping[str, Any]", tables) if isinstance(tables, Mapping) else {},
        steps if isinstance(steps, int) and steps > 0 else defaults.run.steps,
        0,
        problems,
    )
    problems += _one_order(order if isinstance(order, str) else defaults.agent.order, made)
    switched = switched_in(table.get("instruments"))
    if isinstance(tables, Mapping) and not problems:
        problems += _unread_tables(cast("Mapping[str, Any]", tables), made, switched)
    if switched is None:
        return problems
    wrong = switch_problems(switched, [method.name for method in made])
    if not wrong:
        _make([switched], cast("Mapping[str, Any]", tables) if isinstance(tables, Mapping) else {}, 1, 0, wrong)
    return problems + wrong


def _unread_tables(tables: Mapping[str, Any], made: Sequence[Method], switched: str | None) -> list[str]:
    """Tables `[method.NAME]` of no method, which only a run with methods from outside can have (config/validate.py)."""
    known = [method.name for method in made]
    if switched and (switched in METHODS or ":" in switched):
        known.append(method_names([switched])[0])
    return [
        f"[method.{name}] belongs to a method that is not in `methods`{did_you_mean(name, known)}"
        for name in tables
        if name not in known
    ]


def _value(section: object, key: str) -> Any:
    return cast("Mapping[str, Any]", section).get(key) if isinstance(section, Mapping) else None


def _make(
    names: Sequence[str | type[Method]],
    tables: Mapping[str, Any],
    steps: int,
    seed: int,
    problems: list[str],
    options: Mapping[str, Any] | None = None,
) -> list[Method]:
    """Those that can be made; what is wrong with the others, and with their settings, is added to `problems`. `options`
    stand for the methods' own tables."""
    made: list[Method] = []
    for name in names:
        if isinstance(name, str) and name not in METHODS and ":" not in name:
            problems.append(_unknown(name))
            continue
        try:
            kind = method_class(name)
        except ConfigError as error:
            problems.append(str(error))
            continue
        table = tables.get(kind.name, {}) if options is None else options
        if any(other.name == kind.name for other in made):
            problems.append(f"methods: {name!r} calls itself {kind.name!r}, and so does another; leave one out")
            continue
        if not isinstance(table, Mapping):  # the config's own check says so
            continue
        read = read_section(kind.options_class, cast("Mapping[str, Any]", table), f"method.{kind.name}", problems)
        if read is not None:
            try:
                method = kind(read, steps, seed)
                problems += method.impossible()
            except Exception as error:  # somebody's code, which may raise anything
                problems.append(f"method {kind.name}: could not be made: {type(error).__name__}: {error}")
            else:
                made.append(method)
    return made


def _unknown(name: str) -> str:
    other = other_kind(name) if plain_name(name) not in METHODS else None
    guess = nearest(name, METHODS)
    hint = other or (f"; did you mean {guess}?" if guess else "")
    return f"methods: unknown method {name!r}{hint} (known: {', '.join(sorted(METHODS))})"


def _one_order(order: str, methods: Sequence[Method]) -> Iterator[str]:
    """At most one method may choose the form of a response, and the recipe must not ask for a third."""
    choosing = [method for method in methods if method.orders]
    if len(choosing) > 1:
        said = "; ".join(f"{method.name} asks for {' then '.join(method.orders)}" for method in choosing)
        yield f"methods: only one may set the form of a response: {said}. Leave one of them out"
    for method in choosing:
        if order not in (method.orders[-1], "think_act"):
            yield (
                f'agent.order = "{order}" with methods = ["{method.name}"], which asks for '
                f"{' then '.join(method.orders)}; leave agent.order at think_act"
            )
