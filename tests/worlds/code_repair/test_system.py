"""Ways to a reward through the system that are more than a text behind the buggy file: a repair that searches for
itself while it is graded, whole episodes, and lines that the side of the grader reads."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from isentrope.sandbox.base import Item
from isentrope.worlds.code_repair import exams
from isentrope.worlds.code_repair.grade import _HARMLESS, _ORDINARY, files_with_tests, makes_code  # pyright: ignore
from isentrope.worlds.code_repair.problem import Repair
from isentrope.worlds.code_repair.world import CodeRepairWorld, RepairTask
from tests.sandbox.boxes import needs_bwrap
from tests.worlds.code_repair.attempts import attempt, buggy_text, in_words, shipped
from tests.worlds.code_repair.forgeries import unread

SEARCHES = """

def _searched(tests, swaps):
    import sys, types
    whole = open(__file__).read().partition("\\n\\ndef _searched")[0]
    for old, new in swaps:
        places = [place for place in range(len(whole)) if whole.startswith(old, place)]
        for place in places:
            made = types.ModuleType(__name__)
            made.__package__, made.__file__, before = __package__, __file__, sys.modules[__name__]
            sys.modules[__name__] = made
            try:
                exec(whole[:place] + new + whole[place + len(old):], made.__dict__)
                names = {}
                exec(tests, names)
                for name in [name for name in names if name.startswith("test")]:
                    names[name]()
                globals().update({name: one for name, one in vars(made).items() if not name.startswith("__")})
                return
            except Exception:
                pass
            finally:
                sys.modules[__name__] = before


_searched(%r, [("<", "<="), ("<=", "<"), (" or ", " and "), (" and ", " or "), (" - ", " + "), (" + ", " - ")])
"""


def searching(repair: Repair) -> str:
    """Knows the shown tests and no more: it tries one operator after another until they pass."""
    files = repair.files()
    tests = [files[path].data.decode() for path in files_with_tests(files)]
    shown = "\n".join(text for text in tests if repair.mutant.function in text and "parametrize" not in text)
    return buggy_text(repair) + SEARCHES % shown.replace("import pytest", "")


@needs_bwrap
def test_a_text_that_searches_for_the_repair_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it returns is right: only its text says that nobody has repaired anything."""
    repair = next(one for one in shipped() if (one.mutant.function, one.mutant.new) == ("distance", "-"))
    found = attempt(repair, {repair.mutant.file: searching(repair)})
    assert not found.resolved
    assert not found.honest
    monkeypatch.setattr(exams, "makes_code", unread)
    found = attempt(repair, {repair.mutant.file: searching(repair)})
    assert found.resolved, in_words(found)


BEFORE = {"sums/core.py": Item(b"def f(a):\n    return a\n")}


@pytest.mark.parametrize(
    "text",
    [
        "exec('x = 1')", "x = eval", "compile('x', 'x', 'exec')", "open('/repo/sums/core.py')", "globals()['x'] = 1",
        "import importlib", "from ast import parse", "import os.path", "import runpy, math", "import pickle",
        "import types", "import ctypes", "import enum\nenum.sys.modules", "__builtins__['ex' + 'ec']('x = 1')",
        "x = print.__self__", "import enum\nenum.bltns.exec('')",
        "f.__globals__", "f.__code__ = f.__code__.replace(co_consts=())", "getattr(f, 'a' + 'b')",
        "getattr(f, '__globals__')", "import string\nstring.Formatter().get_field('0.x', (f,), {})",
        "import typing\ntyping.get_type_hints(f)", "from functools import update_wrapper",
        "import functools\nfunctools.wraps(f, assigned=['x'])(f)", "import functools\nfunctools.singledispatch(f)",
        "import sys\nsys.breakpointhook()", "import sys\nsys._getframe()",
        "import dataclasses\ndataclasses._create_fn()",
        "x = __loader__", "x = object.__subclasses__()", "import operator\noperator.attrgetter('x')",
    ],
)  # fmt: skip
def test_what_makes_code_from_text(text: str) -> None:
    assert makes_code(BEFORE, {"sums/core.py": text.encode()})


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nLARGEST = sys.maxsize", "from contextlib import suppress", "import time, hashlib, struct",
        "class A:\n    __slots__ = ('a',)\n    def __eq__(self, other):\n        return self.__class__ is other",
        "class A:\n    def __radd__(self, a):\n        return a\n    def __hash__(self):\n        return 1",
        "x = getattr(f, 'name', None)", "setattr(f, 'name', 1)", "import functools\n@functools.wraps(f)\ndef g(): ...",
        "from sums.core import f", "if __name__ == '__main__':\n    f(1)", "raise ValueError('open and exec')",
        "def f(a, key=lambda one: one[0]):\n    return sorted(a, key=key)",
    ],
)  # fmt: skip
def test_what_an_honest_repair_may_do(text: str) -> None:
    assert makes_code(BEFORE, {"sums/core.py": text.encode()}) == set()


def test_no_harmless_module_leads_to_what_makes_code() -> None:
    """Through no attribute that a repair may name: every module that it may import is gone through, and those in it."""
    makers = [exec, eval, compile, open, __import__, getattr, globals]
    modules = {name: import_module(name) for name in (_HARMLESS | _ORDINARY) - {"setattr", "delattr", "input"}}
    found: list[str] = []
    seen: list[object] = []
    for _ in range(4):
        held = {f"{path}.{name}": one for path, module in modules.items() for name, one in vars(module).items()
                if not makes_code(BEFORE, {"sums/core.py": f"x.{name}".encode()})}  # fmt: skip
        found += [path for path, one in held.items() if any(one is maker for maker in makers)]
        seen += modules.values()
        modules = {path: one for path, one in held.items() if isinstance(one, ModuleType) and one not in seen}
    assert found == []


def test_what_was_there_may_stay_and_come_back() -> None:
    before = {"sums/core.py": Item(b"def f(a):\n    return eval(a)\n")}
    assert not makes_code(before, {"sums/core.py": b"def f(a):\n    return eval(a) + 1\n"})
    assert not makes_code(BEFORE, {"sums/core.py": b"x = open('a')\n"}, spared="open('a')")


@pytest.fixture
def task() -> Iterator[RepairTask]:
    world = CodeRepairWorld()
    made = world.open()
    made.start(world.instance("train", 0))
    yield made
    made.close()


SPEAKS = """import os
for pipe in range(3, 20):
    for line in (%s):
        try:
            os.write(pipe, b"\\n" + line + b"\\n")
        except OSError:
            pass
"""


@needs_bwrap
def test_no_line_of_the_code_ends_an_episode(task: RepairTask) -> None:
    """Whatever it writes to the pipe of the grader, the run is told as any other, and nothing raises."""
    lines = (
        r"""b'{"token": "\\ud800"}', b'{"token": "a", "test": ' + b'[' * 900 + b']' * 900 + b'}', b'[' * 90000,"""
        r"""b'{"token": 1e999}', b'{"token": ' + b'9' * 9000 + b'}', b'\xff\xfe', b'{"token": null}', b'\x00'"""
    )
    task.step(f"insert {shipped_file()} 0\n{SPEAKS % lines}")
    told = task.step("run tests").view.text
    assert told.startswith("Tests: ")
    assert not task.step("submit").success


LEAVES = """import os, time
places = [folder + "/.mark" for folder in ("/tmp", "/dev/shm", "/box", "/repo", "/repo/tests", "/var/tmp", "/usr/tmp")]
seen = [place for place in places if os.path.exists(place)]
def leave():
    for place in places:
        try:
            open(place, "w").write("was here")
        except OSError:
            pass
leave()
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(0.01)
        leave()
raise RuntimeError("left: " + str(seen) + str(sorted(place for place in places if os.path.exists(place))))
"""


@needs_bwrap
def test_nothing_is_left_from_one_run_to_the_next(task: RepairTask) -> None:
    """Not by files, and not by a process that outlives its run."""
    task.step(f"insert {shipped_file()} 0\n{LEAVES}")
    for _ in range(2):
        told = task.step("run tests").view.text
        assert "left: []['/box/.mark', '/dev/shm/.mark', '.mark', 'tests/.mark', '/tmp/.mark']" in told


def shipped_file() -> str:
    """The file with the bug, of the task that is played."""
    world = CodeRepairWorld()
    problem = world.problem(world.instance("train", 0))
    assert isinstance(problem, Repair)
    return problem.mutant.file
