"""Plays episodes: many at once, turn by turn, each bounded in turns, tokens and time.

All conversations of a batch answer together, then all their tasks take a step together; with an engine that takes
requests while others are being answered (`Flowing`) every conversation goes on at its own pace instead (flow.py). The
episodes are the same. Whatever a task does wrong becomes a recorded failure of its episode; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Engine, Flowing
from isentrope.core.types import Episode, RolloutPlan
from isentrope.rollout.clock import Clock
from isentrope.rollout.flow import Flow
from isentrope.rollout.play import Play, Rules, Seat
from isentrope.worlds.pool.base import TaskPool

__all__ = ["Runner", "Seat"]


class Runner:
    def __init__(self, engine: Engine, tasks: TaskPool, agent: AgentSettings, task: TaskSettings, batch: int) -> None:
        self.engine, self.tasks, self.agent, self.task, self.batch = engine, tasks, agent, task, batch
        self.clock = Clock()

    def play(
        self,
        seats: Sequence[Seat],
        plan: RolloutPlan,
        seed: int,
        name: str,
        progress: Callable[[int], None] = lambda finished: None,
    ) -> list[Episode]:
        """All episodes, in the order of the seats. `name` names the random numbers, e.g. "train/12"."""
        rules = Rules(self.engine.dialect, self.agent, self.task, plan, seed, name)
        with self.clock("play"):
            if isinstance(self.engine, Flowing):
                episodes = Flow(self.engine, self.tasks, rules, self.batch, self.clock).play(seats, progress)
            else:
                episodes: list[Episode] = []
                for at in range(0, len(seats), self.batch):
                    episodes += self._together(seats[at : at + self.batch], rules, progress)
            self.engine.open(())  # the update that follows needs the memory
        return episodes

    def _together(self, seats: Sequence[Seat], rules: Rules, progress: Callable[[int], None]) -> list[Episode]:
        """Turn by turn, all at the same time."""
        with self.clock("tasks"):
            views = self.tasks.start({slot: seat.instance for slot, seat in enumerate(seats)})
        plays = [rules.seated(seat, views[slot]) for slot, seat in enumerate(seats)]
        self.engine.open(range(len(plays)))
        live = {slot: play for slot, play in enumerate(plays) if not play.stop}
        progress(len(plays) - len(live))
        while live:
            self._turn(live, rules)
            ended = [slot for slot, play in live.items() if play.stop]
            for slot in ended:
                del live[slot]
            progress(len(ended))
            self.engine.keep(list(live))
        return [rules.episode(play) for play in plays]

    def _turn(self, live: dict[int, Play], rules: Rules) -> None:
        """One response of every live conversation and the step that follows from it."""
        requests = [request for slot, play in live.items() if (request := rules.request(slot, play)) is not None]
        if not requests:
            return
        with self.clock("engine", "tasks_idle"):
            sampled = self.engine.sample(requests)
        answers = dict(zip([request.slot for request in requests], sampled, strict=True))
        for slot, answer in answers.items():
            if answer.stop == "error":
                live[slot].fail("engine_error", answer.detail)
        parsed = {slot: rules.read(answer) for slot, answer in answers.items() if answer.stop != "error"}
        actions = {slot: found.action for slot, found in parsed.items() if found.action is not None}
        with self.clock("tasks"):
            steps = self.tasks.step(actions) if actions else {}
        for slot, found in parsed.items():
            rules.record(live[slot], answers[slot], found, steps.get(slot))
