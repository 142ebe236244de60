"""The pages of the documentation: where they lie, what they are called, their sections, and the words in them.

They travel with the package, without pictures and without docs/runs; in a checkout they are those of docs/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from isentrope.config.suggest import nearest, plain_name
from isentrope.core.command import command
from isentrope.core.errors import IsentropeError
from isentrope.core.text import mentions, plain

REPOSITORY = "https://github.com/isentrope-rl/isentrope"
_PACKAGE = Path(__file__).resolve().parents[1]

# Package data in a wheel; beside the package in a checkout.
DOCS = next((place for place in (_PACKAGE / "docs", _PACKAGE.parent / "docs") if (place / "README.md").is_file()), None)

_LINK = r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)"  # picture or not, what is shown, where it leads
_LINK_OR_CODE = re.compile(rf"^ *```.*?^ *```|`[^`\n]+`|{_LINK}", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_BEFORE = 30  # characters in front of a word that was searched for
_STAY = "runs"  # the folder below docs/ that does not travel


class Section(NamedTuple):
    """From one heading to the next; what stands before the first heading has no title."""

    title: str  # as it is shown: without marks
    anchor: str
    level: int
    text: str  # with its heading


class Hit(NamedTuple):
    page: str
    section: Section
    line: str  # the first one with one of the words


def folder() -> Path:
    if DOCS is None:
        raise IsentropeError(f"the pages are not part of this installation; they are at {REPOSITORY}/tree/main/docs")
    return DOCS


def page_names() -> list[str]:
    """`engines`, `methods/epo`; a README.md is called after its folder. The index, docs/README.md, has no name."""
    below = (path.relative_to(folder()) for path in folder().rglob("*.md"))
    return sorted(_name(path) for path in below if path.parts[0] != _STAY and str(path) != "README.md")


def _name(path: Path) -> str:
    return (path.parent if path.name == "README.md" else path.with_suffix("")).as_posix()


def path_of(name: str) -> Path:
    file = folder() / f"{name}.md"
    return file if file.is_file() else folder() / name / "README.md"


def find_page(name: str) -> tuple[str, list[str]]:
    """The page that a name means, whose folder may be left out, and others that it may mean. Of several pages the one
    whose folder the index names first: `epo` is the method before it is the paper's claims."""
    wanted = name.strip("/").removeprefix("docs/").removesuffix(".md").removesuffix("/README").lower()
    names = sorted(page_names(), key=_place_in_index())
    if wanted in names:
        return wanted, []
    same = [page for page in names if plain_name(_last(page)) == plain_name(wanted)]
    if same:
        return same[0], same[1:]
    if wanted == "runs" or wanted.startswith("runs/"):
        raise IsentropeError(
            f"kept runs do not come with the package: {REPOSITORY}/tree/main/docs/{plain(wanted)[:100]}"
        )
    near = {_last(page): page for page in reversed(names)} | {page: page for page in names}
    guess = nearest(wanted, near)
    hint = f"; did you mean {near[guess]}?" if guess else f"; {command('docs')} lists them"
    raise IsentropeError(f"no page is called {plain(name)[:100]!r}{hint}")


def _last(page: str) -> str:
    return page.rpartition("/")[2]


def _place_in_index() -> Callable[[str], int]:
    """Where the index first names a page of the same folder."""
    folders = list(dict.fromkeys(page.partition("/")[0] for _, pages in index() for page in pages))
    return lambda page: folders.index(top) if (top := page.partition("/")[0]) in folders else len(folders)


# -- the index


def index() -> list[tuple[str, list[str]]]:
    """What one wants to do, and the pages for it: the table of docs/README.md."""
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", (folder() / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    found = [(want, [page for target in links_of(links) if (page := page_at("", target))]) for want, links in rows]
    return [(want, pages) for want, pages in found if pages]


def page_at(page: str, target: str) -> str:
    """The page that a link on a page leads to; empty if it leads elsewhere."""
    file = _target(page, target)
    inside = file.suffix == ".md" and file.is_relative_to(folder()) and file.is_file()
    name = _name(file.relative_to(folder())) if inside else ""
    return name if name in page_names() else ""


def address_of(page: str, target: str) -> str:
    """Where a link leads that leads to no page: an address as it stands, a file's in the repository."""
    if re.match(r"[a-z]+:", target):
        return target
    file, (_, mark, anchor) = _target(page, target), target.partition("#")
    kind = "blob" if file.suffix else "tree"
    return f"{REPOSITORY}/{kind}/main/{file.relative_to(folder().parent).as_posix()}{mark}{anchor}"


def _target(page: str, target: str) -> Path:
    """The file that a link on a page means, as if docs/ were in a checkout."""
    named = target.partition("#")[0]
    beside = path_of(page) if page else folder() / "README.md"
    return (beside.parent / named).resolve() if named else beside


# -- what stands on a page


@cache
def text_of(name: str) -> str:
    """Without the marks between which tables are generated."""
    return _COMMENT.sub("", path_of(name).read_text(encoding="utf-8"))


def title_of(name: str) -> str:
    return next((section.title for section in sections(text_of(name)) if section.title), name)


def with_links(text: str, change: Callable[[str, str, str], str]) -> str:
    """Every link by what `change` makes of it, from "!" if it is a picture, what is shown, and where it leads. What
    looks like one in code is none."""
    return _LINK_OR_CODE.sub(lambda found: change(*found.groups()) if found[3] else found[0], text)


def links_of(text: str) -> list[str]:
    """Where links and pictures lead."""
    return [found[3] for found in _LINK_OR_CODE.finditer(text) if found[3]]


def sections(text: str) -> list[Section]:
    found: list[Section] = []
    begun: list[str] = []
    title, level, fenced = "", 0, False
    seen: dict[str, int] = {}
    for line in [*text.splitlines(keepends=True), "# "]:
        heading = None if fenced else re.match(r"(#+) +(.*)$|# $", line)
        fenced ^= line.lstrip().startswith("```")
        if heading:
            if begun:
                found.append(Section(_shown(title), _anchor(title, seen), level, "".join(begun)))
            title, level, begun = heading[2] or "", len(heading[1] or ""), []
        begun.append(line)
    return found


def _shown(title: str) -> str:
    """Without the marks of links, code and emphasis."""
    return re.sub(r"[`*]", "", with_links(title, lambda _, words, __: words)).strip()


def _anchor(title: str, seen: dict[str, int]) -> str:
    """As GitHub makes it of a heading; the second of two equal ones ends in -1."""
    anchor = re.sub(r"[^\w\- ]", "", _shown(title).lower()).replace(" ", "-")
    seen[anchor] = seen.get(anchor, -1) + 1
    return f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor


def part_of(name: str, wanted: str) -> str:
    """The text of the section whose anchor or heading has these words, with the sections below it."""
    all_of_it = sections(text_of(name))
    named = [number for number, one in enumerate(all_of_it) if one.anchor == wanted.lower()]
    matching = named or [number for number, one in enumerate(all_of_it) if mentions(wanted, one.title)]
    if not matching:
        titles = ", ".join(one.anchor for one in all_of_it[1:] if one.anchor)
        raise IsentropeError(
            f"{name} has no section {plain(wanted)[:100]!r}; there is: {titles or 'no section at all'}"
        )
    first, *rest = all_of_it[matching[0] :]
    end = next((number for number, one in enumerate(rest) if one.level <= first.level), len(rest))
    return "".join(one.text for one in (first, *rest[:end]))


def search(words: str) -> Iterator[Hit]:
    """The sections with all the words in their heading, then those with all of them in heading and text."""
    later: list[Hit] = []
    for name in page_names():
        for section in sections(text_of(name)):
            if not mentions(words, section.title, section.text):
                continue
            hit = Hit(name, section, _line_with(words, section.text))
            if mentions(words, section.title):
                yield hit
            else:
                later.append(hit)
    yield from later


def _line_with(words: str, text: str) -> str:
    """The line with the most of the words, without marks, from a little before the first of them; of a table's row also
    what stands in its first column."""
    lines = [line.strip() for line in text.splitlines() if not re.match(r" *(#|```|\|[-|:]+\|$)", line)]
    wanted = words.lower().split()
    best = max(lines, key=lambda line: sum(mentions(word, line) for word in wanted), default="")
    line = _shown(best.strip("| "))
    places = [at for word in wanted if mentions(word, line) and (at := line.lower().find(word)) >= 0]
    start = min(places, default=0)
    if start <= _BEFORE:
        return line
    first = line.partition(" |")[0] + " | " if best.startswith("|") else ""
    return f"{first}… {line[start - _BEFORE :].partition(' ')[2]}"
