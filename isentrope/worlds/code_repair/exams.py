"""Decides on a repair: by calls where the tests are calls, by running the tests whole where they are more.

A verdict says what decided it, which is how far its reward can be trusted:

    calls   every test of the task is calls, and the bug shows on hidden inputs
    both    the bug shows on hidden inputs, but some tests are run whole, in the process of the repaired code
    shown   every test is calls, but the bug shows on no hidden input: answers learnt by heart may pass
    tests   some tests are run whole, and the bug shows on no hidden input

However it is decided, a repair may not begin to make code from text: what searches for a repair while it is graded
is none.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from isentrope.sandbox.base import Item
from isentrope.worlds.code_repair.calls import Exam, Make, Reference, exam, mark, reference
from isentrope.worlds.code_repair.grade import Verdict, grade, graded_part, makes_code, verdict

GRADED_OUTPUT = 16 << 20  # bytes that a box may say in which a repair is graded
_Files = Callable[[], Mapping[str, Item]]
_Made = TypeVar("_Made")


class _Kept:
    """What was made, for the last few keys; each is made by one thread."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._values: OrderedDict[tuple[str, int], object] = OrderedDict()
        self._locks: dict[tuple[str, int], threading.Lock] = {}

    def get(self, key: tuple[str, int], make: Callable[[], _Made]) -> _Made:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._values:
                    self._values.move_to_end(key)
                    return self._values[key]  # pyright: ignore[reportReturnType]
            value = make()
            with self._lock:
                self._values[key] = value
                while len(self._values) > self._most:
                    self._locks.pop(self._values.popitem(last=False)[0], None)
            return value


_REFERENCES, _EXAMS = _Kept(16), _Kept(512)


def exam_of(
    sha256: str, fingerprint: str, known: _Files, buggy: _Files, make: Make, tests: set[str], seed: int,
    failing: Collection[str] = (),
) -> Exam:  # fmt: skip
    """The same for the same package, bug and seed; made once a process."""

    def made() -> Exam:
        answers: Reference = _REFERENCES.get((sha256, seed), lambda: reference(known(), make, f"{seed} {sha256}"))
        return exam(answers, buggy(), make, tests, f"{seed} {fingerprint}", failing)

    return _EXAMS.get((fingerprint, seed), made)


def grading(given: Exam) -> str:
    if given.reasons:
        return "both" if given.showing else "tests"
    return "calls" if given.showing else "shown"


def graded(
    given: Exam, files: Mapping[str, Item], make: Make, diff: Mapping[str, bytes], fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str], spared: str = "",
) -> Verdict:  # fmt: skip
    """`files` as the agent got them, tests included."""
    counted = graded_part(diff, files, new_files=False)
    marks = mark(given, make(1.0), {**files, **{path: Item(data) for path, data in counted.items()}})
    fix, keep = ([test for test in tests if test in given.shown] for tests in (fail_to_pass, pass_to_pass))
    honest = marks.complete and not makes_code(files, counted, spared)
    found = verdict(marks.passed, fix, keep, honest)
    if given.reasons:
        fix, keep = ([test for test in tests if test in given.reasons] for tests in (fail_to_pass, pass_to_pass))
        whole = grade(make(1.0), files, diff, fix, keep, spared)
        found = Verdict(
            found.fixed + whole.fixed, found.to_fix + whole.to_fix, found.kept + whole.kept,
            found.to_keep + whole.to_keep, found.honest and whole.honest,
        )  # fmt: skip
    return replace(found, grading=grading(given), right=marks.right, hidden=marks.hidden)
