"""`isentrope docs`: the pages, their parts, the search in them; and that messages name pages that exist."""

from __future__ import annotations

import ast
import io
import os
import pty
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import isentrope
from isentrope.cli import pages
from isentrope.cli.main import app
from isentrope.cli.markdown import page_as_shown
from isentrope.core.errors import IsentropeError
from isentrope.worlds.registry import WORLDS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "isentrope"


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["docs", *words], env={"COLUMNS": "80"})
    return done.exit_code, done.output


def test_the_list_has_every_page_by_what_one_wants() -> None:
    code, text = said()
    assert code == 0
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert re.search(r"choose an algorithm, or an entropy method +algorithms, methods, theory", text)
    last_names = set(re.findall(r"[\w-]+", text))
    assert {name.rpartition("/")[2] for name in pages.page_names()} <= last_names
    assert "runs" not in {name.partition("/")[0] for name in pages.page_names()}


def test_a_page_is_printed_as_it_is_written() -> None:
    assert said("systems") == (0, (ROOT / "docs/systems.md").read_text())
    assert said("docs/methods/README.md")[1].startswith("# Methods\n")
    assert "<!--" not in said("epo")[1]


def test_a_page_is_found_without_its_folder_and_nearly_right() -> None:
    assert pages.find_page("epo") == ("methods/epo", ["claims/epo"])
    assert pages.find_page("claims/epo") == ("claims/epo", [])
    assert pages.find_page("Dr. GRPO") == ("algorithms/dr_grpo", [])
    code, text = said("engins")
    assert code == 2
    assert "'engins'; did you mean engines?" in text
    assert "did you mean methods/seal?" in said("seel")[1]


def test_a_section_is_shown_alone_with_those_below_it() -> None:
    text = said("training-models", "learning-rates")[1]
    assert text.startswith("### Learning rates\n")
    assert not re.search(r"^##+ (?!Learning rates)", text, re.MULTILINE)
    assert said("training-models", "learning", "rates")[1] == text
    code, text = said("systems", "nothing")
    assert code == 2
    assert "there is: in-a-container" in " ".join(text.split())
    assert re.findall(r"^#+ .*$", pages.part_of("command-line", "settings"), re.MULTILINE) == ["## Settings"]
    assert pages.part_of("systems", "which").count("\n#") == 1  # the heading above the other one


def test_the_search_puts_headings_first() -> None:
    code, text = said("--find", "learning", "rate")
    assert code == 0
    assert text.startswith("training-models learning-rates\n")
    assert re.search(r"^algorithms/ppo knobs$", text, re.MULTILINE)
    hits = list(pages.search("KAPPA_high"))
    assert [(hit.page, hit.section.anchor) for hit in hits][:2] == [
        ("methods/epo", "symbols"),
        ("methods/epo", "knobs"),
    ]
    assert hits[1].line.startswith("method.epo.kappa_high | ")
    assert "No section has 'zyzzyva'" in said("--find", "zyzzyva")[1]


def test_where_it_lies() -> None:
    assert said("--path")[1] == f"{ROOT / 'docs'}\n"
    assert said("methods", "--path")[1] == f"{ROOT / 'docs/methods/README.md'}\n"


def test_anchors_are_those_of_github() -> None:
    text = "# One\n```\n# no heading\n```\n## `a_b`: *c* & [d](e.md)\n## One\n"
    assert [(one.title, one.anchor, one.level) for one in pages.sections(text)] == [
        ("One", "one", 1), ("a_b: c & d", "a_b-c--d", 2), ("One", "one-1", 2),
    ]  # fmt: skip
    assert "".join(one.text for one in pages.sections(text)) == text


def test_links_outside_of_the_pages_lead_to_the_repository() -> None:
    blob = f"{pages.REPOSITORY}/blob/main"
    assert pages.address_of("methods", "../../CONTRIBUTING.md#a-b") == f"{blob}/CONTRIBUTING.md#a-b"
    assert pages.address_of("claims", "runs/quick") == f"{pages.REPOSITORY}/tree/main/docs/runs/quick"
    assert pages.page_at("methods", "../algorithms/README.md#x") == "algorithms"
    assert pages.page_at("claims", "runs/quick/README.md") == ""  # does not travel
    assert pages.with_links("[a](b) `[a](b)` [`c`](d)", lambda _, words, to: f"{words}>{to}") == "a>b `[a](b)` `c`>d"


@pytest.mark.parametrize("name", ["algorithms", "claims", "configuration", "conversations", "methods/actre", "metrics"])
def test_nothing_is_cut_off_at_80_columns(name: str) -> None:
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(page_as_shown(name, pages.text_of(name)), crop=False)
    shown = re.sub(r"\s", "", console.file.getvalue())
    prose = pages.with_links(pages.text_of(name), lambda _, words, __: words)
    words = re.findall(r"[\w/]{4,}", prose)
    assert [word for word in words if word not in shown] == []


def test_a_table_too_narrow_to_be_read_becomes_a_list() -> None:
    table = "| name | one | two |\n|---|---|---|\n| first | " + "some words " * 9 + "| " + "other words " * 9 + "|\n"
    for width, expected in ((80, "name   one"), (40, "\n    one: some words")):
        console = Console(width=width, file=io.StringIO(), highlight=False)
        console.print(page_as_shown("engines", table))
        assert expected in "\n" + console.file.getvalue()


def test_a_terminal_is_given_a_laid_out_page_through_its_pager(tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    environment = {**os.environ, "PAGER": "cat", "COLUMNS": "80", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "isentrope", "docs", "epo", "what", "we"]
    done = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=tmp_path)
    os.close(inner)
    printed = b"".join(iter(lambda: _read(outer), b"")).decode()
    assert done.wait() == 0
    assert "\x1b[1;4mWhat we saw" in printed
    assert "a first look (→ first-look)" in printed
    assert re.search(r"Of the same name: .*isentrope docs claims/epo", printed)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_page_needs_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['isentrope', 'docs', '--find', 'entropy']\n"
        "from isentrope.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_an_installation_without_pages_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "DOCS", None)
    with pytest.raises(IsentropeError, match=r"github\.com/isentrope-rl/isentrope/tree/main/docs"):
        pages.page_names()


@pytest.mark.slow(4)
def test_the_wheel_has_the_pages_and_no_pictures(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        below = [
            name.removeprefix("isentrope/docs/") for name in opened.namelist() if name.startswith("isentrope/docs/")
        ]
    expected = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(below) == sorted(name for name in expected if not name.startswith("runs/"))


# -- pages that messages name


def strings_of(path: Path) -> Iterator[tuple[str, bool]]:
    """The strings of a module, each with whether it is a docstring that nobody but a developer reads."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body:
            shown = path.parent.name == "cli" and isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and not shown:
                hidden.add(first.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # below a constant
            hidden.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node in hidden


def named_pages() -> Iterator[tuple[str, str]]:
    """Module or recipe, and the page that it names: as `isentrope docs NAME` in a text, or by `page("NAME")`."""
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "recipes").rglob("*.toml"), *(ROOT / "recipes").glob("*.sh")]:
        text = path.read_text(encoding="utf-8")
        here = path.relative_to(ROOT).as_posix()
        for name in re.findall(r"isentrope docs ([a-z][\w/-]*)|\bpage\([\"']([\w/-]+)[\"']\)", text):
            yield here, "".join(name)
    yield from (("worlds/registry.py", known.page(name)) for name, known in WORLDS.items())


def test_pages_that_messages_name_exist() -> None:
    named = list(named_pages())
    assert {"engines", "tasks/webshop", "training-models", "tasks/your-own", "claims/seal"} <= {
        name for _, name in named
    }
    assert [(where, name) for where, name in named if name not in pages.page_names()] == []


def test_no_message_names_a_page_by_its_path() -> None:
    """In a wheel there is no docs/ beside the reader: name `isentrope docs PAGE`, by core/command.py's `page`."""
    by_path = re.compile(r"docs/[\w/-]+\.md")
    some = [path for path in PACKAGE.rglob("*.py") if by_path.search(path.read_text(encoding="utf-8"))]
    assert [path.name for path in some if path.name == "glossary.py"]  # a docstring that developers alone read
    texts = [(path.name, text) for path in some for text, hidden in strings_of(path) if not hidden]
    assert [(name, text) for name, text in texts if by_path.search(text)] == []


def test_no_public_docstring_names_a_page_by_its_path() -> None:
    for name in isentrope.__all__:
        assert not re.search(r"docs/[\w/-]+\.md", getattr(isentrope, name).__doc__ or ""), name
