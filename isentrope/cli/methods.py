"""`isentrope methods`: lists the algorithms and entropy methods, or shows one: settings, metrics, page, command.

`tools/method_docs.py` writes the tables of docs/algorithms and docs/methods from the same sheets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from isentrope.config.algorithms import ALGORITHMS, GIGPO_FORMS
from isentrope.config.describe import SettingInfo, describe
from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.config.suggest import did_you_mean
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.methods.registry import METHODS
from isentrope.metrics.glossary import GLOSSARY, entry_of, sentence

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
    return {name: algorithm_sheet(name) for name in ALGORITHMS} | {name: method_sheet(name) for name in METHODS}


def sheet(name: str) -> Sheet:
    known = sheets()
    if name not in known:
        raise ConfigError(f"no algorithm or method is called {name!r}{did_you_mean(name, known)}")
    return known[name]


def algorithm_sheet(name: str) -> Sheet:
    algorithm = ALGORITHMS[name]
    learn = replace(LearnSettings(), algorithm=name, **algorithm.settings)
    return Sheet(
        name=name,
        kind="algorithm",
        summary=algorithm.summary,
        paper=algorithm.paper,
        knobs=tuple(_algorithm_knobs(learn)),
        metrics=tuple(_algorithm_metrics(learn)),
        page=f"algorithms/{name}.md",
        command=_algorithm_command(name, learn),
    )


def method_sheet(name: str) -> Sheet:
    kind = METHODS[name]
    metrics = [f"loss/{name}"] if kind.loss is not Method.loss else []
    metrics += [*_PLANNED.get(name, ()), *glossary_keys(f"{name}/")]
    return Sheet(
        name=name,
        kind="method",
        summary=kind.summary,
        paper=kind.paper,
        knobs=tuple(plain_knobs(kind.options_class, f"method.{name}")),
        metrics=tuple(metrics),
        page=f"methods/{name}.md",
        command=f"isentrope train recipes/demo.toml --out runs/{name} --set methods={name}",
    )


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
    if learn.loss != "policy_gradient":
        yield from glossary_keys("clip/")
    if learn.kl:
        yield from ("loss/kl", *glossary_keys("kl/k"))
    if learn.advantage == "gae":
        yield from glossary_keys("critic/")
    if learn.advantage in GIGPO_FORMS:
        yield from glossary_keys("gigpo/")
    if learn.resample:
        yield from glossary_keys("resample/")
    if learn.overlong:
        yield from glossary_keys("overlong/")
    if learn.mask_truncated:
        yield "update/masked"


def _algorithm_command(name: str, learn: LearnSettings) -> str:
    """The demo recipe has an aggregation and a number of updates of its own, which win over the algorithm's."""
    changes = [f"learn.algorithm={name}"]
    if "aggregation" in ALGORITHMS[name].settings:
        changes.append(f"learn.aggregation={learn.aggregation}")
    if learn.loss == "policy_gradient":
        changes.append("learn.mini_batches=1")
    if learn.advantage == "gae":  # the default rate is one for language models, far too small for the pocket model
        changes += ["critic.lr=1e-3", "critic.warmup=2"]
    return f"isentrope train recipes/demo.toml --out runs/{name} " + " ".join(f"--set {change}" for change in changes)


def plain_knobs(options: type[Any], path: str) -> Iterator[Knob]:
    for info in describe(options, path):
        yield Knob(info, info.default)


def glossary_keys(beginning: str) -> list[str]:
    """The glossary's keys that begin so."""
    return [entry.key for part in GLOSSARY.values() for entry in part if entry.key.startswith(beginning)]


TITLES = {"algorithm": "Algorithms: --set learn.algorithm=NAME", "method": "Methods: --set methods=NAME,NAME,…"}


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An algorithm or a method.", show_default=False)
    ] = None,
) -> None:
    """List the algorithms and the entropy methods; with a NAME, its settings, its metrics and a command to try."""
    from rich.console import Console

    console = Console(highlight=False)
    if name is not None:
        _show(sheet(name), console)
        return
    every = sheets().values()
    for kind, title in TITLES.items():
        console.print(_list(title, [one for one in every if one.kind == kind]))
    console.print("isentrope methods NAME says more. Imitation: isentrope sft, isentrope rft.")


def _list(title: str, sheets: Iterable[Sheet]) -> Table:
    from rich.table import Column, Table

    from isentrope.core.text import shown

    columns = [Column(name, overflow="fold") for name in ("meaning", "paper")]
    table = Table(Column("name", no_wrap=True), *columns, title=title, title_justify="left")
    for one in sheets:
        table.add_row(shown(one.name, "cyan"), shown(one.summary), shown(one.paper))
    return table


def _show(sheet: Sheet, console: Console) -> None:
    from isentrope.core.text import shown

    console.print(shown(f"{sheet.name} ({sheet.kind})", "bold"))
    console.print(shown(f"{sheet.summary[0].upper()}{sheet.summary[1:]}."))
    source = "Evidence" if sheet.paper.startswith("docs/") else "Paper"
    console.print(shown(f"{source}: {sheet.paper}\n"))
    console.print(_knobs(sheet) if sheet.knobs else shown("It has no settings.\n"))
    console.print(_metrics(sheet) if sheet.metrics else shown("It adds no metrics.\n"))
    console.print(shown(f"Page: docs/{sheet.page}"))
    console.print("Try:  ", shown(sheet.command, "bold"), soft_wrap=True, sep="")


def _knobs(sheet: Sheet) -> Table:
    """For an algorithm, what a setting is with it beside what it is otherwise; changed ones are marked."""
    from rich.table import Column, Table

    from isentrope.core.text import shown

    algorithm = sheet.kind == "algorithm"
    values = ["with it", "default"] if algorithm else ["default"]
    columns = [Column(name, overflow="fold") for name in (*values, "allowed", "meaning")]  # nothing is cut off
    table = Table(Column("setting", no_wrap=True), *columns)
    for info, value in sheet.knobs:
        here = [shown(value, "bold green" if value != info.default else "")] if algorithm else []
        table.add_row(shown(info.path, "cyan"), *here, shown(info.default), shown(info.allowed), shown(info.doc))
    return table


def _metrics(sheet: Sheet) -> Table:
    from rich.table import Column, Table

    from isentrope.core.text import shown

    table = Table(Column("metric", no_wrap=True), Column("unit", overflow="fold"), Column("meaning", overflow="fold"))
    for key in sheet.metrics:
        table.add_row(shown(key, "cyan"), shown(entry_of(key).unit), shown(sentence(key)))
    return table
