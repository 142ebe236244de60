"""The tools on files that no shipped package has. No sandbox is needed: nothing is run."""

from __future__ import annotations

import os

import pytest

from isentrope.sandbox.base import Item, Limits, Tree, make_sandbox
from isentrope.worlds.code_repair.workbench import Workbench, parse_action
from isentrope.worlds.code_repair.world import CodeRepairWorld
from isentrope.worlds.pool.open import MOST_THREADS, choose_placement

LINES = "".join(f"x{number}\n" for number in range(1, 201))


class Bench:
    def __init__(self, **files: str) -> None:
        self.sandbox = make_sandbox("bubblewrap", Limits())
        items = {name.replace("_", " ") + ".py": Item(text.encode()) for name, text in files.items()}
        self.sandbox._tree = Tree(items)  # pyright: ignore  # started, without a check that boxes work
        self._bench = Workbench(self.sandbox, items, new_files=True)

    def __call__(self, action: str) -> str:
        return self._bench.do(parse_action(action))


def test_one_line_and_a_page() -> None:
    do = Bench(a=LINES)
    assert do("view a.py 10-10") == "a.py, lines 10-10 of 200:\n10  x10"
    assert do("view a.py 10").startswith("a.py, lines 10-109 of 200:\n")
    assert do("view a.py 10-5") == "a.py, lines 10-10 of 200:\n10  x10"
    assert do("edit a.py 7\ny").startswith("a.py is changed.")
    assert do("search y") == "a.py:7: y"


def test_a_new_file_that_is_taken_back_is_gone() -> None:
    do = Bench(a=LINES)
    do("insert new.py 0\nimport os")
    assert list(do.sandbox.tree.diff()) == ["new.py"]
    assert do("undo new.py") == "new.py is gone again."
    assert do.sandbox.tree.diff() == {}
    assert do("ls") == "a.py"
    do("insert a.py 0\nimport os")
    assert do("undo a.py") == "a.py is as it was."
    assert do.sandbox.tree.diff() == {}


def test_a_blank_in_a_name() -> None:
    do = Bench(a=LINES, two_words=LINES, two_words_3="last\n")
    assert do("view two words.py 3-3") == "two words.py, lines 3-3 of 200:\n3  x3"
    assert do("view  two words 3.py") == "two words 3.py, lines 1-1:\n1  last"
    assert do("edit two words.py 1-2\ny").startswith("two words.py is changed.")
    assert do("insert two words.py 0\nz").startswith("two words.py is changed.")
    assert do("replace two words.py\nx200\n====\nend").startswith("two words.py is changed.")
    assert do("undo two words.py") == "two words.py is as it was."


@pytest.mark.parametrize(("cores", "threads"), [(1, 2), (24, 24), (384, MOST_THREADS)])
def test_threads_of_a_large_machine(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 999)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))  # pyright: ignore
    assert choose_placement("auto", 0, CodeRepairWorld()).threads == threads
