"""Sheets of the algorithms and methods: settings, metrics, docs page and a command to start with.

`isentrope methods` shows them, and `tools/method_docs.py` writes the tables of docs/algorithms and docs/methods from
them. Imports torch, since the methods do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from isentrope.config.algorithms import ALGORITHMS, GIGPO_FORMS
from isentrope.config.describe import SettingInfo, describe
from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.config.suggest import did_you_mean
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.methods.registry import METHODS
from isentrope.metrics.glossary import GLOSSARY

_GIGPO = ("divide_by_std", "stats", "discount", "step_weight", "anchor", "anchor_similarity")
# the settings of [learn] that an advantage estimator reads, and those that a loss reads
ADVANTAGES: dict[str, tuple[str, ...]] = {
    "reinforce": ("stats",),
    "rloo": ("stats",),
    "grpo": ("divide_by_std", "stats"),
    **dict.fromkeys(GIGPO_FORMS, _GIGPO),
    "gae": ("divide_by_std", "discount", "gae_lambda", "credit"),
}
LOSSES: dict[str, tuple[str, ...]] = {
    "clip": ("clip_low", "clip_high"),
    "sequence": ("clip_low", "clip_high"),
    "policy_gradient": (),
}
_ALWAYS = ("advantage", "loss", "kl", "aggregation")
# settings that count only where the first one is switched on
_WITH = {"kl": ("kl_estimator", "kl_in"), "resample": ("resample_by",), "overlong": ("overlong_penalty",)}
_PLANNED = {"actre": ("plan/stage", "plan/action_temperature")}  # what a method's `plan` notes


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
    page: str  # below docs/
    command: str


def sheets() -> dict[str, Sheet]:
    """By name: the algorithms, then the methods."""
    return {name: _algorithm(name) for name in ALGORITHMS} | {name: _method(name) for name in METHODS}


def sheet(name: str) -> Sheet:
    known = sheets()
    if name not in known:
        raise ConfigError(f"no algorithm or method is called {name!r}{did_you_mean(name, known)}")
    return known[name]


def _algorithm(name: str) -> Sheet:
    algorithm = ALGORITHMS[name]
    learn = replace(LearnSettings(), algorithm=name, **algorithm.settings)
    changes = [f"learn.algorithm={name}"]
    if "aggregation" in algorithm.settings:  # the demo recipe has one of its own, which wins over the algorithm's,
        changes.append(f"learn.aggregation={learn.aggregation}")
    if learn.loss == "policy_gradient":  # and a number of updates too
        changes.append("learn.mini_batches=1")
    if learn.advantage == "gae":  # the default rate is one for language models, far too small for the pocket model
        changes += ["critic.lr=1e-3", "critic.warmup=2"]
    command = f"isentrope train recipes/demo.toml --out runs/{name} " + " ".join(f"--set {one}" for one in changes)
    knobs, metrics, page = tuple(_algorithm_knobs(learn)), tuple(_algorithm_metrics(learn)), f"algorithms/{name}.md"
    return Sheet(name, "algorithm", algorithm.summary, algorithm.paper, knobs, metrics, page, command)


def _method(name: str) -> Sheet:
    kind = METHODS[name]
    metrics = [f"loss/{name}"] if kind.loss is not Method.loss else []
    metrics += [*_PLANNED.get(name, ()), *glossary_keys(f"{name}/")]
    knobs = tuple(plain_knobs(kind.options_class, f"method.{name}"))
    command = f"isentrope train recipes/demo.toml --out runs/{name} --set methods={name}"
    return Sheet(name, "method", kind.summary, kind.paper, knobs, tuple(metrics), f"methods/{name}.md", command)


def _algorithm_knobs(learn: LearnSettings) -> Iterator[Knob]:
    values = vars(learn)
    names = {*_ALWAYS, *ADVANTAGES[learn.advantage], *LOSSES[learn.loss], *ALGORITHMS[learn.algorithm].settings}
    for switch, others in _WITH.items():
        if values[switch]:
            names |= {switch, *others}
    if learn.aggregation == "constant":
        names.add("constant_length")
    for info in describe(LearnSettings, "learn"):
        name = info.path.removeprefix("learn.")
        if name in names:
            yield Knob(info, value_to_toml(values[name]))
    if learn.advantage == "gae":
        yield from plain_knobs(CriticSettings, "critic")


def _algorithm_metrics(learn: LearnSettings) -> Iterator[str]:
    parts = {
        "clip/": learn.loss != "policy_gradient",
        "loss/kl": learn.kl,
        "kl/k": learn.kl,
        "critic/": learn.advantage == "gae",
        "gigpo/": learn.advantage in GIGPO_FORMS,
        "resample/": learn.resample,
        "overlong/": learn.overlong,
        "update/masked": learn.mask_truncated,
    }
    for beginning, switched_on in parts.items():
        yield from glossary_keys(beginning) if switched_on else ()


def plain_knobs(options: type[Any], path: str) -> Iterator[Knob]:
    for info in describe(options, path):
        yield Knob(info, info.default)


def glossary_keys(beginning: str) -> list[str]:
    """The glossary's keys that begin so."""
    return [entry.key for part in GLOSSARY.values() for entry in part if entry.key.startswith(beginning)]
