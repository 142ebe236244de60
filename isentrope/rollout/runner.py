"""Plays episodes: many at once, turn by turn, each bounded in turns, tokens and time.

All conversations of a batch answer together, then all their tasks take a step together. Whatever a task does wrong
becomes a recorded failure of its episode; the others go on.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isentrope.agent.context import Context, split_prefix
from isentrope.agent.format import Parsed, is_complete, parse_response
from isentrope.agent.prompts import NO_ACTION
from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.policy.engine import Engine, Request, Sampled
from isentrope.seeding import stream
from isentrope.tasks.contract import Instance, Step, View
from isentrope.tasks.pool import Failure, TaskPool
from isentrope.types import Episode, RolloutPlan, Turn


@dataclass(frozen=True)
class Seat:
    """One episode to be played."""

    instance: Instance
    group: int
    member: int


@dataclass
class _Play:
    """An episode while it is being played."""

    seat: Seat
    context: Context
    view: View
    anchor: str  # of the state the task is in: a response without an action does not change it
    began: float
    turns: list[Turn] = field(default_factory=list[Turn])
    success: bool = False
    stop: str = ""
    detail: str = ""
    score: float | None = None


class Runner:
    def __init__(self, engine: Engine, tasks: TaskPool, agent: AgentSettings, task: TaskSettings, batch: int) -> None:
        self.engine, self.tasks, self.agent, self.task, self.batch = engine, tasks, agent, task, batch

    def play(
        self,
        seats: Sequence[Seat],
        plan: RolloutPlan,
        seed: int,
        name: str,
        progress: Callable[[int], None] = lambda finished: None,
    ) -> list[Episode]:
        """All episodes, in the order of the seats. `name` names the random numbers, e.g. "train/12"."""
        episodes: list[Episode] = []
        for at in range(0, len(seats), self.batch):
            plays = self._start(seats[at : at + self.batch], plan)
            self.engine.open(range(len(plays)))
            live = {slot: play for slot, play in enumerate(plays) if not play.stop}
            progress(len(plays) - len(live))
            while live:
                self._turn(live, plan, seed, name)
                ended = [slot for slot, play in live.items() if play.stop]
                for slot in ended:
                    del live[slot]
                progress(len(ended))
                self.engine.keep(list(live))
            episodes += [_episode(play, plan) for play in plays]
        self.engine.open(())  # the update that follows needs the memory
        return episodes

    def _start(self, seats: Sequence[Seat], plan: RolloutPlan) -> list[_Play]:
        views = self.tasks.start({slot: seat.instance for slot, seat in enumerate(seats)})
        plays: list[_Play] = []
        for slot, seat in enumerate(seats):
            context = Context.of(self.engine.dialect, self.agent, plan.order)
            view = views[slot]
            play = _Play(seat, context, View("", None), "", time.monotonic())
            if isinstance(view, Failure):
                _fail(play, view)
            else:
                play.view, play.anchor = view, _anchor(view)
            plays.append(play)
        return plays

    def _turn(self, live: dict[int, _Play], plan: RolloutPlan, seed: int, name: str) -> None:
        """One response of every live conversation and the step that follows from it."""
        requests, tags = self._requests(live, plan, seed, name), self.agent.action_tags
        answers = dict(zip([r.slot for r in requests], self.engine.sample(requests), strict=True)) if requests else {}
        failed = {slot: a for slot, a in answers.items() if a.stop == "error"}
        for slot, answer in failed.items():
            _end_as_failed(live[slot], "engine_error", answer.detail)
        parsed = {
            slot: parse_response(
                self.engine.dialect.pieces(list(a.ids)), plan.order, a.stop, tags, self.agent.max_action
            )
            for slot, a in answers.items()
            if slot not in failed
        }
        actions = {slot: p.action for slot, p in parsed.items() if p.action is not None}
        steps = self.tasks.step(actions) if actions else {}
        for request in requests:
            slot = request.slot
            if slot in parsed:
                self._record(live[slot], request.prompt, answers[slot], parsed[slot], steps.get(slot))

    def _requests(self, live: dict[int, _Play], plan: RolloutPlan, seed: int, name: str) -> list[Request]:
        requests: list[Request] = []
        rule, tags = plan.temperature_rule, self.agent.action_tags
        for slot, play in live.items():
            prompt = play.context.prompt(play.view)
            length = math.ceil(len(prompt) / self.engine.dialect.ids_per_token)
            if length + self.agent.max_response > self.agent.max_context:
                play.stop = "context_limit"
                play.detail = f"{length} prompt tokens leave no room for {self.agent.max_response} more"
                continue
            numbers = stream(seed, name, play.seat.group, play.seat.member, len(play.turns))
            requests.append(
                Request(
                    slot=slot,
                    prompt=prompt,
                    uniforms=numbers.random(self.agent.max_response, dtype=np.float32),
                    temperature=plan.temperature,
                    stop=lambda tail: is_complete(plan.order, tail, tags),
                    temperature_of=(
                        rule(self.engine.dialect, play.view.admissible, plan.temperature, tags) if rule else None
                    ),
                )
            )
        return requests

    def _record(
        self, play: _Play, prompt: Sequence[int], answer: Sampled, parsed: Parsed, step: Step | Failure | None
    ) -> None:
        continues, new = split_prefix(play.context.tokens, prompt)
        verdict = parsed.verdict
        if isinstance(step, Step) and not step.valid:
            verdict = "inadmissible"
        reward = 0.0 if verdict == "ok" else self.task.invalid_reward
        mended = () if play.turns else play.view.mended  # the first turn has to tell of the start too
        if isinstance(step, Step):
            reward += self.task.success_reward * step.reward
            mended += step.view.mended
            play.score = _score(step, play.score)
        play.turns.append(
            Turn(
                observation=play.view.text,
                admissible=play.view.admissible,
                anchor=play.anchor,
                context_ids=np.array(new, dtype=np.int32),
                continues=continues,
                response_ids=answer.ids,
                logprobs=answer.logprobs,
                entropies=answer.entropies,
                temperatures=answer.temperatures,
                think_span=parsed.think_span,
                action_span=parsed.action_span,
                action=parsed.action,
                verdict=verdict,
                stop=answer.stop,
                reward=reward,
                dropped=play.context.dropped,
                mended=" ".join(dict.fromkeys(mended)),
            )
        )
        play.context.answered(prompt, answer.ids.tolist(), parsed.action)
        self._advance(play, step)

    def _advance(self, play: _Play, step: Step | Failure | None) -> None:
        """The next view, or the end of the episode."""
        if isinstance(step, Failure):
            _fail(play, step)
            return
        if step is None:
            play.view = replace(play.view, text=NO_ACTION)
        else:
            play.view, play.success = step.view, play.success or step.success
            play.anchor = _anchor(step.view)
            if step.terminated or step.truncated:
                play.stop = "terminated" if step.terminated else "truncated"
                return
        if len(play.turns) >= self.task.max_turns:
            play.stop = "turn_limit"
        elif time.monotonic() - play.began > self.task.episode_seconds:
            play.stop, play.detail = "clock", f"longer than task.episode_seconds = {self.task.episode_seconds}"


def _fail(play: _Play, failure: Failure) -> None:
    _end_as_failed(play, failure.kind, failure.detail)


def _end_as_failed(play: _Play, stop: str, detail: str) -> None:
    play.stop, play.detail, play.success = stop, detail, False  # whatever it had reached before


def _score(step: Step, before: float | None) -> float | None:
    """The score the task gives itself, the last one of the episode."""
    score = step.info.get("score")
    return float(score) if isinstance(score, int | float) else before


def _anchor(view: View) -> str:
    return hashlib.sha256(f"{view.goal}\0{view.text}".encode("utf-8", "replace")).hexdigest()[:16]


def _episode(play: _Play, plan: RolloutPlan) -> Episode:
    instance = play.seat.instance
    return Episode(
        world=instance.world,
        split=instance.split,
        index=instance.index,
        kind=instance.kind,
        goal=play.view.goal,
        group=play.seat.group,
        member=play.seat.member,
        order=plan.order,
        turns=tuple(play.turns),
        success=play.success,
        stop=play.stop,
        detail=play.detail,
        score=play.score,
    )
