"""Grades a repair by what its functions return; nothing that decides is where the repaired code runs.

The shown tests become calls (`probes.py`), and each call is made with other inputs too (`variants.py`). The known
repair answers all of them in a box of its own; what it answers twice alike and without an error is expected. The
package to be graded gets the calls in a fresh box that holds no test and no expected value, and its answers are
compared here. Code that forges outcomes there forges nothing; answers learnt from the shown tests are wrong for the
other inputs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isentrope.sandbox.base import Item, Sandbox
from isentrope.worlds.code_repair.grade import files_with_tests, is_test
from isentrope.worlds.code_repair.plain import OPAQUE, same
from isentrope.worlds.code_repair.probes import Module, calls_of
from isentrope.worlds.code_repair.variants import Change, variants

POOL = 40  # other inputs tried for each test
USUAL = 6  # of those, kept for each test
SHOWING = 40  # and kept because the bug shows on them, for all tests together
LARGEST = 20_000  # characters of one answer
_SECONDS, _PATIENCE = 0.1, 3  # processor time for other inputs, and how many may take longer where the bug is
_GRADED_SECONDS = 2.0  # ... in the package to be graded; it is stopped there
_AGAIN = 4  # boxes at most in which the known repair answers, each without the probe at which the last one ended
_INSIDE = {name: Path(__file__).with_name(name) for name in ("inside_calls.py", "plain.py")}
_PATIENT = 15.0  # how much longer than usual a box may take in which the known repair or the bug answers
Make = Callable[[float], Sandbox]  # a fresh sandbox that may take so many times the usual time


@dataclass(frozen=True)
class Probe:
    """One test with certain constants."""

    module: int
    case: int
    test: str  # as pytest names it
    changes: tuple[Change, ...] = ()  # none: as it is shown


@dataclass(frozen=True)
class Answer:
    seen: list[Any]
    error: str | None  # the exception that ended it

    def expects(self, other: Answer | None) -> bool:
        """Whether the other one is what this one says it should be."""
        if other is None or other.error is not None or len(other.seen) != len(self.seen):
            return False
        return all(same(one, two) for one, two in zip(self.seen, other.seen, strict=True))


@dataclass
class Reference:
    """A package's tests as calls, and what the known repair answers."""

    modules: list[Module]
    shown: dict[str, tuple[Probe, Answer]] = field(default_factory=dict[str, tuple[Probe, Answer]])  # by test
    others: list[tuple[Probe, Answer]] = field(default_factory=list[tuple[Probe, Answer]])
    reasons: dict[str, str] = field(default_factory=dict[str, str])  # by test: why it is no calls


def reference(files: Mapping[str, Item], make: Make, seed: str) -> Reference:
    """For the package without a bug."""
    made = Reference([calls_of(path, files[path].data) for path in files_with_tests(files)])
    for module in made.modules:
        made.reasons |= {f"{module.path}::{name}": why for name, why in module.reasons.items()}
    probes = [one for number, module in enumerate(made.modules) for one in _probes(number, module, seed)]
    first = _patiently(make, files, made.modules, probes)
    good = [number for number, one in enumerate(first) if one is not None and one.error is None and _tells(one)]
    again = _patiently(make, files, made.modules, [probes[number] for number in good[::-1]])
    second = dict(zip(good[::-1], again, strict=True))
    expected = {number: one for number, one in enumerate(first) if one is not None and one == second.get(number)}
    for number, probe in enumerate(probes):
        if number in expected and not probe.changes:
            made.shown[probe.test] = probe, expected[number]
        elif not probe.changes:
            made.reasons[probe.test] = _why(first[number])
    for number, probe in enumerate(probes):
        if number in expected and probe.changes and probe.test in made.shown:
            made.others.append((probe, expected[number]))
    return made


def _probes(number: int, module: Module, seed: str) -> list[Probe]:
    found: list[Probe] = []
    for case in module.cases:
        luck = random.Random(f"{seed} {case.test}")
        changes = variants(module.values, case.constants, POOL, luck)
        found += [Probe(number, case.number, case.test, tuple(one)) for one in ([], *changes)]
    return found


def _tells(answer: Answer) -> bool:
    """Whether anything in it can be compared."""
    return any(one != OPAQUE for one in answer.seen) and len(json.dumps(answer.seen)) <= LARGEST


def _why(answer: Answer | None) -> str:
    if answer is None:
        return "as calls it does not come to an end"
    if answer.error is not None:
        return f"as calls it ends with {answer.error}"
    return "it returns something else each time" if _tells(answer) else "it shows nothing that can be compared"


def _patiently(
    make: Make, files: Mapping[str, Item], modules: Sequence[Module], probes: Sequence[Probe]
) -> list[Answer | None]:
    """All answers but those of probes at which a box ended."""
    answers: dict[int, Answer] = {}
    left = list(range(len(probes)))
    for _ in range(_AGAIN):
        found = ask(make(_PATIENT), files, modules, [probes[number] for number in left], _SECONDS, len(probes))
        answers |= {number: one for number, one in zip(left, found, strict=True) if one is not None}
        left = [number for number in left if number not in answers][1:]
        if not left:
            break
    return [answers.get(number) for number in range(len(probes))]


@dataclass
class Exam:
    """What one repair is asked."""

    modules: list[Module]
    shown: dict[str, tuple[Probe, Answer]]
    hidden: list[tuple[Probe, Answer]]
    showing: int  # hidden ones on which the bug shows
    reasons: dict[str, str]


def exam(
    known: Reference, buggy: Mapping[str, Item], make: Make, tests: set[str], seed: str, failing: Collection[str] = ()
) -> Exam:
    """For one bug: some hidden inputs of each test, and those on which the bug shows.

    A test that fails because of the bug, but not as calls, is run whole: it looks at something that no call tells.
    """
    shown = {test: known.shown[test] for test in sorted(tests) if test in known.shown}
    doubted = [test for test in shown if test in failing]
    asked = [*(probe for probe, _ in known.others), *(shown[test][0] for test in doubted)]
    said = ask(make(_PATIENT), buggy, known.modules, asked, _SECONDS, _PATIENCE, shown_seconds=_GRADED_SECONDS)
    answers = said[: len(known.others)]
    blind = {test for test, one in zip(doubted, said[len(answers) :], strict=True) if shown[test][1].expects(one)}
    told = sum(answer is not None for answer in answers)
    unlike = [
        number
        for number, ((_, expected), answer) in enumerate(zip(known.others, answers, strict=True))
        if not expected.expects(answer) and (answer is not None or told == 0)
    ]
    luck = random.Random(f"{seed} which")
    showing = set(luck.sample(unlike, min(SHOWING, len(unlike))))
    numbers = sorted({*_usual(known.others, luck), *showing})
    reasons = {test: _reason(known, test) for test in sorted(tests) if test not in shown}
    reasons |= dict.fromkeys(sorted(blind), "as calls it does not show the bug")
    shown = {test: one for test, one in shown.items() if test not in blind}
    return Exam(known.modules, shown, [known.others[number] for number in numbers], len(showing), reasons)


def _usual(probes: Sequence[tuple[Probe, Answer]], luck: random.Random) -> list[int]:
    """Some of each test's, those first whose answers differ."""
    by_test: dict[str, dict[str, list[int]]] = {}
    for number, (probe, answer) in enumerate(probes):
        by_test.setdefault(probe.test, {}).setdefault(json.dumps(answer.seen), []).append(number)
    chosen: list[int] = []
    for groups in by_test.values():
        ways = list(groups.values())
        luck.shuffle(ways)
        chosen += [way[0] for way in ways[:USUAL]]
    return chosen


def _reason(known: Reference, test: str) -> str:
    told = known.reasons.get(test) or known.reasons.get(test.partition("[")[0])
    return told or ("its parameters have other names" if "[" in test else "its text is elsewhere: it is inherited")


@dataclass(frozen=True)
class Marks:
    """How a package answered."""

    passed: set[str]  # shown tests all of whose answers are right
    right: int  # hidden inputs with the right answers
    hidden: int
    complete: bool  # it answered everything


def mark(given: Exam, sandbox: Sandbox, files: Mapping[str, Item]) -> Marks:
    """The answers of a package, `files`, in a fresh sandbox that is closed here."""
    asked = [*given.shown.values(), *given.hidden]
    order = list(range(len(asked)))
    random.Random("order").shuffle(order)
    probes = [asked[number][0] for number in order]
    room = sum(len(json.dumps(answer.seen)) + 100 for _, answer in asked)
    answers = ask(sandbox, files, given.modules, probes, _GRADED_SECONDS, 1, 4 * room + LARGEST)
    right = [asked[number][1].expects(answer) for number, answer in zip(order, answers, strict=True)]
    by_number = dict(zip(order, right, strict=True))
    passed = {test for number, test in enumerate(given.shown) if by_number[number]}
    hidden = sum(by_number[number] for number in range(len(given.shown), len(asked)))
    return Marks(passed, hidden, len(given.hidden), all(answer is not None for answer in answers))


def ask(
    sandbox: Sandbox, files: Mapping[str, Item], modules: Sequence[Module], probes: Sequence[Probe], seconds: float,
    patience: int, room: int = 1 << 30, shown_seconds: float = 0,
) -> list[Answer | None]:  # fmt: skip
    """A package's answers, in the order of the probes; None where it gave none. Its tests are not in the box. Who says
    more than `room` bytes has said nothing. Other inputs get `seconds` each, the shown ones `shown_seconds`: as long as
    they take, if that is 0."""
    plan = {
        "paths": [sandbox.work, f"{sandbox.work}/src"], "seconds": seconds, "shown": shown_seconds,
        "patience": patience,
        "modules": [{"name": f"calls {number}", "source": one.source, "constants": one.constants}
                    for number, one in enumerate(modules)],
        "probes": [[number, one.module, one.case, one.changes] for number, one in enumerate(probes)],
    }  # fmt: skip
    inside = {name: path.read_bytes() for name, path in _INSIDE.items()}
    try:
        sandbox.start({path: item for path, item in files.items() if not is_test(path) and not path.endswith(".pyc")})
        command = [sandbox.python, "-I", "/box/inside_calls.py"]
        outcome = sandbox.exec(command, {**inside, "plan.json": json.dumps(plan).encode()})
    finally:
        sandbox.close()
    return _answers(outcome.output if len(outcome.output) <= room else b"", len(probes))


def _answers(output: bytes, count: int) -> list[Answer | None]:
    """What was said, each probe at most once. It comes from code that may lie: anything else counts as nothing."""
    found: dict[int, Answer | None] = {}
    for line in output.splitlines():
        said = _object(line)
        number, seen, error = said.get("probe"), said.get("seen"), said.get("error")
        if type(number) is int and isinstance(seen, list) and isinstance(error, str | None):
            twice = number in found
            found[number] = None if twice else Answer(cast("list[Any]", seen), error)
    return [found.get(number) for number in range(count)]


def _object(line: bytes) -> dict[str, Any]:
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
