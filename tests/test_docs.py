"""The documentation: links lead somewhere, every page can be found, and the commands on it exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from isentrope.cli.main import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def links_of(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text())
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ +(.*)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), link


def test_every_page_can_be_found_from_the_index() -> None:
    found: set[Path] = set()
    ahead = [DOCS / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page.suffix != ".md" or not page.is_relative_to(DOCS):
            continue
        found.add(page)
        ahead += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
    assert sorted(set(DOCS.rglob("*.md")) - found) == []


def commands_of(page: Path) -> list[str]:
    """Lines of blocks that begin with the command, without their comments; lines that end in \\ go on."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("isentrope ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_exist(page: Path) -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    for line in commands_of(page):
        _, name, *rest = shlex.split(line, comments=True)
        if name.startswith("-"):
            continue
        assert name in known, line
        options = {
            option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {part.partition("=")[0] for part in rest if re.match(r"--?[a-z]", part)}
        assert used <= options | {"--help", "-h"}, line
