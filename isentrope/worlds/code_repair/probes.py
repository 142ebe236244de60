"""Turns a package's tests into calls: what a test does stays, what it expects is left out.

    assert area(2, 3) == 6                      _see(area(_constant(0), _constant(1)))
    with pytest.raises(ValueError): area(-1, 2) with _raises(ValueError): _see(area(_constant(2), _constant(3)))

The text is read, never run, on this side. What `_see` is given is sent out of the box as a plain value, and compared
there with what the known repair returned. The constants are numbered so that others can be put in their places
(`variants.py`). What a test needs beyond that (fixtures, decorators, other uses of pytest) makes it no calls: `reasons`
says which and why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeGuard

from isentrope.worlds.code_repair.mutate import parsed
from isentrope.worlds.code_repair.observing import (
    NoCalls,
    Watched,
    changeable,
    handed_on,
    is_literal,
    only_compared,
)
from isentrope.worlds.code_repair.plain import to_plain


@dataclass(frozen=True)
class Case:
    """One test with one set of parameters: `_case_0()` of its module."""

    test: str  # as pytest names it
    number: int
    constants: tuple[int, ...]  # those that it uses


@dataclass
class Module:
    """One test file, as calls."""

    path: str
    source: str = ""
    constants: list[Any] = field(default_factory=list[Any])  # as plain.py writes them
    values: list[Any] = field(default_factory=list[Any])
    cases: list[Case] = field(default_factory=list[Case])
    reasons: dict[str, str] = field(default_factory=dict[str, str])  # by test function: why it is no calls


def calls_of(path: str, data: bytes) -> Module:
    """The test file's tests as calls."""
    module = Module(path)
    tree = parsed(data)
    if tree is None:
        module.reasons[path] = "it cannot be read"
        return module
    _Reader(module).read(tree)
    return module


class _Reader:
    """Goes through the statements of a test file."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._body: list[ast.stmt] = []
        self._owned: list[tuple[set[str], set[str], list[int]]] = []  # defined names, used names, constants
        self._globals: set[str] = set()  # names of values that stand in the file
        self._mutable: set[str] = set()  # those that the package may change in place
        self._handed: set[str] = set()

    def read(self, tree: ast.Module) -> None:
        tests: list[tuple[str, ast.FunctionDef, ast.ClassDef | None]] = []
        self._handed = handed_on(tree)
        values = [node for node in tree.body if _is_value(node)]
        self._globals = {name for node in values for name in _defined(node)}
        self._mutable = {name for node in values if changeable(node.value) for name in _defined(node)}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                tests.append((node.name, node, None))
            elif isinstance(node, ast.ClassDef) and _holds_tests(node):
                tests += self._class(node)
            elif isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test"):
                self._module.reasons[node.name] = "it is asynchronous"
            elif not _speaks_of(node, {"pytest", "unittest"}):
                self._add(_here(node, self._module.path), {*_defined(node)})
        for name, node, holder in tests:
            try:
                self._test(name, node, holder)
            except NoCalls as why:
                self._module.reasons[name] = str(why)
        made = ast.Module(self._body, [])
        self._module.source = ast.unparse(ast.fix_missing_locations(made))

    def _add(self, node: ast.stmt, defined: set[str]) -> None:
        """A statement of the file as it is, its constants numbered."""
        first = len(self._module.constants)
        used = _loaded(node)
        node = Watched(only_compared(self._globals, self._mutable, [node]), None, self._handed).defined(node)
        self._body.append(_Numbered(self._module).visit(node))
        self._owned.append((defined, used, list(range(first, len(self._module.constants)))))

    def _class(self, node: ast.ClassDef) -> Iterator[tuple[str, ast.FunctionDef, ast.ClassDef]]:
        """Its tests; what else is in it stays in a class without them."""
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test")]
        bases = [ast.unparse(base) for base in node.bases]
        bare = all(base in ("TestCase", "unittest.TestCase", "object") for base in bases) and not node.keywords
        if not bare or node.decorator_list:
            reason = "its class has a decorator or inherits"
        elif any(_speaks_of(one, {"pytest", "unittest", "super", "classmethod"}) for one in node.body
                 if one not in methods):  # fmt: skip
            reason = "its class uses pytest, unittest or class methods"
        else:
            rest: list[ast.stmt] = [one for one in node.body if one not in methods] or [ast.Pass()]
            self._add(ast.ClassDef(node.name, [], [], rest, []), {node.name})
            yield from ((f"{node.name}::{one.name}", one, node) for one in methods)
            return
        self._module.reasons |= {f"{node.name}::{one.name}": reason for one in methods}

    def _test(self, name: str, node: ast.FunctionDef, holder: ast.ClassDef | None) -> None:
        rows = _rows(node)
        names = [one.arg for one in node.args.args]
        itself = names.pop(0) if holder is not None and names else None
        if node.args.kwonlyargs or node.args.vararg or node.args.kwarg or node.args.posonlyargs or node.args.defaults:
            raise NoCalls("it takes other arguments than parameters")
        if missing := [one for one in names if any(one not in row for _, row in rows)]:
            raise NoCalls(f"it takes fixtures: {', '.join(missing)}")
        first = len(self._module.constants)
        watched = Watched(only_compared(self._globals | set(names), self._mutable, node.body), itself, self._handed)
        body = [part for one in node.body if not _is_text(one) for part in watched.statement(one)] or [ast.Pass()]
        if any(_speaks_of(one, {"pytest", "unittest"}) for one in body):
            raise NoCalls("it uses pytest or unittest beyond raises and assertions")
        if any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await) for part in body for one in ast.walk(part)):
            raise NoCalls("it is a generator")
        function = f"_{name.replace('::', '_')}"
        made = ast.FunctionDef(function, node.args, body, [])
        self._body.append(_Numbered(self._module).visit(made))
        own = list(range(first, len(self._module.constants)))
        used = {one for part in body for one in _loaded(part)}
        used |= {holder.name} if holder is not None else set[str]()
        shared = self._needed(used)
        for identity, row in rows:
            first = len(self._module.constants)
            given: list[ast.expr] = [
                _Numbered(self._module).visit(row[one]) if one in used else ast.Constant(None) for one in names
            ]
            numbers = (*own, *range(first, len(self._module.constants)), *shared)
            self._case(function, given, holder, f"{self._module.path}::{name}{identity}", numbers)

    def _case(
        self, function: str, given: list[ast.expr], holder: ast.ClassDef | None, test: str, numbers: tuple[int, ...]
    ) -> None:
        number = len(self._module.cases)
        call = f"{function}({', '.join(ast.unparse(ast.fix_missing_locations(one)) for one in given)})"
        text = f"def _case_{number}():\n    {call}"
        if holder is not None:
            methods = {one.name for one in holder.body if isinstance(one, ast.FunctionDef)}
            before = [f"itself.{one}()" for one in ("setUp", "setup_method") if one in methods]
            call = f"{function}({', '.join(['itself', *(ast.unparse(one) for one in given)])})"
            lines = [f"itself = {holder.name}()", *before, call]
            text = f"def _case_{number}():\n    " + "\n    ".join(lines)
        self._body += ast.parse(text).body
        self._module.cases.append(Case(test, number, numbers))

    def _needed(self, used: set[str]) -> list[int]:
        """Constants of the file's other statements that the names lead to."""
        names, numbers = set(used), list[int]()
        for defined, more, held in reversed(self._owned):
            if defined & names:
                names |= more
                numbers += held
        return sorted(numbers)


def _rows(node: ast.FunctionDef) -> list[tuple[str, dict[str, ast.expr]]]:
    """The sets of parameters of a test: how pytest names each, and the expressions by name."""
    tables: list[list[tuple[str, dict[str, ast.expr]]]] = []
    for mark in node.decorator_list:
        if not isinstance(mark, ast.Call) or not ast.unparse(mark.func).endswith("mark.parametrize"):
            raise NoCalls(f"it has the decorator {ast.unparse(mark):.60}")
        if len(mark.args) != 2 or mark.keywords:
            raise NoCalls("its parameters have options")
        named, table = mark.args
        names = _parameter_names(named)
        if not isinstance(table, ast.List | ast.Tuple):
            raise NoCalls("its parameters are computed")
        tables.append([_row(names, row) for row in table.elts])
    rows: list[tuple[str, dict[str, ast.expr]]] = []
    for choice in product(*tables):  # pytest names the parameters of the lowest decorator first
        identity = "-".join(one for one, _ in reversed(choice))
        rows.append((f"[{identity}]" if choice else "", {name: one for _, row in choice for name, one in row.items()}))
    if len({identity for identity, _ in rows}) < len(rows):
        raise NoCalls("its parameters have no names of their own")
    return rows


def _parameter_names(node: ast.expr) -> list[str]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise NoCalls("the names of its parameters are computed") from None
    names = value.split(",") if isinstance(value, str) else value
    return [str(name).strip() for name in names if str(name).strip()]


def _row(names: list[str], row: ast.expr) -> tuple[str, dict[str, ast.expr]]:
    values = [row] if len(names) == 1 else list(row.elts) if isinstance(row, ast.Tuple | ast.List) else []
    if len(values) != len(names):
        raise NoCalls("its parameters are not written out")
    words: list[str] = []
    for value in values:
        literal = ast.literal_eval(value) if is_literal(value) else ...
        if isinstance(literal, str) and literal.isascii() and literal.isprintable():
            words.append(literal.replace("\\", "\\\\"))
        elif literal is None or isinstance(literal, bool | int | float):
            words.append(str(literal))
        else:
            raise NoCalls("its parameters are named by their places")
    return "-".join(words), dict(zip(names, values, strict=True))


class _Numbered(ast.NodeTransformer):
    """Replaces the values that stand in the text by `_constant(0)`, `_constant(1)`, ..."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and is_literal(node):
            value = ast.literal_eval(node)
            if value is None or value == ():
                return node
            self._module.values.append(value)
            self._module.constants.append(to_plain(value))
            number: ast.expr = ast.Constant(len(self._module.constants) - 1)
            return ast.Call(ast.Name("_constant"), [number], [])
        return super().visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if _is_text(node) else self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)  # a place is no input
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Match(self, node: ast.AST) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "_raises":
            return node  # the pattern of a message is no input
        return self.generic_visit(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_value(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and is_literal(node.value)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _holds_tests(node: ast.ClassDef) -> bool:
    return any(isinstance(one, ast.FunctionDef) and one.name.startswith("test") for one in node.body)


def _speaks_of(node: ast.AST, names: set[str]) -> bool:
    """Whether the statement imports or uses one of these names."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in names:
            return True
        if isinstance(one, ast.ImportFrom) and (one.module or "").partition(".")[0] in names:
            return True
        if isinstance(one, ast.Import) and any(alias.name.partition(".")[0] in names for alias in one.names):
            return True
    return False


def _here(node: ast.stmt, path: str) -> ast.stmt:
    """An import relative to the tests' folder, with its full name."""
    if isinstance(node, ast.ImportFrom) and node.level:
        folders = path.split("/")[: -node.level]
        folders = folders[1:] if folders[:1] == ["src"] else folders
        return ast.ImportFrom(".".join([*folders, *([node.module] if node.module else [])]), node.names, 0)
    return node
