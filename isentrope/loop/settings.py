"""The settings of a command or of a call from Python: a recipe's, or those that a run folder recorded.

A run folder may be somebody else's. Code that only it names is not imported, and nothing is sent to servers that only
it names, unless the user names them again.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.config.load import config_from_table, lay_over, load_config, read_overrides, read_recipe
from isentrope.config.older import upgraded
from isentrope.config.parts import name_of, refuse_foreign
from isentrope.config.schema import RunConfig
from isentrope.config.validate import addresses, is_local, is_remote
from isentrope.core.engine import Capabilities
from isentrope.core.errors import ConfigError
from isentrope.core.text import plain
from isentrope.engines.registry import CAPABILITIES
from isentrope.runs.integrity import check_settings
from isentrope.runs.layout import recorded_config

LOG = logging.getLogger("isentrope")
Table = dict[str, Any]


def load(recipe: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings, with what the world and the methods have to say about their own options among the problems."""
    from isentrope.methods.options import option_problems

    return load_config(recipe, sets or (), option_problems)


def recipe_or_recorded(
    recipe: Path | None, run: Path | None, sets: Sequence[str] | None, trust: bool = False
) -> RunConfig:
    """The recipe's settings; without one those recorded in the run folder; without that the defaults. Code that only
    the run folder names is refused unless the user trusts it."""
    recorded = recorded_config(run)
    if recipe is None and recorded is not None:
        check_settings(recorded)
    if recipe is None and recorded is not None and not trust:
        found, given = read_recipe(recorded), read_overrides(sets or (), [])
        refuse_foreign(found, given, str(recorded))
        refuse_servers(found, given, str(recorded))
    return load(recipe or recorded, sets)


def refuse_servers(recorded: Table, named: Table, source: str) -> None:
    """Stop if a run's folder alone names a server elsewhere, or the variable whose content a server is sent."""

    def told(table: Table) -> dict[str, str]:
        task: Any = table.get("task")
        settings = cast("dict[str, Any]", task) if isinstance(task, dict) else {}
        where, key = str(settings.get("where", "")), str(settings.get("key_env", ""))
        elsewhere = [one for one in addresses(where) if not is_local(urlsplit(one).hostname or "")]
        options: Any = settings.get("options")
        inner = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
        found = {"task.where": where} if is_remote(where) and elsewhere else {}
        found |= {"task.key_env": key} if key else {}
        return found | {f"task.options.{name}": str(value) for name, value in inner.items() if _names_server(value)}

    known = told(named)
    foreign = {path: value for path, value in told(recorded).items() if known.get(path) != value}
    if foreign:
        what = "; ".join(f"{path} = {value!r:.120}" for path, value in foreign.items())
        again = " ".join(f"--set {shlex.quote(f'{path}={value}')}" for path, value in foreign.items())
        raise ConfigError(
            f"{source} names servers, or a variable whose content they are sent: {what}. A run folder may be somebody "
            f"else's, so nothing is sent there unless you say so: --trust, or name it again ({again})"
        )


def recipe_or_run(recipe: Path | None, run: Path | None, sets: Sequence[str] | None, trust: bool = False) -> RunConfig:
    """As `recipe_or_recorded`, for a run that somebody else may have made: nothing is sent where its config says.

    Else a run folder from the network could have any environment variable sent to any address, as the server's key.
    """
    recorded = recorded_config(run)
    if recipe is not None or recorded is None:
        return load(recipe, sets)
    check_settings(recorded)
    from isentrope.methods.options import option_problems

    problems: list[str] = []
    given, found = read_overrides(sets or (), problems), read_recipe(recorded)
    if not trust:
        refuse_foreign(found, given, str(recorded))
    table = lay_over(_without_servers(found), given)
    return config_from_table(table, problems, str(recorded), option_problems)


def _without_servers(table: dict[str, Any]) -> dict[str, Any]:
    """The recorded table, less the addresses of servers and the names of variables whose content they are sent; and a
    word about each of the world's options that names one, such as search_qa's retriever."""

    def part(of: dict[str, Any], name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", of[name]) if isinstance(of.get(name), dict) else {}

    engine, task = part(table, "engine"), part(table, "task")
    options = part(task, "options")
    for key in ("url", "model", "key_env"):  # only --set and a recipe that was named may say them
        engine.pop(key, None)
    if not CAPABILITIES.get(str(engine.get("kind")), Capabilities()).trains:  # no training has one
        del engine["kind"]
    task.pop("key_env", None)
    if is_remote(str(task.get("where", ""))):
        del task["where"]
    for name in [name for name, value in options.items() if _names_server(value)]:
        del options[name]
        LOG.warning(
            f"task.options.{plain(name)[:80]} of the run's config.toml is not used: it names a server, and a run "
            "folder may be somebody else's. If you trust it, say it with --set"
        )
    return table


def _names_server(value: Any) -> bool:
    """Whether an option of a world names a server, or a variable whose content one is sent (a judge's)."""
    key = cast("dict[str, Any]", value).get("key_env", "") if isinstance(value, dict) else ""
    return _has_address(value) or key not in ("", "auto")


def _has_address(value: Any) -> bool:
    if isinstance(value, dict | list):
        inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        return any(_has_address(one) for one in inner)
    return isinstance(value, str) and is_remote(value)


def table_of(settings: Mapping[str, Any]) -> Table:
    """Settings from Python as a recipe's table. Names may be full (`learn.lr`) or nested; a class or a function stands
    for its `module:Class`."""
    table: Table = {}
    for name, value in settings.items():
        *path, last = name.split(".")
        inner = table
        for part in path:
            inner = inner.setdefault(part, {})
        if isinstance(value, Mapping):
            inner[last] = {**inner.get(last, {}), **table_of(cast("Mapping[str, Any]", value))}
        elif isinstance(value, list | tuple):
            inner[last] = [name_of(item) if callable(item) else item for item in cast("list[Any]", value)]
        else:
            inner[last] = name_of(value) if callable(value) else value
    return upgraded(table)
