"""Reads settings of older versions: what the files of older runs mean today.

`learn.step_std` said whether GiGPO's step part is divided; today `learn.divide_by_std` says it for both parts. Until
then a plain `gigpo` divided the episode part alone, which is called `gigpo_mixed` now. A file of ours has every setting
written out, so what it ran can be told. One without the setting is younger: it came with GiGPO itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, cast

from isentrope.config.algorithms import ALGORITHMS

_STEP_STD = "step_std"


def read_settings(text: str) -> dict[str, Any]:
    """The table in a file of settings, a recipe or what a run recorded, in the names of today."""
    return upgraded(tomllib.loads(text))


def upgraded(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of settings in the names of today. What has no name today stays, for the reader to refuse."""
    learn = table.get("learn")
    return {**table, "learn": _learn(cast("dict[str, Any]", learn))} if isinstance(learn, dict) else dict(table)


def upgraded_leaves(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As `upgraded`, for settings by their full names: `{"learn.advantage": "gigpo", ...}`."""
    start = "learn."
    learn = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    now = {start + key: value for key, value in _learn(learn).items()}
    return {key: now.get(key, value) for key, value in settings.items() if key in now or not key.startswith(start)}


def gone(path: str, table: Mapping[str, Any]) -> str | None:
    """What to do about the setting `path`, if it is one that is gone. `table` is the section it stands in."""
    if path != f"learn.{_STEP_STD}":
        return None
    if table.get(_STEP_STD) is True and table.get("divide_by_std") is False:
        return (
            " any more, and GiGPO with its step part alone divided, which no paper has, is gone; "
            "learn.divide_by_std = true divides both parts, false neither"
        )
    return (
        " any more; leave it out: both parts of GiGPO follow learn.divide_by_std. What earlier versions ran by "
        'default, the episode part alone divided, is learn.algorithm = "gigpo_mixed"'
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
    return known.settings.get("advantage") if known else None


def _as_mixed(learn: dict[str, Any]) -> dict[str, Any]:
    renamed = {"algorithm": "gigpo_mixed"} if learn.get("algorithm") == "gigpo" else {}
    return {**learn, "advantage": "gigpo_mixed", **renamed}
