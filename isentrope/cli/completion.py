"""What the shell completes: worlds, methods, recipes, settings and their values, run folders, models, metrics, pages.

Runs at every press of the tab key, so nothing here may import torch or take long. Folders may be somebody else's: names
are listed, nothing in them is read, and a name that a shell would not take as it stands is left out.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

import typer

Offers = list[tuple[str, str]]  # what may stand there, each with a few words on it

_PLAIN = re.compile(r"[\w.,+@%:/-]+")  # names that need no quotes in any shell
_MOST = 2000  # entries of a folder that are looked at
_HELP = 70  # characters of a description: shells have one line for it
_PACKAGE = Path(__file__).parents[1]


def _fitting(begun: str, offers: Iterable[tuple[str, str]]) -> Offers:
    return [(name, shorten(words, _HELP, placeholder=" …")) for name, words in offers if name.startswith(begun)]


# -- names


def complete_world(incomplete: str) -> Offers:
    return _fitting(incomplete, _worlds())


def complete_method(incomplete: str) -> Offers:
    """Algorithms and methods."""
    return _fitting(incomplete, [*_algorithms(), *_methods()])


def complete_part(incomplete: str) -> Offers:
    """What check-method takes."""
    from isentrope.config.kinds import KINDS

    kinds = [(name, "loss") for name in KINDS["learn.loss"]]
    kinds += [(name, "advantage estimator") for name in KINDS["learn.advantage"]]
    return _fitting(incomplete, [*_methods(), *kinds])


def complete_metric(incomplete: str) -> Offers:
    from isentrope.metrics.glossary import GLOSSARY

    metrics = [metric for entries in GLOSSARY.values() for metric in entries]
    return _fitting(incomplete, [(metric.key, metric.meaning) for metric in metrics if "{" not in metric.key])


def complete_bench(incomplete: str) -> Offers:
    from isentrope.bench.suite import BENCHES

    return _fitting(incomplete, [(bench.name, bench.what) for bench in BENCHES])


def complete_card(incomplete: str) -> Offers:
    from isentrope.cluster.plan.cards import CARDS

    return _fitting(incomplete, [(card.name, card.title) for card in CARDS.values()])


def complete_recipe(incomplete: str) -> Offers:
    from isentrope.config.recipes import recipe_names

    ours = [(name, "recipe of the package") for name in recipe_names() if not name.startswith("studies/")]
    return _fitting(incomplete, [*ours, *_files(incomplete)])


def complete_our_recipe(incomplete: str) -> Offers:
    from isentrope.config.recipes import recipe_names

    return _fitting(incomplete, [(name, "recipe of the package") for name in recipe_names()])


def complete_study(incomplete: str) -> Offers:
    from isentrope.config.recipes import recipe_names

    ours = [(name, "study of the package") for name in recipe_names() if name.startswith("studies/")]
    return _fitting(incomplete, [*ours, *_files(incomplete)])


def complete_recipe_or_section(incomplete: str) -> Offers:
    from isentrope.config.describe import sections

    return _fitting(incomplete, [(name, "section") for name in sections()]) + complete_recipe(incomplete)


def complete_page(incomplete: str) -> Offers:
    from isentrope.cli.pages import page_names, title_of

    return _fitting(incomplete, [(name, title_of(name)) for name in page_names()])


def complete_section(ctx: typer.Context, incomplete: str) -> Offers:
    from isentrope.cli.pages import page_names, sections, text_of

    page = str(cast("Mapping[str, Any]", ctx.params).get("page") or "")
    below = sections(text_of(page))[1:] if page in page_names() else []
    return _fitting(incomplete, [(one.anchor, one.title) for one in below])


def complete_model(incomplete: str) -> Offers:
    from isentrope.models.sources.find import available

    names = [(one.name, one.state) for one in islice(available(), _MOST) if _PLAIN.fullmatch(one.name)]
    return _fitting(incomplete, names)


def complete_model_or_run(incomplete: str) -> Offers:
    return complete_model(incomplete) + complete_run(incomplete)


def _worlds() -> list[tuple[str, str]]:
    from isentrope.worlds.registry import PARTS, WORLDS

    return [(name, WORLDS[name].summary if name in WORLDS else "of an installed package") for name in PARTS]


def _algorithms() -> list[tuple[str, str]]:
    from isentrope.config.algorithms import ALGORITHMS

    return [(name, algorithm.summary) for name, algorithm in ALGORITHMS.items()]


def _methods() -> list[tuple[str, str]]:
    from isentrope.config.suggest import METHOD_CLASSES

    return [(name, "entropy method") for name in METHOD_CLASSES]


# -- folders and files


def complete_run(incomplete: str) -> Offers:
    """Run folders here, and those in the folders here."""
    found: Offers = []
    for name, path in _entries(incomplete):
        if _is_run(path):
            found.append((name, "run folder"))
        elif path.is_dir():
            found += [(inner, "run folder") for inner, below in _entries(f"{name}/") if _is_run(below)]
    return sorted(found)


def _files(incomplete: str) -> Offers:
    """TOML files here, and those in the folders here."""
    found: Offers = []
    for name, path in _entries(incomplete):
        if name.endswith(".toml"):
            found.append((name, "file"))
        elif path.is_dir() and not _is_run(path):
            found += [(inner, "file") for inner, _ in _entries(f"{name}/") if inner.endswith(".toml")]
    return sorted(found)


def _is_run(path: Path) -> bool:
    from isentrope.runs.layout import MARKS

    return any((path / mark).exists() for mark in MARKS)


def _entries(begun: str) -> Iterator[tuple[str, Path]]:
    """What lies where the typed path leads and begins as it does."""
    above, slash, start = begun.rpartition("/")
    try:
        with os.scandir(above + slash or ".") as entries:
            for entry in islice(entries, _MOST):
                name = above + slash + entry.name
                if entry.name.startswith(start) and entry.name[0] not in ".-" and _PLAIN.fullmatch(name):
                    yield name, Path(entry.path)
    except OSError:  # no such folder, or a closed one
        return


# -- settings


def complete_setting(ctx: typer.Context, incomplete: str) -> Offers:
    """`learn.al` -> `learn.algorithm=...`; behind the sign, what the setting may be."""
    path, equals, value = incomplete.partition("=")
    if equals:
        return [(f"{path}={one}", words) for one, words in _values(ctx, path, value)]
    found = list(dict(reversed(_fitting(path, _settings(ctx, path)))).items())[::-1]
    if len(found) != 1:
        return [(f"{name}=", words) for name, words in found]
    # of one setting alone the values too: a shell stops where several go apart, and adds no space behind the sign
    ((name, words),) = found
    return [(f"{name}=", words), *((f"{name}={one}", about) for one, about in _values(ctx, name, ""))]


def _settings(ctx: typer.Context, begun: str) -> Iterator[tuple[str, str]]:
    from isentrope.config.describe import describe_settings

    for info in describe_settings():
        if info.type != "table":
            yield info.path, info.doc
    yield from _world_options(ctx) if begun.startswith("task.o") else ()
    yield from _method_options() if begun.startswith("method.") else ()


def _values(ctx: typer.Context, path: str, begun: str) -> Offers:
    """A list takes several with commas: only the last one is completed."""
    from isentrope.config.describe import describe_settings

    named: dict[str, Callable[[], Iterable[tuple[str, str]]]] = {
        "methods": _methods,
        "task.world": _worlds,
        "learn.algorithm": _algorithms,
    }
    info = next((one for one in describe_settings() if path in (one.path, one.path.removesuffix(".kind"))), None)
    before, comma, last = begun.rpartition(",") if info and info.type.startswith("list") else ("", "", begun)
    if path == "policy.model":
        offers: Iterable[tuple[str, str]] = complete_model_or_run(last)
    elif path in named:
        offers = named[path]()
    elif info is not None and info.choices:
        offers = [(choice, "") for choice in info.choices]
    elif info is not None and info.default.strip('"') and _PLAIN.fullmatch(info.default.strip('"')):
        offers = [(info.default.strip('"'), "the default")]
    else:
        return []
    return [(before + comma + name, words) for name, words in _fitting(last, offers)]


def _world_options(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Of the world that the command line names; of ours alone, whose modules are known to be quick."""
    from isentrope.config.describe import describe
    from isentrope.config.schema import RunConfig
    from isentrope.worlds.registry import WORLDS, world_options

    given = cast("Mapping[str, Any]", ctx.params)
    sets = [str(one).partition("=") for one in given.get("sets") or ()]
    named = [value for key, _, value in sets if key == "task.world"]
    world = named[-1] if named else str(given.get("world") or given.get("name") or RunConfig().task.world)
    options = world_options(world) if world in WORLDS else None
    for info in describe(options, "task.options") if options is not None else ():
        yield info.path, info.doc


def _method_options() -> Iterator[tuple[str, str]]:
    """Read from the methods' files: importing them would import torch."""
    from isentrope.config.suggest import METHOD_CLASSES

    for name, target in METHOD_CLASSES.items():
        module = _PACKAGE.joinpath(*target.partition(":")[0].split(".")[1:]).with_suffix(".py")
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
                yield from ((f"method.{name}.{field}", meaning) for field, meaning in _fields(node))


def _fields(options: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """`alpha: float = setting(0.1, "what it means")`"""
    for one in options.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            told = one.value.args[1:2] if isinstance(one.value, ast.Call) else []
            yield one.target.id, str(told[0].value) if told and isinstance(told[0], ast.Constant) else ""


# -- bash


def run_completed(run: Callable[[], None]) -> None:
    """Run the command line. bash splits words at `=`: for it they are joined again, and what is offered is cut to the
    part behind the sign, which is all that bash will replace."""
    if "_ISENTROPE_COMPLETE" in os.environ:
        os.environ["COLUMNS"] = "500"  # no description is broken into lines, each of which would be taken for an offer
    if os.environ.get("_ISENTROPE_COMPLETE") != "complete_bash":
        run()
        return
    words, current, before = joined(os.environ.get("COMP_WORDS", ""), int(os.environ.get("COMP_CWORD") or 0))
    os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(current)}
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            run()
    finally:
        lines = printed.getvalue().splitlines()
        sys.stdout.write("".join(f"{line.removeprefix(before)}\n" for line in lines if line.startswith(before)))


def joined(text: str, current: int) -> tuple[str, int, str]:
    """The words with `learn.lr = 1` as `learn.lr=1`, the place of the current word among them, and what of the current
    word stands before the part that bash is asking for."""
    words: list[str] = []
    place, before, glue = current, "", False
    between = "\n" if "\n" in text else " "
    for number, word in enumerate(text.split(between)):
        if words and (word == "=" or (glue and word)):
            joint = words[-1] + word
            if number == current:
                before = joint if word == "=" else words[-1]
            words[-1] = joint
        else:
            words.append(word)
        if number == current:
            place = len(words) - 1
        glue = word == "="
    return between.join(words), place, before
