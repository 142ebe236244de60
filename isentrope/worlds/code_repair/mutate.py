"""Puts small bugs into source code, each at one offset of a file, so that everything else stays as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from isentrope.core.errors import TaskError

KINDS = ("compare", "arithmetic", "logic", "boundary", "constant", "return", "statement", "arguments", "loop")

_COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in",
            "is": "is not", "is not": "is"}  # fmt: skip
_ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "/", "%": "//", "**": "*", "<<": ">>", ">>": "<<",
               "&": "|", "|": "&", "+=": "-=", "-=": "+=", "*=": "+="}  # fmt: skip
_OPERATOR = re.compile(rb"[\s)\\]*?(is not|not in|is|in|and|or|[-+*/%<>=!&|]+)[\s(\\]*")
_LOGIC = {"and": "or", "or": "and"}
_Change = tuple[int, int, str, str]  # start, end, what to put there, kind of bug


@dataclass(frozen=True)
class Mutant:
    """Replace `old`, which stands at byte `offset` of `file`, by `new`."""

    file: str
    offset: int
    old: str
    new: str
    kind: str
    function: str  # the function or class it is in, e.g. Account.withdraw

    def apply(self, source: bytes) -> bytes:
        return _exchanged(source, self.offset, self.old.encode(), self.new.encode(), self.file)

    def undo(self, source: bytes) -> bytes:
        return _exchanged(source, self.offset, self.new.encode(), self.old.encode(), self.file)


def _exchanged(source: bytes, offset: int, old: bytes, new: bytes, file: str) -> bytes:
    if source[offset : offset + len(old)] != old:
        raise TaskError(f"{file} does not have {old!r:.60} at byte {offset}: the archive is not the one the task names")
    return source[:offset] + new + source[offset + len(old) :]


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Every bug we know how to make in this file, in the order of the text; none if it cannot be read."""
    tree = parsed(source)
    if tree is None or source.decode("utf-8", "replace").encode() != source:  # not UTF-8
        return []
    found = [mutant for mutant in _Finder(file, source).mutants(tree) if parsed(mutant.apply(source)) is not None]
    return sorted(found, key=lambda one: (one.offset, one.old, one.new))


def parsed(source: bytes) -> ast.Module | None:
    """None if it cannot be read as Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Finder:
    """Walks over the code that runs; annotations and decorators are left alone."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def mutants(self, node: ast.AST, function: str = "") -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}" if function else node.name
        for start, end, new, kind in self._changes(node):
            yield Mutant(self._file, start, self._source[start:end].decode(), new, kind, function)
        for name, value in ast.iter_fields(node):
            skipped = name in ("annotation", "returns", "decorator_list", "bases")
            if skipped or (name == "keywords" and not isinstance(node, ast.Call)):
                continue
            for child in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
                if isinstance(child, ast.AST) and not isinstance(child, ast.arguments | ast.Import | ast.ImportFrom):
                    yield from self.mutants(child, function)

    def _changes(self, node: ast.AST) -> Iterator[_Change]:
        if isinstance(node, ast.Compare):
            for left, right in pairwise([node.left, *node.comparators]):
                yield from self._operator(left, right, _COMPARE, "compare")
        elif isinstance(node, ast.BinOp):
            yield from self._operator(node.left, node.right, _ARITHMETIC, "arithmetic")
        elif isinstance(node, ast.AugAssign):
            yield from self._operator(node.target, node.value, _ARITHMETIC, "arithmetic")
            yield self._start(node), self._end(node), "pass", "statement"
        elif isinstance(node, ast.BoolOp):
            for left, right in pairwise(node.values):
                yield from self._operator(left, right, _LOGIC, "logic")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._start(node), self._start(node.operand), "", "logic"
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.stmt):
            yield from self._statement(node)

    def _operator(self, left: ast.expr, right: ast.expr, table: dict[str, str], kind: str) -> Iterator[_Change]:
        """The operator between two operands, around which there may be brackets and line breaks but no comment."""
        start = self._end(left)
        match = _OPERATOR.fullmatch(self._source[start : self._start(right)])
        if match and match[1].decode() in table:
            yield start + match.start(1), start + match.end(1), table[match[1].decode()], kind

    def _constant(self, node: ast.Constant) -> Iterator[_Change]:
        start, end = self._start(node), self._end(node)
        if isinstance(node.value, bool):
            yield start, end, str(not node.value), "constant"
        elif isinstance(node.value, int) and self._source[start:end].isdigit():
            yield start, end, str(node.value + 1), "boundary"
            if node.value > 0:
                yield start, end, str(node.value - 1), "boundary"

    def _call(self, node: ast.Call) -> Iterator[_Change]:
        plain = [one for one in node.args if isinstance(one, ast.Name | ast.Attribute | ast.Constant | ast.Subscript)]
        if len(plain) >= 2 and plain[:2] == node.args[:2]:
            (a, b), (c, d) = ((self._start(one), self._end(one)) for one in plain[:2])
            first, second = self._source[a:b], self._source[c:d]
            if first != second:
                yield a, d, (second + self._source[b:c] + first).decode(), "arguments"
        if isinstance(node.func, ast.Name) and node.func.id == "range" and node.args:
            last = node.args[-1 if len(node.args) < 3 else 1]
            start, end = self._start(last), self._end(last)
            if isinstance(last, ast.Name | ast.Call | ast.Attribute):
                for step in ("- 1", "+ 1"):
                    yield start, end, f"{self._source[start:end].decode()} {step}", "boundary"

    def _statement(self, node: ast.stmt) -> Iterator[_Change]:
        start, end = self._start(node), self._end(node)
        if isinstance(node, ast.Return) and node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield start, end, "return None", "return"
        elif _removable(node):
            yield start, end, "pass", "statement"
        elif isinstance(node, ast.Break):
            yield start, end, "continue", "loop"
        elif isinstance(node, ast.Continue):
            yield start, end, "break", "loop"

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def _removable(node: ast.stmt) -> bool:
    """A statement with an effect that others do not need in order to run: a call, or a change inside something."""
    if isinstance(node, ast.Assign):
        return all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
