"""Bugs by text offset: what changes, what stays, and that there is a way back."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.code_repair.mutate import KINDS, Mutant, mutants
from isentrope.worlds.code_repair.problem import read_archive, small_packages

SOURCE = b'''"""1 < 2 and True stay as they are in a docstring."""

LIMIT = 3  # not 4: a comment, < and all


def count(things: list[int | None], least: int = 0) -> int | None:
    found = 0
    for index in range(len(things)):
        if things[index] is None or things[index] <= least:  # \xc3\xa9 before <=
            continue
        found += 1
        put(things, found)
    return found
'''


def changes(source: bytes) -> set[tuple[str, str, str]]:
    return {(one.kind, one.old, one.new) for one in mutants("x.py", source)}


def test_every_kind_of_bug() -> None:
    assert changes(SOURCE) == {
        ("boundary", "3", "4"),
        ("boundary", "3", "2"),
        ("boundary", "0", "1"),
        ("boundary", "1", "2"),
        ("boundary", "1", "0"),
        ("boundary", "len(things)", "len(things) - 1"),
        ("boundary", "len(things)", "len(things) + 1"),
        ("compare", "is", "is not"),
        ("logic", "or", "and"),
        ("compare", "<=", "<"),
        ("loop", "continue", "break"),
        ("arithmetic", "+=", "-="),
        ("statement", "found += 1", "pass"),
        ("statement", "put(things, found)", "pass"),
        ("arguments", "things, found", "found, things"),
        ("return", "return found", "return None"),
    }
    # the default of an argument, annotations, comments and the docstring are left alone
    lines = {SOURCE[: one.offset].count(b"\n") + 1 for one in mutants("x.py", SOURCE)}
    assert 1 not in lines
    assert 6 not in lines


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a not in b", ("compare", "not in", "in")),
        ("x = a is not b", ("compare", "is not", "is")),
        ("x = (a) == (b)", ("compare", "==", "!=")),
        ("x = (a *\n     b)", ("arithmetic", "*", "+")),
        ("x = a // b", ("arithmetic", "//", "/")),
        ("x = not a", ("logic", "not ", "")),
        ("x = True", ("constant", "True", "False")),
        ("a.b = c", ("statement", "a.b = c", "pass")),
        ("while a:\n    break", ("loop", "break", "continue")),
    ],
)
def test_single_places(code: str, expected: tuple[str, str, str]) -> None:
    assert expected in changes(code.encode())


def test_operators_beside_comments_and_odd_text() -> None:
    assert changes(b"x = (a  # < here\n     < b)") == set()
    assert changes(b"def broken(:") == set()
    assert changes(b"\xff = 1") == set()
    assert changes(b"\x00") == set()
    assert changes(b"x = 0x10 + y") == {("arithmetic", "+", "-")}  # only plain numbers are off by one


@pytest.mark.parametrize("package", small_packages()[:3])
def test_there_and_back(package: str) -> None:
    for path, item in read_archive(f"small:{package}").items():
        if path.endswith(".py"):
            for mutant in mutants(path, item.data):
                changed = mutant.apply(item.data)
                assert changed != item.data
                assert mutant.undo(changed) == item.data
                assert mutant.kind in KINDS
                ast.parse(changed)
                before, after = ast.dump(ast.parse(item.data)), ast.dump(ast.parse(changed))
                assert before != after, mutant


@given(st.integers(-1, 40), st.text(max_size=4), st.binary(max_size=40))
def test_a_bug_that_does_not_fit_is_refused(offset: int, old: str, source: bytes) -> None:
    mutant = Mutant("x.py", max(0, offset), old, "new", "compare", "")
    if source[max(0, offset) :].startswith(old.encode("utf-8", "replace")) and old.isascii():
        assert mutant.apply(source).startswith(source[: max(0, offset)] + b"new")
    elif old.isascii():
        with pytest.raises(TaskError, match="not the one the task names"):
            mutant.apply(source)
