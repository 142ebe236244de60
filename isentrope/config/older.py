"""Reads settings of older versions: what the files of older runs mean today.

`learn.step_std` said whether GiGPO's step part is divided; today `divide_by_std` says it for both parts. Until then a
plain `gigpo` divided the episode part alone, which is called `gigpo_mixed` now. A file of ours has every setting
written out, so what it ran can be told. One without the setting is younger: it came with GiGPO itself.

Settings that only one advantage estimator or loss reads stood in [learn] itself; today they stand in [learn.advantage]
and [learn.loss]. Their old names still work, with a hint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, cast

from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.kinds import KINDS, ClipOptions, GaeOptions, GigpoOptions, GpuOptions, ServerOptions
from isentrope.core.limits import parse_toml

_STEP_STD = "step_std"
# Tables of parts -> the settings that older versions took whatever the kind was: some kinds read nothing of them.
SHARED: dict[str, frozenset[str]] = {
    path: frozenset(item.name for kind in kinds for item in fields(kind))
    for path, kinds in (
        ("learn.advantage", (GigpoOptions, GaeOptions)),
        ("learn.loss", (ClipOptions,)),
        ("engine", (GpuOptions, ServerOptions)),
    )
}


@cache
def hint(text: str) -> None:
    """Say it, once: settings are read several times."""
    logging.getLogger("isentrope").warning(text)


def read_settings(text: str) -> dict[str, Any]:
    """The table in a file of settings, a recipe or what a run recorded, in the names of today. ValueError, if it cannot
    be read."""
    return upgraded(parse_toml(text))


def upgraded(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of settings in the names of today. What has no name today stays, for the reader to refuse."""
    now = dict(table)
    if isinstance(learn := table.get("learn"), dict):
        now["learn"] = _in_tables(_learn(cast("dict[str, Any]", learn)))
    if isinstance(task := table.get("task"), dict):
        settings = cast("dict[str, Any]", task)
        plain = isinstance(settings.get("sampler"), str)
        now["task"] = {**settings, "sampler": {"kind": settings["sampler"]}} if plain else settings
    if isinstance(engine := table.get("engine"), str):
        now["engine"] = {"kind": engine}
    elif isinstance(engine, dict) and SHARED["engine"] <= cast("dict[str, Any]", engine).keys():
        now["engine"] = _read_by_kind("engine", cast("dict[str, Any]", engine))
    return now


def upgraded_leaves(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As `upgraded`, for settings by their full names: `{"learn.advantage": "gigpo", ...}`."""
    table: dict[str, Any] = {"learn": {}, "engine": {}}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section in table and "." not in key:
            table[section][key] = value
    parts = {name: value for name, value in settings.items() if name.split(".")[0] not in table or name.count(".") > 1}
    for section, inner in upgraded(table).items():
        for key, value in inner.items():
            nested = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            parts |= {f"{section}.{key}.{name}": option for name, option in nested.items()}
            parts |= {} if isinstance(value, dict) else {f"{section}.{key}": value}
    return parts


def _in_tables(learn: dict[str, Any]) -> dict[str, Any]:
    """[learn] with what belongs to an advantage estimator or a loss in its table."""
    now = dict(learn)
    for path in ("learn.advantage", "learn.loss"):
        name, flat = path.removeprefix("learn."), SHARED[path] & learn.keys()
        if isinstance(now.get(name), str):
            now[name] = {"kind": now[name]}
        if not flat or not isinstance(now.get(name, {}), dict):
            continue
        moved = {key: now.pop(key) for key in learn if key in flat}
        now[name] = moved | cast("dict[str, Any]", now.get(name, {}))
        if flat == SHARED[path]:  # all written out: what a run recorded
            now[name] = _read_by_kind(path, now[name])
        else:
            for key in moved:
                hint(f"learn.{key} is {path}.{key} now; the old name still works")
    return now


def _read_by_kind(path: str, table: dict[str, Any]) -> dict[str, Any]:
    """Without the settings that the table's kind does not read."""
    kind = KINDS[path].get(str(table.get("kind")))
    names = {item.name for item in fields(kind)} if kind else SHARED[path]
    return {key: value for key, value in table.items() if key in names or key not in SHARED[path]}


def gone(path: str, table: Mapping[str, Any]) -> str | None:
    """What to do about the setting `path`, if it is one that is gone. `table` is the section it stands in."""
    if path != f"learn.{_STEP_STD}":
        return None
    advantage = table.get("advantage")
    said = cast("Mapping[str, Any]", advantage) if isinstance(advantage, Mapping) else table
    if table.get(_STEP_STD) is True and said.get("divide_by_std") is False:
        return (
            " any more, and GiGPO with its step part alone divided, which no paper has, is gone; "
            "learn.advantage.divide_by_std = true divides both parts, false neither"
        )
    return (
        " any more; leave it out: both parts of GiGPO follow learn.advantage.divide_by_std. What earlier versions ran "
        'by default, the episode part alone divided, is learn.algorithm = "gigpo_mixed"'
    )


def _learn(learn: dict[str, Any]) -> dict[str, Any]:
    """[learn] as a run recorded it. A recipe that leaves out any of the three is not ours to complete here: a recipe
    below it, or an algorithm above it, may say the rest."""
    if not {_STEP_STD, "advantage", "divide_by_std"} <= learn.keys():
        return learn
    rest = {key: value for key, value in learn.items() if key != _STEP_STD}
    if learn["advantage"] != "gigpo":
        return rest
    step, episode = learn[_STEP_STD], learn["divide_by_std"]
    if step is True and episode is False:
        return learn
    mixed = step is False and (episode is True or _own_advantage(learn.get("algorithm")) == "gigpo_mixed")
    return _as_mixed(rest) if mixed else rest


def _own_advantage(algorithm: Any) -> Any:
    """The advantage that an algorithm's name stands for. Where nothing is divided the two forms are one, and a run of
    `recommended` has the name that its recipe has today."""
    known = ALGORITHMS.get(str(algorithm))
    return known.settings.get("advantage", {}).get("kind") if known else None


def _as_mixed(learn: dict[str, Any]) -> dict[str, Any]:
    renamed = {"algorithm": "gigpo_mixed"} if learn.get("algorithm") == "gigpo" else {}
    return {**learn, "advantage": "gigpo_mixed", **renamed}
