"""What was played in each slot since its start, so that it can be played again after its worker fell.

A task is deterministic given the instance and the actions, so an episode that was only a bystander when its worker was
killed need not be lost: a new worker plays it again up to where it was. Its answers are compared with those of the
first time; where they differ, the episode is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from isentrope.tasks.contract import Instance, Step, View


@dataclass
class Life:
    """One episode: how it began, what was done, and a mark of each answer."""

    instance: Instance
    generation: int  # of the worker that holds its state
    actions: list[str] = field(default_factory=list[str])
    marks: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Request:
    """Something to ask of a worker. With `mark` it was asked before, and this was the answer."""

    command: str  # "start" or "step"
    slot: int
    argument: Instance | str
    mark: int | None = None


def again(slot: int, life: Life) -> list[Request]:
    """All that was asked in this life, to be asked again."""
    asked: list[tuple[str, Instance | str]] = [("start", life.instance), *(("step", action) for action in life.actions)]
    return [Request(command, slot, argument, mark) for (command, argument), mark in zip(asked, life.marks, strict=True)]


def mark_of(result: View | Step) -> int:
    """A number that tells answers apart; `info` may hold the time or a process id, so it does not count."""
    if isinstance(result, View):
        return hash((result.text, result.goal, result.admissible))
    view = result.view
    flags = (result.terminated, result.truncated, result.success, result.valid)
    return hash((view.text, view.admissible, result.reward, flags))
