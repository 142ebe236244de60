"""Tests as calls: what is seen, what is left out, what is no calls; and other inputs of the same kind."""

from __future__ import annotations

import random
from typing import Any

import pytest

from isentrope.worlds.code_repair.grade import files_with_tests
from isentrope.worlds.code_repair.plain import from_plain
from isentrope.worlds.code_repair.probes import Module, calls_of
from isentrope.worlds.code_repair.problem import read_archive, small_packages
from isentrope.worlds.code_repair.variants import variants


def calls(text: str, path: str = "tests/test_a.py") -> Module:
    return calls_of(path, text.encode())


def body(text: str) -> str:
    """The lines of one test as calls."""
    module = calls(f"def test_a():\n    {text}\n")
    assert not module.reasons, module.reasons
    lines = module.source.split("\n")
    return "\n".join(line.strip() for line in lines[1 : lines.index("def _case_0():")]).strip()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("assert f(1) == 2", "_see(f(_constant(0)))"),
        ("assert 2 == f(1)", "_see(f(_constant(0)))"),
        ("assert f(1) == g(2)", "_see(_see(f(_constant(0))) == _see(g(_constant(1))))"),
        ("assert not f(1)", "_true(f(_constant(0)))"),
        ("assert f(1) is None", "_see(f(_constant(0)))"),
        ("assert a.x == [1, 2]", "_see(a.x)"),
        ("assert (a.x, f(2)) == (1, 2)", "_see((a.x, _see(f(_constant(0)))))"),
        ("assert f(1) == pytest.approx(0.3)", "_see(f(_constant(0)))"),
        ("assert [f(n) for n in (1, 2)] == [3, 4]", "_see([_see(f(n)) for n in _constant(0)])"),
        ("assert all(f(n) == n for n in range(3))", "_true(all((_see(f(n)) == n for n in range(_constant(0)))))"),
        ("assert sorted(f(1)) == [1]", "_see(sorted(f(_constant(0))))"),
        ("assert f(lambda x: g(x)) == 3", "_see(f(lambda x: g(x)))"),
        ("assert f(g(x) for x in y) == 3", "_see(f((g(x) for x in y)))"),
        ("x = f([1, 'a', {2: None}])", "x = _see(f(_constant(0)))"),
        ("assert f(1)[0] == 5", "_see(_see(f(_constant(0)))[0])"),
        ("assert 3 in a", "_see(_constant(0) in _see(a))"),
        ("assert f(1) not in (2, 3)", "_see(f(_constant(0)))"),
        ("assert a.x == 1 and f(2) == 3", "_true(_see(a.x) == _constant(0) and _see(f(_constant(1))) == _constant(2))"),
        ("assert any(x.y == z for x in a)", "_true(any((_see(x.y) == _see(z) for x in a)))"),
        ("assert all(map(lambda n: f(n) == 2, a))", "_true(all(map(lambda n: _see(f(n)) == _constant(0), a)))"),
        ("assert next(x == 3 for x in f(1))", "_true(next((_see(x) == _constant(0) for x in _see(f(_constant(1))))))"),
        ("with pytest.raises(ValueError, match='no'): f(1)", "with _raises(ValueError, 'no'):\n_see(f(_constant(0)))"),
    ],
)
def test_what_is_seen(text: str, seen: str) -> None:
    assert body(text) == seen


def test_no_expected_value_is_left() -> None:
    module = calls(
        "import pytest\nKNOWN = [7, 8]\n@pytest.mark.parametrize(('text', 'expected'), [('1+2', 3), ('4', 44)])\n"
        "def test_a(text, expected):\n    assert value(text) == expected\n"
        "def test_b():\n    assert value('x') == KNOWN\n    assert value('y') == 55\n"
    )
    assert [case.test for case in module.cases] == [
        "tests/test_a.py::test_a[1+2-3]", "tests/test_a.py::test_a[4-44]", "tests/test_a.py::test_b"
    ]  # fmt: skip
    assert not {3, 44, 55} & {value for value in module.values if not isinstance(value, list)}
    assert [tuple(module.values[number] for number in case.constants) for case in module.cases] == [
        ("1+2",), ("4",), ("x", "y")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def check(n, m):\n    assert f(n) == m\ndef test_a():\n    check(2, 4)", "_see(f(n)) == _see(m)"),
        (
            "def right(n):\n    return f(n) == 2 * n\ndef test_a():\n    assert right(3)",
            "_see(f(n)) == _see(_constant(0) * n)",
        ),
        (
            "class TestA:\n  def ok(self, n):\n    return n.x == 1\n  def test_a(self):\n    assert self.ok(a)",
            "_see(n.x)",
        ),
        ("def test_a():\n    match f(1):\n        case [x]:\n            assert x == 2", "_see(x)"),
        ("class Sink:\n    def take(self, n):\n        assert n > 3\ndef test_a():\n    feed(Sink())", "_see(n)"),
        ("def test_a():\n    def take(n):\n        assert n == 'a'\n    feed(take)", "_see(n)"),
        (
            "class TestA:\n    def g(self, n):\n        assert n.x == 1\n    def test_a(self):\n        self.g(f(1))",
            "_see(n.x)",
        ),
    ],
)
def test_what_helpers_assert_is_not_decided_in_the_box(text: str, told: str) -> None:
    source = calls(text + "\n").source
    assert told in source
    assert "assert" not in source


@pytest.mark.parametrize(
    "text",
    [
        "def even(n):\n    return n % 2 == 0\ndef test_a():\n    assert f(even, [1]) == [3]",
        "class Node:\n    def even(self):\n        return self.n == 0\ndef test_a():\n    assert f(Node()) == [3]",
    ],
)
def test_what_is_handed_to_the_package_is_not_told(text: str) -> None:
    """It may call that as often as it likes."""
    assert "_see" not in calls(text + "\n").source.partition("def _test_a")[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("X = [1]\ndef test_a():\n    sort(X)\n    assert X == [2]", True),
        ("X = [1]\ndef test_a():\n    for X in f():\n        assert X == [2]", True),
        ("X = [1]\ndef test_a():\n    assert f(2) == X", False),
        ("X = [1]\ndef test_a():\n    assert f(2) == [X, 3]", False),
        ("X = 'a'\ndef test_a():\n    g(X)\n    assert f(2) == X", False),
    ],
)
def test_what_the_package_may_have_changed_is_told(text: str, told: bool) -> None:
    assert ("_see(X)" in calls(text + "\n").source) is told


def test_unittest() -> None:
    module = calls(
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.x = 3\n"
        "    def test_a(self):\n        self.assertEqual(f(self.x), 9)\n        self.assertTrue(g(1))\n"
        "        with self.assertRaises(KeyError):\n            f(4)\n        self.assertRaises(KeyError, f, 5)\n"
    )
    assert [case.test for case in module.cases] == ["tests/test_a.py::T::test_a"]
    for part in ("_see(f(self.x))", "_true(g(_constant(1)))", "with _raises(KeyError):", "itself.setUp()"):
        assert part in module.source, module.source
    assert "unittest" not in module.source


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def test_a(tmp_path): pass", "fixtures: tmp_path"),
        ("@pytest.mark.skip\ndef test_a(): pass", "decorator"),
        ("@patch('x')\ndef test_a(m): pass", "decorator"),
        ("@pytest.mark.parametrize('x', xs)\ndef test_a(x): pass", "computed"),
        ("@pytest.mark.parametrize('x', [[1], [2]])\ndef test_a(x): pass", "named by their places"),
        ("@pytest.mark.parametrize('x', [1, 1])\ndef test_a(x): pass", "no names of their own"),
        ("def test_a():\n    pytest.skip('no')", "beyond raises"),
        ("def test_a():\n    with pytest.warns(UserWarning): f()", "beyond raises"),
        ("async def test_a(): pass", "asynchronous"),
        ("def test_a():\n    yield 3", "generator"),
        ("class TestA(Base):\n    def test_a(self): pass", "inherits"),
        ("class T(unittest.TestCase):\n    def test_a(self): self.assertCountEqual(f(), [])", "self.assertCountEqual"),
        ("def test_a(", "cannot be read"),
    ],
)
def test_what_is_no_calls(text: str, why: str) -> None:
    module = calls(f"import pytest, unittest\n{text}\n")
    assert not module.cases
    (reason,) = module.reasons.values()
    assert why in reason


def test_names_of_parameters_as_pytest_gives_them() -> None:
    module = calls(
        "import pytest\n@pytest.mark.parametrize('a', [True, None, 1.5])\n@pytest.mark.parametrize('b', ['x y', ''])\n"
        "def test_a(a, b): pass\n"
    )
    names = [case.test.partition("::test_a")[2] for case in module.cases]
    assert names == ["[x y-True]", "[-True]", "[x y-None]", "[-None]", "[x y-1.5]", "[-1.5]"]


def test_relative_imports_get_their_full_names() -> None:
    source = calls("from ..core import x\nfrom . import y\n", "src/pkg/tests/test_a.py").source
    assert source == "from pkg.core import x\nfrom pkg.tests import y"


def test_every_shipped_test_is_calls() -> None:
    for name in small_packages():
        files = read_archive(f"small:{name}")
        modules = [calls_of(path, files[path].data) for path in files_with_tests(files)]
        assert not any(module.reasons for module in modules)
        assert sum(len(module.cases) for module in modules) >= 16


# other inputs


def drawn(value: Any, count: int = 60) -> list[Any]:
    found = variants([value, 7, "seven"], [0], count, random.Random(3))
    return [from_plain(change[0][1]) for change in found]


@pytest.mark.parametrize(
    "value", [5, -1, True, 2.5, "abc", b"abc", [1, 2], (1, 2), {1, 2}, {"a": 1}, [[1, 2], [3, 4]], [("a", 1), ("b", 2)]]
)
def test_others_are_of_the_same_type_and_different(value: Any) -> None:
    others = drawn(value)
    assert len(others) >= (1 if isinstance(value, bool) else 3)
    assert all(type(other) is type(value) and other != value for other in others)
    assert others == drawn(value)


def test_others_keep_the_shape() -> None:
    assert any(other.count(" ") == 3 and other.replace(" ", "").isdigit() for other in drawn("4539 3195 0343 6467"))
    assert all(len(other) == 2 for other in drawn((1, 2)))
    assert all(abs(other) <= 2 * 3999 + 3 for other in drawn(3999))


def test_what_belongs_together_mostly_stays_together() -> None:
    values = ["nail", 3, "nail"]
    found = variants(values, [0, 1, 2], 200, random.Random(1))
    both = [{number: from_plain(tree) for number, tree in change} for change in found]
    changed = [one for one in both if 0 in one or 2 in one]
    assert sum(one.get(0) == one.get(2) for one in changed) > len(changed) / 2
