from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from isentrope.errors import TaskError
from isentrope.tasks.conformance import assert_conforms, check_world
from isentrope.tasks.conformance_checks import CHECKS
from isentrope.tasks.contract import Instance, Step, View
from tests.toys import ToyExpert, ToyOptions, ToyTask, ToyWorld

_clock = itertools.count()


def test_the_toy_world_conforms() -> None:
    findings = check_world(ToyWorld())
    assert [finding.name for finding in findings] == list(CHECKS)
    assert all(finding.ok for finding in findings), findings
    assert findings[-1].detail == "solved 10 of 10"
    assert_conforms(ToyWorld())


class BrokenTask(ToyTask):
    """A toy task with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__(ToyOptions())
        self._fault = fault
        self._leak = 0

    def start(self, instance: Instance) -> View:
        view = super().start(instance)
        if self._fault == "remembers":
            self._leak += 1
            return replace(view, text=f"{view.text} {self._leak}")
        if self._fault == "same starts":
            return replace(view, text="You start.")
        if self._fault == "odd admissible":
            return replace(view, admissible=("look", "look"))
        if self._fault == "inadmissible":
            return replace(view, admissible=("fly",))
        return view

    def step(self, action: str) -> Step:
        if self._fault == "lenient" and self._count is None:
            return Step(View("", None))
        step = super().step(action)
        changes: dict[str, dict[str, Any]] = {
            "random": {"view": replace(step.view, text=f"{next(_clock)}")},
            "both ends": {"terminated": True, "truncated": True},
            "success without end": {"success": True, "terminated": False},
            "new goal": {"view": replace(step.view, goal="other")},
            "nan": {"reward": float("nan")},
        }
        if self._fault == "fragile" and "\x00" in action:
            raise KeyError(action)
        return replace(step, **changes.get(self._fault, {}))


class BrokenWorld(ToyWorld):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def open(self) -> ToyTask:
        return BrokenTask(self._fault)

    def instance(self, split: str, index: int) -> Instance:
        if self._fault == "unknown split":
            return Instance(self.name, split, index, "even")
        instance = super().instance(split, index)
        if self._fault == "drifting instances":
            return replace(instance, index=next(_clock))
        return replace(instance, kind="other") if self._fault == "unknown kind" else instance

    def expert(self, seed: int) -> ToyExpert | None:
        return Loser() if self._fault == "losing expert" else super().expert(seed)


class Loser(ToyExpert):
    def act(self, view: View) -> Any:
        return replace(super().act(view), action="look")


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("unknown split", "describes itself"),
        ("drifting instances", "instances are stable"),
        ("unknown kind", "instances are stable"),
        ("random", "same actions, same results"),
        ("remembers", "same actions, same results"),
        ("odd admissible", "same actions, same results"),
        ("both ends", "same actions, same results"),
        ("success without end", "same actions, same results"),
        ("new goal", "same actions, same results"),
        ("nan", "same actions, same results"),
        ("fragile", "hostile actions"),
        ("lenient", "order of calls"),
        ("inadmissible", "admissible actions"),
        ("same starts", "splits are disjoint"),
        ("losing expert", "expert"),
    ],
)
def test_each_fault_is_found(fault: str, check: str) -> None:
    findings = {finding.name: finding for finding in check_world(BrokenWorld(fault), games=3, max_turns=20)}
    assert not findings[check].ok
    assert findings[check].detail
    with pytest.raises(TaskError, match=check):
        assert_conforms(BrokenWorld(fault), games=3, max_turns=20)


def test_not_even_a_world() -> None:
    assert not any(finding.ok for finding in check_world(object()))  # type: ignore[arg-type]
