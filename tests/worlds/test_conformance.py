from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.conformance.play import Sample
from isentrope.worlds.conformance.suite import CHECKS, Finding, assert_conforms, iter_findings
from isentrope.worlds.contract import Instance, Step, View
from tests.toys import ToyExpert, ToyOptions, ToyTask, ToyWorld

_clock = itertools.count()
_shared: list[int] = [0]


def test_the_toy_world_conforms() -> None:
    findings = list(iter_findings(ToyWorld()))
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
        if self._fault == "counts starts" and self._leak:
            return replace(view, text=f"{view.text} Again.")
        if self._fault == "seeds":
            random.seed(instance.index)
        if self._fault == "draws":
            return replace(view, text=f"{view.text} {random.random()}")
        if self._fault == "tags":
            return replace(view, rules="Write <action>look</action>.")
        if self._fault == "shares":
            _shared.append(instance.index)
            return replace(view, text=f"{view.text}")
        if self._fault == "inadmissible":
            return replace(view, admissible=("fly",))
        if self._fault == "inadmissible later":
            return replace(view, admissible=())
        return view

    def step(self, action: str) -> Step:
        if self._fault == "lenient" and self._count is None:
            return Step(View("", None))
        step = super().step(action)
        if self._fault == "shares":
            return replace(step, view=replace(step.view, text=f"{_shared[-1]}"))
        if self._fault == "counts starts":
            self._leak += 1
        changes: dict[str, dict[str, Any]] = {
            "random": {"view": replace(step.view, text=f"{next(_clock)}")},
            "both ends": {"terminated": True, "truncated": True},
            "success without end": {"success": True, "terminated": False},
            "new goal": {"view": replace(step.view, goal="other")},
            "nan": {"reward": float("nan")},
            "generous": {"reward": 0.9},
            "stingy": {"reward": 0.0},
            "odd info": {"info": {"things": [1, 2]}},
        }
        if self._fault == "fragile" and "\x00" in action:
            raise KeyError(action)
        if self._fault == "inadmissible later" and not step.terminated:
            return replace(step, view=replace(step.view, admissible=("fly",)))
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
        ("generous", "same actions, same results"),
        ("stingy", "expert"),
        ("odd info", "same actions, same results"),
        ("tags", "same actions, same results"),
        ("draws", "global random numbers"),
        ("seeds", "global random numbers"),
        ("shares", "order of games"),
        ("counts starts", "start anew"),
        ("fragile", "hostile actions"),
        ("lenient", "order of calls"),
        ("inadmissible", "admissible actions"),
        ("inadmissible later", "admissible actions"),
        ("same starts", "splits are disjoint"),
        ("losing expert", "expert"),
    ],
)
def test_each_fault_is_found(fault: str, check: str) -> None:
    findings = {finding.name: finding for finding in iter_findings(BrokenWorld(fault), games=3, max_turns=20)}
    assert not findings[check].ok
    assert findings[check].detail
    with pytest.raises(TaskError, match=check):
        assert_conforms(BrokenWorld(fault), games=3, max_turns=20)


@pytest.mark.parametrize(
    ("admissible", "words"),
    [(None, "the world lists no admissible actions"), ((), "no view lists any"), (("look",), "accepted")],
)
def test_free_text_and_an_empty_list_are_different(admissible: Any, words: str) -> None:
    class Task(ToyTask):
        def start(self, instance: Instance) -> View:
            return replace(super().start(instance), admissible=admissible)

        def step(self, action: str) -> Step:
            step = super().step(action)
            return replace(step, view=replace(step.view, admissible=admissible))

    class Listing(ToyWorld):
        def open(self) -> ToyTask:
            return Task(ToyOptions())

    assert words in CHECKS["admissible actions"](Sample(Listing(), 2, 20, 0))


def test_not_even_a_world() -> None:
    assert not any(finding.ok for finding in iter_findings(object()))  # type: ignore[arg-type]


def test_what_says_itself_that_it_is_not_deterministic_is_left_out() -> None:
    class Honest(BrokenWorld):
        deterministic = False

    findings = {finding.name: finding for finding in iter_findings(Honest("random"), games=3, max_turns=20)}
    assert all(finding.ok for finding in findings.values())
    assert findings["same actions, same results"].skipped
    assert "not deterministic" in findings["same actions, same results"].detail
    assert not findings["hostile actions"].skipped

    class Partly(BrokenWorld):
        not_deterministic: ClassVar = {"odd": "the dice are real"}

    findings = {finding.name: finding for finding in iter_findings(Partly("random"), games=3, max_turns=20)}
    assert not findings["same actions, same results"].ok  # the even games claim to be


class Unhashable(ToyWorld):
    """The order of a set of text differs between processes."""

    name = "unhashable"

    def open(self) -> ToyTask:
        class Task(ToyTask):
            def start(self, instance: Instance) -> View:
                view = super().start(instance)
                return replace(view, text=view.text + "".join({chr(97 + n) * 3 for n in range(20)}))

        return Task(ToyOptions())


def test_another_process() -> None:
    name = f"{__name__}:Unhashable"
    assert_conforms(ToyWorld(), games=1, remake=("tests.toys:ToyWorld", {}))
    with pytest.raises(TaskError, match="other results in another process"):
        assert_conforms(Unhashable(), games=1, remake=(name, {}))
    with pytest.raises(TaskError, match="could not be played in another process"):
        assert_conforms(ToyWorld(), games=1, remake=("tests.nowhere:World", {}))


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    list(iter_findings(ToyWorld(), games=2, watch=lambda *news: told.append(news)))
    assert {name for name, _, _ in told} == set(CHECKS)
    assert ("instances are stable", 3, 4) in told


class Cut(ToyTask):
    """The world itself cuts a game off after six steps."""

    def start(self, instance: Instance) -> View:
        self._steps = 0
        return super().start(instance)

    def step(self, action: str) -> Step:
        step, self._steps = super().step(action), self._steps + 1
        return replace(step, truncated=not step.terminated and self._steps >= 6)


class Knows(ToyExpert):
    def start(self, view: View, instance: Instance) -> None:
        super().start(view, instance)
        self.turns = 9 + instance.index % 2


class CutWorld(ToyWorld):
    known = True

    def __init__(self) -> None:
        super().__init__(ToyOptions(goal=9))

    def open(self) -> ToyTask:
        return Cut(self._options)

    def expert(self, seed: int) -> ToyExpert | None:
        return Knows(seed) if self.known else ToyExpert(seed)


class CutUnknown(CutWorld):
    known = False


class Half(ToyWorld):
    """Its expert loses odd games, and the world says so."""

    expert_solves = 0.5

    def expert(self, seed: int) -> ToyExpert | None:
        return LosesOdd(seed)


class LosesOdd(ToyExpert):
    def act(self, view: View) -> Any:
        move = super().act(view)
        return move if "game 0" in self.seen[0] or "game 2" in self.seen[0] else replace(move, action="look")


def about_expert(world: ToyWorld, **limits: int) -> Finding:
    return next(found for found in iter_findings(world, **limits) if found.name == "expert")


def test_a_game_that_only_takes_long_is_a_limit_and_no_fault() -> None:
    """Played on, the expert wins in nine or ten turns: ten games, of which the even ones fit into nine turns."""
    found = about_expert(ToyWorld(ToyOptions(goal=9)), max_turns=9)
    assert (found.ok, found.limited) == (True, True)
    assert "solved 6 of 10; the solutions of 4 take more than the 9 turns allowed" in found.detail
    assert "(the longest: 10 turns, train 3)" in found.detail or "(the longest: 10 turns, train 1)" in found.detail
    assert not about_expert(ToyWorld(ToyOptions(goal=9)), max_turns=10).limited
    for world, fine in ((CutWorld(), True), (CutUnknown(), False)):  # cut off by the world, whose expert knows how long
        found = about_expert(world, max_turns=9)
        assert (found.ok, found.limited) == (fine, fine)
    assert not about_expert(BrokenWorld("losing expert"), max_turns=5).ok  # it takes for ever


def test_an_expert_may_be_as_weak_as_its_world_says() -> None:
    found = about_expert(Half())
    assert (found.ok, found.limited) == (True, False)
    assert "solved 4 of 10; the world says that its expert, which plays by rules, solves some 50 %" in found.detail
    modest = Half()
    modest.expert_solves = 0.9
    assert not about_expert(modest).ok
    modest.expert_solves = 0.85  # 4 of 10 are too few for that
    assert not about_expert(modest).ok
