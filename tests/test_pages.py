"""The examples of the pages about Python and about parts of one's own run as they stand, in the order of their page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"
EXTEND = DOCS / "extend"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.\w+)\n")
MODULES = ("damp", "every", "soft", "ranks", "counting", "weakest", "brief", "marks")


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run_page(page: Path) -> None:
    """In the current folder: a block that begins with a file's name is written to it, other Python is executed, and
    commands are called. Blocks of output are left alone."""
    names: dict[str, Any] = {"__name__": "page"}
    for language, text in blocks_of(page):
        named = FILE.match(text)
        if named:
            Path(named[1]).write_text(text)
        elif language == "python":
            exec(compile(text, str(page), "exec", dont_inherit=True), names)
        elif not language:
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("isentrope "):
                    call(line)


def call(line: str) -> None:
    result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"


def recipe() -> str:
    """The small recipe that the pages about parts share."""
    return next(text for _, text in blocks_of(EXTEND / "README.md") if text.startswith("# tiny.toml"))


@pytest.mark.parametrize(("name", "given"), [
    ("doctor", {"step": 1, "metrics": {"entropy/token": 0.2}}),
    ("study", {}),
    ("tasks/household", {}),
    ("tasks/webshop", {}),
])  # fmt: skip
def test_the_python_of_a_page_runs(
    name: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of pages whose commands would take long; `given` is what a reader has there."""
    monkeypatch.chdir(DOCS.parent)
    blocks = [text for language, text in blocks_of(DOCS / f"{name}.md") if language == "python"]
    assert blocks
    for text in blocks:
        exec(compile(text, name, "exec", dont_inherit=True), {"__name__": "page", **given})


@pytest.mark.slow(12)
@pytest.mark.parametrize("page", [DOCS / "python.md", *sorted(EXTEND.glob("*.md"))], ids=lambda page: page.name)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "tiny.toml").write_text(recipe())
    run_page(page)
    for module in MODULES:
        sys.modules.pop(module, None)
