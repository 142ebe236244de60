"""Sheets of the algorithms and methods: settings, metrics, docs page and a command to start with.

`isentrope methods` shows them, and `tools/method_docs.py` writes the tables of docs/algorithms and docs/methods from
them. Imports torch, since the methods do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.describe import SettingInfo, describe
from isentrope.config.kinds import KINDS
from isentrope.config.load import config_from_table
from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.config.suggest import did_you_mean
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.learning.registry import ADVANTAGES
from isentrope.methods.registry import METHODS, method_class
from isentrope.metrics.glossary import GLOSSARY, declare

_ALWAYS = ("kl", "aggregation")
# settings that count only where the first one is switched on
_WITH = {"kl": ("kl_estimator", "kl_in"), "resample": ("resample_by",), "overlong": ("overlong_penalty",)}


class Knob(NamedTuple):
    info: SettingInfo
    value: str  # what it is here; `info.default` is what it is elsewhere


@dataclass(frozen=True)
class Sheet:
    """Everything that is shown of an algorithm or a method."""

    name: str
    kind: str  # "algorithm" or "method"; "imitation" has a page alone (tools/method_docs.py)
    summary: str
    paper: str
    knobs: tuple[Knob, ...]
    metrics: tuple[str, ...]  # keys of the glossary
    page: str  # below docs/; empty for a method from outside
    command: str


def sheets() -> dict[str, Sheet]:
    """By name: the algorithms, then the methods."""
    return {name: _algorithm(name) for name in ALGORITHMS} | {name: _method(name) for name in METHODS.inside}


def sheet(name: str) -> Sheet:
    """Of an algorithm or a method, one that an installed package offers or a `module:Class` included."""
    known = sheets()
    if name in known:
        return known[name]
    if name not in METHODS and ":" not in name:
        raise ConfigError(f"no algorithm or method is called {name!r}{did_you_mean(name, [*known, *METHODS])}")
    return _method(name)


def _algorithm(name: str) -> Sheet:
    algorithm = ALGORITHMS[name]
    learn = config_from_table({"learn": {"algorithm": name}, "rollout": {"group_size": 2}}).learn
    changes = [f"learn.algorithm={name}"]
    if "aggregation" in algorithm.settings:  # the demo recipe has one of its own, which wins over the algorithm's,
        changes.append(f"learn.aggregation={learn.aggregation}")
    if learn.loss.kind == "policy_gradient":  # and a number of updates too
        changes.append("learn.mini_batches=1")
    if learn.advantage.kind == "gae":  # the default rate is one for language models, far too small for the pocket model
        changes += ["critic.lr=1e-3", "critic.warmup=2"]
    command = f"isentrope train demo --out runs/{name} " + " ".join(f"--set {one}" for one in changes)
    knobs, metrics, page = tuple(_algorithm_knobs(learn)), tuple(_algorithm_metrics(learn)), f"algorithms/{name}.md"
    return Sheet(name, "algorithm", algorithm.summary, algorithm.paper, knobs, metrics, page, command)


def _method(name: str) -> Sheet:
    kind = method_class(name)
    declare(kind.metrics)
    metrics = [f"loss/{kind.name}"] if kind.loss is not Method.loss else []
    metrics += [metric.key for metric in kind.metrics]
    knobs = tuple(plain_knobs(kind.options_class, f"method.{kind.name}"))
    page = f"methods/{name}.md" if name in METHODS.inside else ""
    command = f"isentrope train demo --out runs/{kind.name} --set methods={name}"
    return Sheet(kind.name, "method", kind.summary, kind.paper, knobs, tuple(metrics), page, command)


def _algorithm_knobs(learn: LearnSettings) -> Iterator[Knob]:
    values = vars(learn)
    names = {*_ALWAYS, *ALGORITHMS[learn.algorithm].settings} - {"advantage", "loss"}
    for switch, others in _WITH.items():
        if values[switch]:
            names |= {switch, *others}
    if learn.aggregation == "constant":
        names.add("constant_length")
    infos = {info.path: info for info in describe(LearnSettings, "learn")}
    for path, choice in (("learn.advantage", learn.advantage), ("learn.loss", learn.loss)):
        yield Knob(infos[f"{path}.kind"], value_to_toml(choice.kind))
        for info in describe(KINDS[path][choice.kind], path):
            name = info.path.removeprefix(f"{path}.")
            yield Knob(info, value_to_toml(choice.options[name]) if name in choice.options else info.default)
    for path, info in infos.items():
        name = path.removeprefix("learn.")
        if name in names:
            yield Knob(info, value_to_toml(values[name]))
    if learn.advantage.kind == "gae":
        yield from plain_knobs(CriticSettings, "critic")


def _algorithm_metrics(learn: LearnSettings) -> Iterator[str]:
    parts = {
        "clip/": learn.loss.kind != "policy_gradient",
        "loss/kl": learn.kl,
        "kl/k": learn.kl,
        "critic/": learn.advantage.kind == "gae",
        "resample/": learn.resample,
        "overlong/": learn.overlong,
        "update/masked": learn.mask_truncated,
    }
    for beginning, switched_on in parts.items():
        yield from glossary_keys(beginning) if switched_on else ()
    yield from (metric.key for metric in ADVANTAGES.load(learn.advantage.kind).metrics)


def plain_knobs(options: type[Any], path: str) -> Iterator[Knob]:
    for info in describe(options, path):
        yield Knob(info, info.default)


def glossary_keys(beginning: str) -> list[str]:
    """The glossary's keys that begin so."""
    return [entry.key for part in GLOSSARY.values() for entry in part if entry.key.startswith(beginning)]
