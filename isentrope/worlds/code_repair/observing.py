"""The statements of a test, with what it compares seen and what it expects left out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

_LAZY = {"range", "zip", "enumerate", "iter", "map", "filter", "reversed", "super", "print", "cycle", "count"}
_UNORDERED = {
    "sorted",
    "set",
    "frozenset",
    "Counter",
    "sum",
    "min",
    "max",
}  # the order of what they get is not looked at
_EAGER = _UNORDERED | {"all", "any", "list", "tuple", "dict", "len", "join", "next"}  # run what they get at once
_PAIRS = {
    "assertEqual": ast.Eq, "assertEquals": ast.Eq, "assertListEqual": ast.Eq, "assertDictEqual": ast.Eq,
    "assertTupleEqual": ast.Eq, "assertSetEqual": ast.Eq, "assertSequenceEqual": ast.Eq, "assertNotEqual": ast.NotEq,
    "assertMultiLineEqual": ast.Eq, "assertIn": ast.In, "assertNotIn": ast.NotIn, "assertIs": ast.Is,
    "assertIsNot": ast.IsNot, "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE, "assertAlmostEqual": ast.Eq,
}  # fmt: skip
_SINGLE = {"assertTrue", "assertFalse", "assertIsNone", "assertIsNotNone", "assert_"}
_RAISES = {"assertRaises": False, "assertRaisesRegex": True}


class NoCalls(Exception):
    """The test is more than calls; the text says why."""


def is_literal(node: ast.AST) -> bool:
    """Whether it is a value that stands there in full, of types that `from_plain` gives back as they were."""
    if not isinstance(node, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple | ast.Set | ast.Dict):
        return False
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return len(value) < 300 and all(_is_plain(one) for one in value)  # pyright: ignore
    if isinstance(value, dict):
        return len(value) < 300 and all(_is_plain(one) for pair in value.items() for one in pair)  # pyright: ignore
    return value is None or (type(value) in (bool, int, float) and value == value) or (
        type(value) in (str, bytes) and len(value) <= 2000
    )  # fmt: skip


def changeable(node: ast.expr) -> bool:
    """Whether the package may change the value in place."""
    return any(isinstance(one, ast.List | ast.Set | ast.Dict) for one in ast.walk(node))


def only_compared(given: set[str], mutable: set[str], body: Sequence[ast.stmt]) -> set[str]:
    """Those given names whose values are still what the text says where something is compared with them: the body
    gives them no other value, and hands none that is mutable to anybody."""
    sides = {id(part) for one in body for node in ast.walk(one) for side in _sides(node) for part in _parts(side)}
    rest = [one for node in body for one in ast.walk(node) if id(one) not in sides]
    used = {one.id for one in rest if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    bound = {one.id for one in rest if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    bound |= {one.arg for one in rest if isinstance(one, ast.arg)}
    return given - bound - (used & mutable)


def _sides(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PAIRS:
        return node.args[:2]
    return []


def _parts(node: ast.expr) -> list[ast.expr]:
    inner: list[ast.expr] = []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        inner = node.elts
    elif _is_approx(node):
        inner = node.args
    return [node, *(part for one in inner for part in _parts(one))]


def _is_approx(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.approx", "approx")


def handed_on(tree: ast.AST) -> set[str]:
    """Names of what the package may call: functions and methods that are used in other ways than to call them, and
    classes that are used at all."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    words = [(node.id if isinstance(node, ast.Name) else node.attr, id(node) in called) for node in names]
    return {word for word, only_called in words if not only_called or word in classes}


class Watched:
    """Rewrites the statements of one test."""

    def __init__(self, given: set[str], itself: str | None, handed: set[str]) -> None:
        self._given, self._itself = given, itself  # names whose values come from the test's text
        self._handed = handed  # names of functions that the package may call

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Assert):
            return self.assertion(node.test)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and (name := self._method(node.value)):
            return self._unittest(name, node.value)
        if isinstance(node, ast.With):
            return [ast.With([self._item(one) for one in node.items], self._block(node.body))]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            return [self.defined(node)]
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self._expression(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._block(value))  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
                for part in value:  # pyright: ignore[reportUnknownVariableType]
                    part.body = self._block(part.body)  # pyright: ignore
        return [node]

    def defined(self, node: ast.stmt) -> ast.stmt:
        """What is defined beside the tests or in one. The package may call it as often as it likes, so that calls in
        it are not seen. But what it asserts is: an assertion that stays would be decided in the box. So is what it
        returns, if nobody but the tests calls it."""
        return _Asserted(self, self._handed).visit(node)

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [part for one in body for part in self.statement(one)]

    def _expression(self, node: ast.expr) -> Any:
        return _Seen().visit(node)

    def compared(self, node: ast.expr) -> Any:
        """Part of an assertion."""
        return _Seen(self._is_expected).visit(node)

    def _method(self, node: ast.Call) -> str | None:
        """assertEqual of self.assertEqual(...)"""
        at = node.func
        own = isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name) and at.value.id == self._itself
        return at.attr if isinstance(at, ast.Attribute) and own and at.attr.startswith(("assert", "fail")) else None

    def assertion(self, test: ast.expr) -> list[ast.stmt]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.assertion(test.operand)
        if not isinstance(test, ast.Compare):
            seen = self.compared(test)
            return [_statement("_true", seen.args[0] if _is_see(seen) else seen)]
        sides = [test.left, *test.comparators]
        wanted = [side for side in sides if not self._is_expected(side)]
        parts: list[ast.expr] = [_see(self.compared(side)) for side in wanted]
        if len(sides) == 2 and wanted == sides[1:] and isinstance(test.ops[0], ast.In | ast.NotIn):
            # what is looked for is given to `__contains__`, which is a call like others
            return [_statement("_see", ast.Compare(test.left, test.ops, parts))]
        if len(wanted) < len(sides):
            return [ast.Expr(one) for one in parts] or [ast.Pass()]
        return [_statement("_see", ast.Compare(parts[0], test.ops, parts[1:]))]

    def _is_expected(self, node: ast.expr) -> bool:
        """Whether it is made of nothing but what stands in the test's text."""
        if _is_approx(node):
            return all(self._is_expected(one) for one in node.args)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return all(self._is_expected(one) for one in node.elts)
        return is_literal(node) or (isinstance(node, ast.Name) and node.id in self._given)

    def _unittest(self, name: str, node: ast.Call) -> list[ast.stmt]:
        if name in _PAIRS and len(node.args) >= 2:
            return self.assertion(ast.Compare(node.args[0], [_PAIRS[name]()], [node.args[1]]))
        if name in _SINGLE and node.args:
            return self.assertion(node.args[0])
        if name == "assertIsInstance" and len(node.args) >= 2:
            return [
                _statement("_see", ast.Call(ast.Name("isinstance"), [self._expression(node.args[0]), node.args[1]], []))
            ]
        if name in _RAISES and len(node.args) > 1 + _RAISES[name]:
            kinds, rest = node.args[: 1 + _RAISES[name]], node.args[1 + _RAISES[name] :]
            call = ast.Call(rest[0], rest[1:], node.keywords)
            inside = [ast.Expr(self._expression(call))]
            return [ast.With([ast.withitem(ast.Call(ast.Name("_raises"), kinds, []))], list(inside))]
        raise NoCalls(f"it uses self.{name}")

    def _item(self, item: ast.withitem) -> ast.withitem:
        at = item.context_expr
        if isinstance(at, ast.Call):
            name = ast.unparse(at.func)
            method = self._method(at)
            if name in ("pytest.raises", "raises"):
                patterns = [one.value for one in at.keywords if one.arg == "match"]
                if len(at.args) != 1 or len(patterns) < len(at.keywords):
                    raise NoCalls("it uses pytest.raises with more than a class and a pattern")
                return ast.withitem(_raises([*at.args, *patterns]), item.optional_vars)
            if method in _RAISES and len(at.args) == 1 + _RAISES[method]:
                return ast.withitem(_raises(at.args), item.optional_vars)
            if method:
                raise NoCalls(f"it uses self.{method}")
        return ast.withitem(self._expression(at), item.optional_vars)


class _Asserted(ast.NodeTransformer):
    """Puts `_see` and `_true` in the place of assertions, and into what is returned to a test alone."""

    def __init__(self, watched: Watched, handed: set[str]) -> None:
        self._watched, self._handed = watched, handed
        self._to_tests, self._foreign = (
            False,
            False,
        )  # whether only tests call what we are in, or others an object of it

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer = self._to_tests
        self._to_tests = not self._foreign and node.name not in self._handed and not node.name.startswith("__")
        self.generic_visit(node)
        self._to_tests = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self._foreign = self._foreign, self._foreign or node.name in self._handed
        self.generic_visit(node)
        self._foreign = outer
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._to_tests and node.value is not None:
            node.value = self._watched.compared(node.value)
        return node

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        return self._watched.assertion(node.test)


class _Seen(ast.NodeTransformer):
    """Puts `_see` around calls. Inside a function or a lazy generator the package decides when and how often.

    In an assertion (`is_expected` is given) it is put around whatever else is compared as well: of a comparison whose
    sides are not told only its outcome is, and that is easily guessed.
    """

    def __init__(self, is_expected: Callable[[ast.expr], bool] | None = None) -> None:
        self._is_expected = is_expected

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        expected = self._is_expected
        if expected is None:
            return self.generic_visit(node)
        bare = [expected(side) for side in _sides(node)]
        self.generic_visit(node)
        told = any(_is_see(side) for side in _sides(node))
        node.left, *node.comparators = [
            side if given or (told and isinstance(side, ast.Name)) else _see(side)
            for side, given in zip(_sides(node), bare, strict=True)
        ]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        node.func = self.visit(node.func)
        node.args = [self._argument(one, name) for one in node.args]
        for one in node.keywords:
            one.value = self.visit(one.value)
        return node if name in _LAZY else _see(node)

    def _argument(self, node: ast.expr, name: str) -> Any:
        if isinstance(node, ast.GeneratorExp) and name in _EAGER:
            return self.generic_visit(node)
        if isinstance(node, ast.GeneratorExp):
            node.generators[0].iter = self.visit(node.generators[0].iter)  # this much is run at once
            return node
        if name in _EAGER and isinstance(node, ast.Call) and ast.unparse(node.func) in ("map", "filter"):
            for one in node.args:
                if isinstance(one, ast.Lambda):
                    one.body = self.visit(one.body)
        seen = self.visit(node)
        return seen.args[0] if name in _UNORDERED and seen is not node and _is_see(seen) else seen

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def _see(node: ast.expr) -> ast.expr:
    return node if _is_see(node) else ast.Call(ast.Name("_see"), [node], [])


def _is_see(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_see"


def _statement(name: str, node: ast.expr) -> ast.stmt:
    return ast.Expr(node if name == "_see" and _is_see(node) else ast.Call(ast.Name(name), [node], []))


def _raises(args: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Name("_raises"), args, [])
