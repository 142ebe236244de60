"""Moves and joins modules by a table: `python tools/move.py tools/moves.toml STEP`.

The table says, for each old module, its new one; several with the same new one are joined, in the table's order where
imports leave a choice. Imports, dotted names in strings, paths in documents and data folders follow. The result depends
on the tree alone, so a branch from before a move can be moved by itself and compared with the moved trunk.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "isentrope"
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".html", ".js", ""}
SKIPPED = ("docs/runs/", "docs/claims/first-edition.json", "tools/moves.toml", "tests/golden/golden.json")


class MoveError(Exception):
    """The table and the tree do not fit: a name is defined twice, or hidden by a local one."""


@dataclass
class Table:
    modules: dict[str, str]  # old dotted name: new dotted name, both with the package's
    names: dict[str, dict[str, str]] = field(default_factory=dict)  # old module: old name: new name
    folders: dict[str, str] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)

    def target(self, module: str) -> str:
        return self.modules.get(module, module)


def read_table(path: Path, step: str) -> Table:
    raw = tomllib.loads(path.read_text(encoding="utf-8"))[step]

    def full(name: str) -> str:
        return name if name.startswith("tools.") else f"{PACKAGE}.{name}"

    names: dict[str, dict[str, str]] = {}
    for old, new in raw.get("names", {}).items():
        module, _, name = old.partition(":")
        names.setdefault(full(module), {})[name] = new
    return Table(
        {full(old): full(new) for new, olds in raw["modules"].items() for old in olds},
        names,
        raw.get("folders", {}),
        {full(name): text for name, text in raw.get("docs", {}).items()},
    )


# Editing a file by the positions of its syntax tree.


class Edits:
    """Replacements in one text, by the tree's line and column (columns count bytes)."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]
        self.changes: list[tuple[tuple[int, int], tuple[int, int], bytes]] = []

    def replace(self, node: ast.AST, new: str) -> None:
        start = (node.lineno - 1, node.col_offset)  # type: ignore[attr-defined]
        end = (node.end_lineno - 1, node.end_col_offset)  # type: ignore[attr-defined]
        self.changes.append((start, end, new.encode()))

    def replace_at(self, line: int, column: int, length: int, new: str) -> None:
        self.changes.append(((line, column), (line, column + length), new.encode()))

    def text(self) -> str:
        lines = list(self.lines)
        for (row, column), (end_row, end_column), new in sorted(set(self.changes), reverse=True):
            head, tail = lines[row][:column], lines[end_row][end_column:]
            if not new and not head.strip() and not tail.strip():
                lines[row : end_row + 1] = [b""] * (end_row + 1 - row)  # the whole statement goes, and its line
            else:
                lines[row : end_row + 1] = [head + new + tail] + [b""] * (end_row - row)
        return b"".join(lines).decode()


def bound_names(tree: ast.AST) -> set[str]:
    """Names that are assigned or are arguments anywhere in a tree."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def all_names(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | bound_names(tree)
    found |= {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return found


class Rewriter:
    """Imports and uses of one file, brought to the new places."""

    def __init__(self, module: str | None, path: Path, text: str, table: Table, known: set[str]) -> None:
        self.module, self.path, self.text, self.table, self.known = module, path, text, table, known
        self.tree = ast.parse(text)
        self.edits = Edits(text)
        self.renames: dict[str, str] = {}  # a local name: its new one
        self.opened: dict[str, str] = {}  # a module's local name whose attributes become plain names: that module
        self.attributes: dict[str, dict[str, str]] = {}  # a module's local name: its renamed attributes

    def inside(self, module: str) -> bool:
        """Whether a module lands in the same file."""
        return self.module is not None and self.table.target(module) == self.table.target(self.module) != ""

    def rewrite(self) -> str:
        if self.module and self.module in self.table.names:
            for old, new in self.table.names[self.module].items():
                self._rename(old, new, own=True)
        bodies = {id(node): body for body in _bodies(self.tree) for node in body}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == PACKAGE:
                self._import_from(node, bodies[id(node)])
        self._uses()
        return self.edits.text()

    def _import_from(self, node: ast.ImportFrom, body: list[ast.stmt]) -> None:
        source = node.module or ""
        kept: dict[str, list[str]] = {}
        changed = False
        for alias in node.names:
            inner = f"{source}.{alias.name}"
            if inner in self.known:  # a module is imported by name
                local = alias.asname or alias.name
                if self.inside(inner):
                    self.opened[local] = inner
                    changed = True
                    continue
                parent, _, last = self.table.target(inner).rpartition(".")
                name = last
                if alias.asname and alias.asname != last:
                    name = f"{last} as {alias.asname}"
                elif last != local:
                    if last in all_names(self.tree):
                        name = f"{last} as {local}"
                    else:
                        self.renames[local] = last
                if self.table.names.get(inner):
                    self.attributes[local] = self.table.names[inner]
                kept.setdefault(parent, []).append(name)
                changed |= parent != source or name != alias.name
                continue
            name = self.table.names.get(source, {}).get(alias.name, alias.name)
            local = alias.asname or alias.name
            if self.inside(source):
                if local != name:
                    self._rename(local, name)
                changed = True
                continue
            if not alias.asname and name != alias.name:
                self._rename(alias.name, name)
            target = self.table.target(source)
            kept.setdefault(target, []).append(f"{name} as {alias.asname}" if alias.asname else name)
            changed |= target != source or name != alias.name
        if not changed:
            return
        indent = " " * node.col_offset
        lines = [f"from {module} import {', '.join(names)}" for module, names in kept.items()]
        rest = [one for one in body if one is not node]
        if not lines and not rest:
            lines = ["pass"]
        self.edits.replace(node, f"\n{indent}".join(lines))

    def _rename(self, old: str, new: str, own: bool = False) -> None:
        shadowing = bound_names(self.tree) - ({old} if own else set())
        if new in shadowing or (old in bound_names(self.tree) and not own):
            raise MoveError(f"{self.path}: {old} -> {new}: one of them is a local name too")
        self.renames[old] = new

    def _uses(self) -> None:
        shadowed = bound_names(self.tree)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id in self.renames:
                self.edits.replace(node, self.renames[node.id])
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in self.renames:
                self._definition(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                local = node.value.id
                if local in self.opened:
                    new = self.table.names.get(self.opened[local], {}).get(node.attr, node.attr)
                    if new in shadowed:
                        raise MoveError(f"{self.path}: {local}.{new} would be hidden by a local name")
                    self.edits.replace(node, new)
                elif node.attr in self.attributes.get(local, {}):
                    row, column = (node.end_lineno or 1) - 1, (node.end_col_offset or 0) - len(node.attr)
                    self.edits.replace_at(row, column, len(node.attr), self.attributes[local][node.attr])
            elif isinstance(node, ast.Global | ast.Nonlocal) and any(name in self.renames for name in node.names):
                word = "global" if isinstance(node, ast.Global) else "nonlocal"
                self.edits.replace(node, f"{word} {', '.join(self.renames.get(name, name) for name in node.names)}")

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if node not in self.tree.body:
            return
        row = node.lineno - 1
        match = re.search(rb"\b(def|class)\s+" + node.name.encode() + rb"\b", self.edits.lines[row])
        assert match, (self.path, node.name)
        column = match.end() - len(node.name)
        self.edits.replace_at(row, column, len(node.name), self.renames[node.name])


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


# Joining files that land in the same module.


@dataclass
class Part:
    module: str
    doc: str | None
    imports: list[str]
    typing_imports: list[str]
    body: str
    main: str
    defined: dict[str, str]  # top-level name: its definition's tree as text
    imported: dict[str, str]  # local name: where it comes from


def split(module: str, text: str) -> Part:
    tree = ast.parse(text)
    doc = ast.get_docstring(tree, clean=False)
    lines = text.splitlines(keepends=True)
    part = Part(module, doc, [], [], "", "", {}, {})
    gone: set[int] = set()

    def take(node: ast.stmt) -> None:
        start = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])
        gone.update(range(start - 1, node.end_lineno or node.lineno))

    for index, node in enumerate(tree.body):
        if (index == 0 and doc is not None) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            take(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            part.imports.append(_with_comment(lines, node))
            _origins(node, part.imported)
            take(node)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in node.body:
                if not isinstance(inner, ast.Import | ast.ImportFrom | ast.Pass):
                    raise MoveError(f"{module}: more than imports under TYPE_CHECKING")
                if not isinstance(inner, ast.Pass):
                    part.typing_imports.append(ast.unparse(inner))
                    _origins(inner, part.imported)
            take(node)
        elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            part.main = "".join(lines[node.lineno - 1 : node.end_lineno])
            take(node)
        else:
            for name in _defines(node):
                part.defined[name] = ast.dump(node)
    part.body = "".join(line for number, line in enumerate(lines) if number not in gone).strip("\n")
    return part


def _with_comment(lines: list[str], node: ast.stmt) -> str:
    text = "".join(lines[node.lineno - 1 : node.end_lineno])
    return text.strip("\n") if "#" in text else ast.unparse(node)


def _origins(node: ast.Import | ast.ImportFrom, into: dict[str, str]) -> None:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            into[alias.asname or alias.name] = f"{node.module}:{alias.name}"
        else:  # `import a.b` binds a
            into[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return (
        [
            inner.name if not isinstance(inner, ast.Name) else inner.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.FunctionDef | ast.ClassDef)
            or (isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store))
        ]
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For)
        else []
    )


def ordered(sources: dict[str, str], olds: list[str]) -> list[str]:
    """The parts so that what a part imports while it is loaded stands above it; the table's order otherwise."""
    wants: dict[str, set[str]] = {}
    for module, text in sources.items():
        wants[module] = set()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                wants[module] |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        wants[module] = (wants[module] & set(sources)) - {module}
    result: list[str] = []
    waiting = [name for name in olds if name in sources]
    while waiting:
        ready = next((name for name in waiting if wants[name] <= set(result)), None)
        if ready is None:
            raise MoveError(f"parts import each other: {waiting}")
        result.append(ready)
        waiting.remove(ready)
    return result


def join(target: str, parts: list[Part], chief: str, doc: str | None) -> str:
    """One text of several; the docstring of `chief`, or `doc` if given; those of the others become comments."""
    problems: list[str] = []
    for index, part in enumerate(parts):
        for other in parts[:index]:
            for name, definition in part.defined.items():
                if name in other.defined and other.defined[name] != definition:
                    problems.append(f"{name} in {other.module} and {part.module}")
                elif name in other.defined:
                    problems.append(f"{name} the same in {other.module} and {part.module}: drop one by hand")
        for other in parts:
            for name in part.defined:
                if other is not part and name in other.imported:
                    problems.append(
                        f"{name} of {part.module} is imported by {other.module} from {other.imported[name]}"
                    )
            for name, origin in part.imported.items():
                if other is not part and other.imported.get(name, origin) != origin:
                    problems.append(f"{name}: {origin} in {part.module}, {other.imported[name]} in {other.module}")
    if problems:
        raise MoveError(f"{target}: " + "; ".join(sorted(set(problems))))
    main = next(part for part in parts if part.module == chief)
    chunks = [f'"""{doc if doc is not None else main.doc or ""}"""', "from __future__ import annotations"]
    chunks.append("\n".join(dict.fromkeys(line for part in parts for line in part.imports)))
    runtime = {name for part in parts for line in part.imports for name in _locals(line)}
    typing_only = dict.fromkeys(line for part in parts for line in part.typing_imports if not _locals(line) <= runtime)
    if typing_only:
        chunks.append("if TYPE_CHECKING:\n" + textwrap.indent("\n".join(typing_only), "    "))
    for part in parts:
        if part.doc and (doc is not None or part is not main):
            chunks.append(as_comment(part.doc) + "\n")
        chunks.append(part.body)
    mains = [part.main for part in parts if part.main]
    if len(mains) > 1:
        raise MoveError(f"{target}: two programs in one file")
    return "\n\n".join(chunk for chunk in [*chunks, *mains] if chunk.strip()) + "\n"


def as_comment(doc: str) -> str:
    """A docstring's paragraphs as comment lines; a paragraph too wide is filled again, what is indented is kept."""
    result: list[str] = []
    for paragraph in doc.strip().split("\n\n"):
        lines = paragraph.rstrip().splitlines()
        if any(len(line) > 118 for line in lines) and not any(line.startswith(" ") for line in lines):
            lines = textwrap.wrap(" ".join(line.strip() for line in lines), 118)
        result += [*(f"# {line}".rstrip() for line in lines), "#"]
    return "\n".join(result[:-1])


def _locals(line: str) -> set[str]:
    found: dict[str, str] = {}
    for node in ast.parse(line.strip()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            _origins(node, found)
    return set(found)


# The tree.


def module_name(path: Path) -> str | None:
    if path.suffix != ".py" or path.parts[0] not in (PACKAGE, "tools"):
        return None
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files_of(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout.decode()
    return [Path(name) for name in listed.split("\0") if name and (root / name).is_file()]


def dotted(table: Table) -> list[tuple[re.Pattern[str], dict[str, str]]]:
    """What is replaced in plain text: dotted names, and paths with and without the package's folder."""
    moved = {old: new for old, new in table.modules.items() if old != new}
    clash = {new for new in moved.values() if new in moved}
    if clash:
        raise MoveError(f"both an old and a new name: {sorted(clash)}")
    paths = {old.replace(".", "/") + ".py": new.replace(".", "/") + ".py" for old, new in moved.items()}
    short = {
        old.removeprefix(f"{PACKAGE}/"): new.removeprefix(f"{PACKAGE}/")
        for old, new in paths.items()
        if old.count("/") > 1
    }
    result: list[tuple[re.Pattern[str], dict[str, str]]] = []
    for mapping, before in ((moved, r"(?<![\w.])"), (paths, r"(?<![\w])"), (short, r"(?<![\w/.-])")):
        if mapping:
            words = "|".join(re.escape(word) for word in sorted(mapping, key=len, reverse=True))
            result.append((re.compile(before + f"({words})" + r"(?!\w)"), mapping))
    return result


def move(root: Path, table: Table) -> None:
    files = files_of(root)
    names = {path: module_name(path) for path in files}
    known = {name for name in names.values() if name}
    missing = sorted(set(table.modules) - known)
    if missing:
        print("not in this tree:", ", ".join(missing))
    rewritten: dict[Path, str] = {}
    original: dict[str, str] = {}
    problems: list[str] = []
    for path in files:
        if path.suffix == ".py":
            text = (root / path).read_text(encoding="utf-8")
            if names[path]:
                original[names[path]] = text  # type: ignore[index]
            try:
                rewritten[path] = Rewriter(names[path], path, text, table, known).rewrite()
            except MoveError as error:
                problems.append(str(error))
    joined: dict[Path, tuple[str, list[Path]]] = {}
    for target in dict.fromkeys(table.modules.values()):
        olds = [old for old, new in table.modules.items() if new == target and old in known]
        if target in known and target not in olds and olds:
            olds.insert(0, target)
        if not olds or olds == [target]:
            continue
        by_name = {name: path for path, name in names.items() if name}
        where = Path(target.replace(".", "/") + ".py")
        try:
            order = ordered({old: original[old] for old in olds}, olds)
            if len(order) == 1:
                text = rewritten[by_name[order[0]]]
                if target in table.docs:
                    text = text.replace(ast.get_docstring(ast.parse(text), clean=False) or "", table.docs[target], 1)
            else:
                parts = [split(old, rewritten[by_name[old]]) for old in order]
                text = join(target, parts, olds[-1], table.docs.get(target))
            joined[where] = (text, [by_name[old] for old in olds])
        except (MoveError, KeyError) as error:
            problems.append(str(error))
    if problems:
        raise MoveError("\n".join(problems))
    write(root, table, files, rewritten, joined)


def write(
    root: Path, table: Table, files: list[Path], rewritten: dict[Path, str], joined: dict[Path, tuple[str, list[Path]]]
) -> None:
    for path, text in rewritten.items():
        (root / path).write_text(text, encoding="utf-8")
    for where, (text, olds) in joined.items():
        (root / where).parent.mkdir(parents=True, exist_ok=True)
        first = olds[0]
        if first != where:
            _git(root, "mv", "-f", str(first), str(where))
        for old in olds[1:]:
            if old != where:
                _git(root, "rm", "-qf", str(old))
        (root / where).write_text(text, encoding="utf-8")
    for old, new in table.folders.items():
        if (root / old).exists():
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            _git(root, "mv", old, new)
    for where in joined:
        folder = where.parent
        while folder.parts and folder.parts[0] == PACKAGE:
            if not (root / folder / "__init__.py").exists():
                (root / folder / "__init__.py").write_text("", encoding="utf-8")
                _git(root, "add", str(folder / "__init__.py"))
            folder = folder.parent
    for start in sorted((root / PACKAGE).rglob("__init__.py"), reverse=True):
        if not [p for p in start.parent.iterdir() if p.name not in ("__init__.py", "__pycache__")]:
            _git(root, "rm", "-qf", str(start.relative_to(root)))
    patterns = dotted(table)
    for path in files_of(root):
        if path.suffix in TEXT and not str(path).startswith(SKIPPED):
            text = (root / path).read_text(encoding="utf-8")
            new = text
            for pattern, mapping in patterns:
                new = pattern.sub(lambda match, mapping=mapping: mapping[match.group(1)], new)
            if new != text:
                (root / path).write_text(new, encoding="utf-8")
    _git(root, "add", "-u")
    bin_folder = ROOT / ".venv" / "bin"
    subprocess.run([bin_folder / "ruff", "check", "-q", "--select", "I,F401", "--fix", "."], cwd=root, check=False)
    subprocess.run([bin_folder / "ruff", "format", "-q", "."], cwd=root, check=False)
    _git(root, "add", "-u")


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"{__doc__}\nexpected the table and a step of it, and perhaps another tree")
    try:
        move(Path(sys.argv[3]) if len(sys.argv) == 4 else ROOT, read_table(Path(sys.argv[1]), sys.argv[2]))
    except MoveError as refused:
        sys.exit(str(refused))
