"""The pages of algorithms and methods: complete, up to date, and true of what a run writes."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from isentrope.charts.text import filled
from isentrope.cli.method_sheets import Sheet, sheets
from isentrope.config.algorithms import ALGORITHMS, merge
from isentrope.config.kinds import KINDS
from isentrope.config.load import load_config
from isentrope.config.schema import LearnSettings, RunConfig
from isentrope.config.text import as_table
from isentrope.core.token_weights import MODES, token_weights
from isentrope.learning.registry import ADVANTAGES, LOSSES
from isentrope.loop.train import train
from isentrope.methods.registry import METHODS, make_methods
from isentrope.metrics.glossary import GLOSSARY
from tools.method_docs import DOCS, OPTIMISER, SHARED, blocks, imitation_sheet

ROOT = DOCS.parent
SHEETS = [*sheets().values(), imitation_sheet()]
HEADINGS = [
    "What it is for", "Equation", "Symbols", "Knobs", "Metrics it adds", "Deviations and open choices", "Command",
    "What we saw",
]  # fmt: skip
PAGES = [DOCS / page for page in blocks()]
every_sheet = pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())


def read(sheet: Sheet) -> str:
    return (DOCS / sheet.page).read_text(encoding="utf-8")


def part(sheet: Sheet, heading: str) -> str:
    """What stands under a heading of the sheet's page."""
    return read(sheet).split(f"\n## {heading}\n")[1].split("\n## ")[0].strip()


@pytest.mark.parametrize(
    ("page", "tables"), blocks().items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_tables_are_up_to_date(page: str, tables: dict[str, str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == filled(text, tables), "run `make docs`"


def test_only_what_stands_between_its_markers_is_written() -> None:
    page = "a\n<!-- knobs -->\nold\n<!-- /knobs -->\nb\n<!-- metrics -->\n<!-- /metrics -->\nc"
    new = filled(page, {"knobs": r"\1 new", "metrics": "m"})
    assert new == "a\n<!-- knobs -->\n\\1 new\n<!-- /knobs -->\nb\n<!-- metrics -->\nm\n<!-- /metrics -->\nc"
    assert filled(new, {"knobs": r"\1 new", "metrics": "m"}) == new
    with pytest.raises(ValueError, match="<!-- presets -->"):
        filled(page, {"presets": ""})


def test_every_algorithm_and_method_has_a_page_and_no_other_has() -> None:
    written = {path.relative_to(DOCS).as_posix() for path in [*DOCS.glob("algorithms/*"), *DOCS.glob("methods/*")]}
    assert written == {*blocks(), "methods/check.md"}
    assert {sheet.name for sheet in SHEETS} == {*ALGORITHMS, *METHODS.inside, "sft-and-rft"}


@every_sheet
def test_the_page_is_complete(sheet: Sheet) -> None:
    text = read(sheet)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert all(part(sheet, heading) for heading in HEADINGS)
    assert "\n1. " in "\n" + part(sheet, "Deviations and open choices")
    assert sheet.command in part(sheet, "Command").splitlines()
    arxiv = re.findall(r"arXiv:\d+\.\d+", sheet.paper)
    assert all(f"[{paper}]" in text for paper in arxiv), "the paper is linked"


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    check_links(page)


@pytest.mark.parametrize(
    "page", sorted(set(DOCS.rglob("*.md")) - set(PAGES)), ids=lambda page: page.relative_to(DOCS).as_posix()
)
def test_links_of_the_other_pages_lead_somewhere(page: Path) -> None:
    check_links(page)


def check_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles], link


@every_page
def test_files_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"\b(?:recipes|isentrope)/[\w/.-]+\.(?:toml|py)\b", page.read_text(encoding="utf-8")):
        assert (ROOT / name).is_file() or "NAME" in name, name


def commands(page: Path) -> list[list[str]]:
    blocks_of_code = re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks_of_code for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("isentrope ")]


def config_of(command: list[str]) -> RunConfig:
    sets = [command[at + 1] for at, word in enumerate(command) if word == "--set"]
    return load_config(command[1], sets)


@every_page
def test_commands_can_be_run(page: Path) -> None:
    for command in commands(page):
        assert command[0] in ("train", "sft", "rft")
        make_methods(config_of(command))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_command_runs_the_algorithm_and_not_half_of_it(name: str) -> None:
    learn = config_of(shlex.split(sheets()[name].command)[1:]).learn
    wanted = {"algorithm": name, **ALGORITHMS[name].settings}
    table = as_table(learn)
    assert merge(table, wanted) == table
    parts = [wanted.get(part, {}).get("kind", getattr(LearnSettings(), part).kind) for part in ("advantage", "loss")]
    assert [learn.advantage.kind, learn.loss.kind] == parts


def test_every_learn_setting_has_an_owner() -> None:
    """A new one has to be given to all algorithms or to the optimiser; or to an estimator or a loss, in its table."""
    owned = {"algorithm", "advantage", "loss", *SHARED, *OPTIMISER}
    assert owned == {item.name for item in fields(LearnSettings)}
    for path, parts in (("learn.advantage", ADVANTAGES), ("learn.loss", LOSSES)):
        assert set(KINDS[path]) == set(parts.inside)
        for name, options in KINDS[path].items():
            assert parts.load(name).options_class is options
            assert parts.load(name).name == name


def test_the_example_of_aggregation() -> None:
    """Two episodes: responses of 2 and 4 tokens, and one of 2."""
    episodes, turns = np.repeat([0, 0, 1], [2, 4, 2]), np.repeat([0, 1, 2], [2, 4, 2])
    text = (DOCS / "algorithms" / "README.md").read_text(encoding="utf-8")
    for mode in MODES:
        [row] = re.findall(rf"^\| `{mode}`:.*$", text, re.MULTILINE)
        printed = [Fraction(cell) for cell in re.findall(r"\| (\d+/\d+)(?= \|)", row)]
        weights = token_weights(mode, episodes, turns, 100.0)[[0, 2, 6]]
        assert printed == [Fraction(weight).limit_denominator(1000) for weight in weights], mode


# Half of the pocket model's responses are longer than 14 tokens: some turns are invalid, so returns differ.
TINY = [
    "policy.model=pocket", "agent.prompt=brief", "agent.max_response=14", "agent.max_context=512", "task.max_turns=3",
    "task.options={rooms='small'}", "rollout.groups=2", "rollout.group_size=4", "run.steps=2", "run.device=cpu",
    "run.threads=1", "eval.games=1", "eval.quick_games=1", "eval.splits=seen",
]  # fmt: skip
OPTIONS = {"aem": ["method.aem.leave_out=rising"], "actre": ["method.actre.branching=entropy"]}


@cache
def written(*changes: str, folder: Path) -> frozenset[str]:
    """The keys that a tiny run writes, without those of rollout and instruments: they depend on what happened in it."""
    run = folder / "-".join(changes).replace("=", "-").replace("'", "")
    train(load_config(None, [*TINY, *changes]), run, quiet=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    keys = {key for line in lines if line["kind"] == "train" for key in line} - {"step", "kind"}
    elsewhere = ("the rollout", "the instruments", "the course of the run", "the probes")
    others = [entry for part in elsewhere for entry in GLOSSARY[part]]
    return frozenset(k for k in keys if not any(entry.match(k) is not None for entry in others))


def test_metrics_are_those_that_a_run_writes(tmp_path: Path) -> None:
    plain = written("learn.algorithm=reinforce", folder=tmp_path)
    seen: set[str] = set()
    for sheet in sheets().values():
        if sheet.kind == "algorithm":
            own = written(f"learn.algorithm={sheet.name}", folder=tmp_path) - plain
        else:
            changes = ["learn.algorithm=reinforce", f"methods={sheet.name}", *OPTIONS.get(sheet.name, [])]
            own = written(*changes, folder=tmp_path) - plain
        assert own <= set(sheet.metrics), f"the page of {sheet.name} does not know {own - set(sheet.metrics)}"
        seen |= own
    promised = {key for sheet in sheets().values() for key in sheet.metrics}
    assert promised == seen, "promised on a page, but no run wrote it"
    everywhere = blocks()["algorithms/README.md"]["metrics"]
    assert plain == set(re.findall(r"^\| `([^`]+)`", everywhere, re.MULTILINE))
