"""What a model was taught to read and write, and where a run asks for something else.

A model answers in the form that it learnt, on prompts like those that it learnt from. Both are settings of `agent`,
which the run that made the model recorded. A run that begins from its folder can be compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError
from isentrope.core.limits import real
from isentrope.runs.folder import Run, read_about, read_config
from isentrope.runs.layout import CONFIG, METRICS, WARMUP

FORM = ("context", "window", "prompt", "action_tags", "show_admissible")
"""Settings of `agent` that change what is read or written in every turn, beside `order`. Not agent.overflow: games that
outgrow the context are left out of imitation, so no model was taught either way."""

DEFAULTS: Mapping[str, Any] = {
    "order": "think_act", "context": "full", "window": 2, "prompt": "full", "action_tags": ["action"],
    "show_admissible": False,
}  # fmt: skip
POCKET = {"agent": {**DEFAULTS, "prompt": "brief"}, "sft": {"orders": ["think_act", "act_think", "act"]}}
"""What the shipped model was taught (tools/pocket_model.py)."""


def teacher_of(model: str) -> Mapping[str, Any]:
    """The settings of the run that taught the model which `policy.model` names: a run folder, a checkpoint's policy
    inside of one, or the shipped model. Empty where nobody knows."""
    if model == "pocket":
        return POCKET
    path = Path(model).expanduser()
    return _first(path, path.parent, *path.parents[2:3])


def teacher_beside(run: Run) -> Mapping[str, Any]:
    """The same of a run that was made before: from the warm-up in its folder, or from one beside it that is called as
    policy.model is. Its path may be one of another machine, and somebody else's folder is no guide to files here."""
    model = str(run.setting("policy.model", ""))
    if model == "pocket":
        return POCKET
    name = Path(model).name
    return _first(run.path / WARMUP, *([real(run.path).parent / name] if name not in ("", "..") else []))


def _first(*folders: Path) -> Mapping[str, Any]:
    """The settings of the first of these that is a run folder."""
    for folder in folders:
        try:
            if (folder / CONFIG).is_file() and ((folder / METRICS).is_file() or read_about(folder).get("kind")):
                return read_config(folder)[1]
        except (OSError, RunError, ValueError):  # ValueError: a name of a model that cannot be a path
            continue
    return {}


def otherwise_taught(settings: Mapping[str, Any], teacher: Mapping[str, Any]) -> list[str]:
    """The settings of `agent` in which a run asks for another form than its model was taught, each as
    `agent.context is window, and the model was taught full`."""
    asked, taught = _agent(settings), _agent(teacher)
    if not teacher.get("agent"):
        return []
    told: list[str] = []
    named = _section(teacher, "sft").get("orders")
    orders = cast("list[object]", named) if isinstance(named, list | tuple) and named else [taught["order"]]
    if asked["order"] not in orders:
        told.append(_differs("order", asked["order"], ", ".join(map(str, orders))))
    for name in FORM:
        if name == "window" and not asked["context"] == taught["context"] == "window":
            continue  # read by that form alone
        if _plain(asked[name]) != _plain(taught[name]):
            told.append(_differs(name, _plain(asked[name]), _plain(taught[name])))
    return told


def _agent(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**DEFAULTS, **_section(settings, "agent")}


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _differs(name: str, asked: object, taught: object) -> str:
    return f"agent.{name} is {asked}, and the model was taught {taught}"


def _plain(value: object) -> object:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list | tuple) else value
