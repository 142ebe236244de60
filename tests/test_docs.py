"""The documentation: links lead somewhere, every page can be found, and what stands in code is real: commands with
their options, settings and names; recipes and studies; Python; paths. test_pages.py runs the examples of pages."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_it import MarkdownIt
from typer.main import get_command

from isentrope.bench.suite import BENCHES
from isentrope.cli.main import app
from isentrope.cli.pages import find_page, links_of, part_of, sections
from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.describe import describe_settings
from isentrope.config.describe import sections as setting_sections
from isentrope.config.recipes import find_recipe, our_recipe, recipe_names
from isentrope.config.suggest import METHOD_CLASSES
from isentrope.core.errors import IsentropeError
from isentrope.loop.settings import load
from isentrope.metrics.glossary import entry_of
from isentrope.papers.registry import CLAIMS
from isentrope.study.plan import read_plan
from isentrope.worlds.registry import WORLDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDERS = (".github", "docs", "isentrope", "recipes", "tests", "tools")
PAGES = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# -- links


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(text_of(page)):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in {section.anchor for section in sections(text_of(target))}, link


def test_every_page_can_be_found_from_the_index() -> None:
    found: set[Path] = set()
    ahead = [DOCS / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page.suffix != ".md" or not page.is_relative_to(DOCS):
            continue
        found.add(page)
        ahead += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(text_of(page))]
    assert sorted(set(DOCS.rglob("*.md")) - found) == []


# -- commands


def commands_of(text: str) -> Iterator[str]:
    """Lines of blocks, without `$ ` in front, and spans of code that begin with the command."""
    for _, language, block in BLOCK.findall(text):
        if language in ("", "sh", "bash", "console"):
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line for line in (line.strip().removeprefix("$ ") for line in lines) if is_ours(line))
    yield from (span for span in (" ".join(span.split()) for span in spans_of(text)) if is_ours(span))


def spans_of(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", BLOCK.sub("", text))


def is_ours(line: str) -> bool:
    return line.startswith("isentrope ")


def words_of(line: str) -> list[str]:
    """As the shell hands them over, up to a pipe or an ampersand; variables of the shell have some value."""
    words = [
        re.sub(r"\$\w+", "1", word)
        for word in shlex.split(line, comments=True)
        if not re.match(r"\$\w+$|\.\.\.$", word)
    ]
    return words[1 : min((words.index(sign) for sign in ("|", "&") if sign in words), default=None)]


NAMES: dict[tuple[str, str], set[str]] = {  # command and argument -> the names that it may have
    ("bench", "names"): {bench.name for bench in BENCHES},
    ("check-task", "world"): set(WORLDS),
    ("claims", "explain"): {claim.id for claim in CLAIMS},
    ("claims", "only"): {claim.id for claim in CLAIMS},
    ("methods", "name"): {*ALGORITHMS, *METHOD_CLASSES},
    ("play", "world"): set(WORLDS),
    ("recipes", "name"): {*recipe_names(), "alfworld.sh"},
    ("serve-task", "world"): set(WORLDS),
    ("tasks", "name"): set(WORLDS),
}
PLACEHOLDER = re.compile(r"[A-Z]+|\w+:\w+|.*\.\.\..*")  # NAME, module:Class, ...


def problems_of(line: str) -> Iterator[str]:
    """What is wrong with a command line."""
    name, *rest = words_of(line)
    if name.startswith("-") or PLACEHOLDER.fullmatch(name):
        return
    if name not in COMMANDS:
        yield f"no command {name}"
        return
    if not rest:  # the command is only mentioned
        return
    try:
        given = COMMANDS[name].make_context(name, list(rest)).params
    except typer.Exit:  # --help
        return
    except Exception as error:  # of the parser, whose classes have no public names
        yield getattr(error, "message", "") or repr(error)
        return
    yield from problems_of_settings(name, given)
    for (of, argument), known in NAMES.items():
        value = given.get(argument) if of == name else None
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one not in known and not PLACEHOLDER.fullmatch(str(one)):
                yield f"{argument} {one}"
    for metric in given.get("metrics") or given.get("metric") or ():
        try:
            entry_of(metric)
        except KeyError:
            yield f"metric {metric}"
    if name == "docs" and given["page"] and not given["find"] and not PLACEHOLDER.fullmatch(given["page"]):
        try:
            part_of(find_page(given["page"])[0], " ".join(given["section"] or ()))
        except IsentropeError as error:
            yield str(error)


def problems_of_settings(name: str, given: dict[str, Any]) -> Iterator[str]:
    """A recipe is one of ours, or a file that the reader makes; `isentrope config` takes a section or a setting too,
    `isentrope study` a study's folder."""
    named = given.get("recipe") or given.get("file")
    recipe = Path(named) if named else None
    if recipe is not None and our_recipe(recipe) is None and not PLACEHOLDER.fullmatch(str(recipe)):
        theirs = recipe.suffix == ".toml" or (name == "study" and recipe.parts[0] == "runs")
        section = name == "config" and str(recipe) in {*setting_sections(), *(one.path for one in describe_settings())}
        if not ((ROOT / recipe).exists() or section or (theirs and recipe.parts[0] not in ("docs", "recipes"))):
            yield f"no recipe {recipe}"
    if name not in ("study", "check-method"):  # the first has settings of its cells, the second those of a part
        named_world = given.get("name" if name == "tasks" else "world")
        world = [f"task.world={named_world}"] if named_world not in (None, "NAME", "WORLD") else []
        try:
            load(
                find_recipe(recipe) if recipe and our_recipe(recipe) else None,
                known_here([*world, *(given.get("sets") or ())]),
            )
        except IsentropeError as error:
            yield str(error)


def known_here(sets: list[str]) -> list[str]:
    """Without parts of one's own, module:Class, and their settings: these stand on the page and are run with it."""
    parts = [one.partition("=")[0] for one in sets if re.search(r"=(.*,)?\w+:\w+$", one)]
    below = {"methods": "method.", "task.world": "task.options."}
    theirs = [below.get(part, part.removesuffix("kind").rstrip(".") + ".") for part in parts]
    return [one for one in sets if not one.startswith((*[f"{part}=" for part in parts], *theirs))]


@each_page
def test_commands_parse_and_what_they_name_exists(page: Path) -> None:
    wrong = {line: list(problems_of(line)) for line in commands_of(text_of(page))}
    assert {line: told for line, told in wrong.items() if told} == {}


@pytest.mark.parametrize(("line", "told"), [
    ("isentrope trian demo", "no command trian"),
    ("isentrope train demo --uot runs/x", "--uot"),
    ("isentrope train domo --out runs/x", "no recipe domo"),
    ("isentrope train recipes/domo.toml --out runs/x", "no recipe recipes/domo.toml"),
    ("isentrope train demo --set learn.lrr=1", "did you mean learn.lr"),
    ("isentrope train demo --set method.epo.alhpa=1 --set methods=epo", "alpha"),
    ("isentrope train demo --set learn.lr=high", "learn.lr"),
    ("isentrope play housohld", "world housohld"),
    ("isentrope claims --explain Z9", "explain Z9"),
    ("isentrope docs engins", "did you mean engines"),
    ("isentrope docs engines nowhere", "no section 'nowhere'"),
    ("isentrope figures runs/x --out f --metric entropy/tokn", "metric entropy/tokn"),
    ("isentrope train demo --out runs/mine --set task.world=my:World  # fine", ""),
    ("isentrope eval MODEL --recipe demo | tee $log", ""),
])  # fmt: skip
def test_the_check_of_commands(line: str, told: str) -> None:
    assert told in " ".join(problems_of(line))
    assert bool(told) == bool(list(problems_of(line)))


# -- other code


@each_page
def test_blocks_of_python_compile_and_import_what_there_is(page: Path) -> None:
    for _, language, block in BLOCK.findall(text_of(page)):
        if language == "python":
            for node in ast.walk(compile(block, str(page), "exec", ast.PyCF_ONLY_AST)):
                if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "isentrope":
                    module = importlib.import_module(str(node.module))
                    assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
        elif language == "json":
            json.loads(block)


@each_page
def test_blocks_of_toml_are_recipes_or_studies(page: Path, tmp_path: Path) -> None:
    for number, (_, language, block) in enumerate(BLOCK.findall(text_of(page))):
        if language != "toml":
            continue
        table, file = tomllib.loads(block), tmp_path / f"block-{number}.toml"
        if "project" in table:  # of a package with parts of its own
            continue
        file.write_text(re.sub(r'"(methods=)?\w+:\w+"', r'"\1grpo"', block) if "cells" in table else block)
        if "cells" in table or "grids" in table:
            assert read_plan(file).cells
        elif not re.search(r'kind = "\w+:\w+"', block):  # such a part stands on the page, and is run with it
            load(file, [])


@each_page
def test_paths_in_code_exist(page: Path) -> None:
    ours = re.compile(r"(isentrope|recipes|tests|bench|tools|docs)/[\w./-]+")
    named = [span for span in spans_of(text_of(page)) if ours.fullmatch(span) and "NAME" not in span]
    assert [path for path in named if not (ROOT / path).exists()] == []


# -- two readers of Markdown


@pytest.mark.slow(4)
def test_the_site_and_github_see_the_same_lists_tables_and_blocks() -> None:
    """GitHub reads CommonMark, the site another dialect: blocks in a list are set in by four spaces, for instance."""
    markdown = pytest.importorskip("markdown", reason="Python-Markdown comes with the extra `site`")
    pytest.importorskip("pymdownx", reason="pymdown-extensions come with the extra `site`")
    names = ["tables", "sane_lists", "pymdownx.betterem", "pymdownx.superfences", "pymdownx.highlight"]
    settings = {"pymdownx.betterem": {"smart_enable": "all"}}
    site = markdown.Markdown(extensions=names, extension_configs=settings)
    github = MarkdownIt("commonmark").enable("table")

    def shape(page: str) -> list[str]:
        return re.findall(r"<(h\d|ul|ol|li|table|tr|td|pre|em|strong|img|a)\b", page)

    for page in sorted(set(DOCS.rglob("*.md")) - set(DOCS.glob("runs/*/tables.md"))):  # those are one table each
        text = re.sub(r"<!--.*?-->\n?", "", text_of(page), flags=re.DOTALL)
        assert shape(site.reset().convert(text)) == shape(github.render(text)), page
