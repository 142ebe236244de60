"""One episode while it is played, and the rules by which all episodes of a rollout are: how prompts are made,
responses read and turns recorded. Nothing here knows in which order conversations go on."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from isentrope.agent.context import Context
from isentrope.agent.prompts import NO_ACTION
from isentrope.agent.response_format import Parsed, closing_tags, is_complete, parse_response
from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Request, Sampled
from isentrope.core.seeding import Streams
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Episode, RolloutPlan, Turn
from isentrope.worlds.contract import Instance, Step, View, rewards_of
from isentrope.worlds.pool.guarded import Failure

EpisodesEnded = Callable[[int], None]
"""Told how many more episodes have ended, for a bar that shows it."""


@dataclass(frozen=True)
class Seat:
    """One episode to be played."""

    instance: Instance
    group: int
    member: int


@dataclass
class Play:
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
    rewards: dict[str, float] = field(default_factory=dict[str, float])
    prompt: list[int] = field(default_factory=list[int])  # that waits for a response

    def fail(self, stop: str, detail: str) -> None:
        self.stop, self.detail, self.success = stop, detail, False  # whatever it had reached before


class Rules:
    """Of one rollout. Random numbers belong to group, member and turn, so they do not depend on when a turn is
    played, or beside which others."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        agent: AgentSettings,
        task: TaskSettings,
        plan: RolloutPlan,
        seed: int,
        name: str,
    ) -> None:
        self.tokenizer, self.agent, self.task = tokenizer, agent, task
        self.plan, self.seed, self.name = plan, seed, name
        self._streams = Streams()
        self._stop = partial(is_complete, plan.order, tags=agent.action_tags)

    def seated(self, seat: Seat, view: View | Failure) -> Play:
        """The episode from its first view on; its clock begins now."""
        context = Context.of(self.tokenizer, self.agent, self.plan.order)
        play = Play(seat, context, View("", None), "", time.monotonic())
        if isinstance(view, Failure):
            play.fail(view.kind, view.detail)
        else:
            play.view, play.anchor = view, _anchor(view)
        return play

    def request(self, slot: int, play: Play) -> Request | None:
        """What to ask the engine next; None if that would be too long, which ends the episode."""
        agent, plan = self.agent, self.plan
        prompt = play.context.prompt(play.view)
        length = math.ceil(len(prompt) / self.tokenizer.ids_per_token)
        if length + agent.max_response > agent.max_context:
            play.stop = "context_limit"
            play.detail = (
                f"{length} prompt tokens leave no room for {agent.max_response} more in agent.max_context = "
                f"{agent.max_context}"
            )
            return None
        play.prompt = prompt
        names = (self.name, play.seat.group, play.seat.member, len(play.turns))
        rule = plan.temperature_rule
        return Request(
            slot=slot,
            prompt=prompt,
            uniforms=self._streams.uniforms(agent.max_response, self.seed, *names),
            temperature=plan.temperature,
            stop=self._stop,
            closings=closing_tags(plan.order, agent.action_tags),
            temperature_of=(
                rule(self.tokenizer, play.view.admissible, plan.temperature, agent.action_tags) if rule else None
            ),
        )

    def read(self, answer: Sampled) -> Parsed:
        pieces = self.tokenizer.pieces(answer.ids.tolist())
        if answer.stop == "eos" and pieces and int(answer.ids[-1]) in self.tokenizer.eos_ids:
            pieces[-1] = b""  # it ends the answer and says nothing
        return parse_response(pieces, self.plan.order, answer.stop, self.agent.action_tags, self.agent.max_action)

    def record(self, play: Play, answer: Sampled, parsed: Parsed, step: Step | Failure | None) -> None:
        """Write the turn down and go on to the next view, or end the episode."""
        continues, new = play.context.split(play.prompt)
        verdict = parsed.verdict
        if isinstance(step, Step) and not step.valid:
            verdict = "inadmissible"
        reward = 0.0 if verdict == "ok" else self.task.invalid_reward
        mended = () if play.turns else play.view.mended  # the first turn has to tell of the start too
        if isinstance(step, Step):
            reward += self.task.success_reward * step.reward
            mended += step.view.mended
            score = step.info.get("score")  # the task gives it itself; the last one is the episode's
            play.score = float(score) if isinstance(score, int | float) else play.score
            play.rewards |= rewards_of(step)  # likewise
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
        play.context.answered(play.prompt, answer.ids.tolist(), parsed.action)
        self._advance(play, step)

    def _advance(self, play: Play, step: Step | Failure | None) -> None:
        """The next view, or the end of the episode."""
        if isinstance(step, Failure):
            play.fail(step.kind, step.detail)
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

    def episode(self, play: Play) -> Episode:
        instance = play.seat.instance
        return Episode(
            world=instance.world,
            split=instance.split,
            index=instance.index,
            kind=instance.kind,
            goal=play.view.goal,
            group=play.seat.group,
            member=play.seat.member,
            order=self.plan.order,
            turns=tuple(play.turns),
            success=play.success,
            stop=play.stop,
            detail=play.detail,
            score=play.score,
            rewards=play.rewards,
        )


def _anchor(view: View) -> str:
    return hashlib.sha256(f"{view.goal}\0{view.text}".encode("utf-8", "replace")).hexdigest()[:16]
