"""Plays a scripted expert and records its games as episodes of the policy: data for imitation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from isentrope.agent.context import context_lengths
from isentrope.agent.response_format import PLAIN, write_response
from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Sampled
from isentrope.core.errors import TaskError
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Episode, RolloutPlan
from isentrope.rollout.episode import Rules, Seat
from isentrope.worlds.contract import Expert, Instance, World


def demonstrations(
    world: World,
    tokenizer: ChatTokenizer,
    agent: AgentSettings,
    task: TaskSettings,
    instances: Iterable[Instance],
    seed: int,
    left_out: list[Episode] | None = None,
) -> Iterator[Episode]:
    """The expert's games on these instances. Games that the expert loses, or that outgrow the context, are left out;
    whoever wants to say which gives a list for them."""
    for instance in instances:
        expert = world.expert(seed + instance.index)
        if expert is None:
            raise TaskError(f"{world.name} has no expert, so there is nothing to imitate")
        episode = demonstrate(world, expert, tokenizer, agent, task, instance)
        if episode.success and longest_sequence(episode) <= agent.max_context:
            yield episode
        elif left_out is not None:
            left_out.append(episode)


def outgrown(episode: Episode, agent: AgentSettings) -> bool:
    """Whether it was left out because the context is too short for it."""
    return episode.stop == "context_limit" or longest_sequence(episode) > agent.max_context


def longest_sequence(episode: Episode) -> int:
    """Tokens of the longest conversation: the whole episode, or its longest turn if turns are prompted anew."""
    lengths = zip(context_lengths(episode), episode.turns, strict=True)
    return max((length + len(turn.response_ids) for length, turn in lengths), default=0)


def demonstrate(
    world: World, expert: Expert, tokenizer: ChatTokenizer, agent: AgentSettings, task: TaskSettings, instance: Instance
) -> Episode:
    """One game of a scripted player, as a rollout records its own, but without a clock and a price of invalid moves."""
    task = replace(task, episode_seconds=math.inf, invalid_reward=0.0)
    rules = Rules(tokenizer, agent, task, RolloutPlan(agent.order), 0, "expert")
    game = world.open()
    view = game.start(instance)
    play = rules.seated(Seat(instance, 0, 0), view)
    expert.start(view, instance)
    while not play.stop:
        move = expert.act(play.view)
        play.prompt, limit = play.context.prompt(play.view), play.context.limit
        if limit is not None and len(play.prompt) > limit:
            play.stop = "context_limit"
            break
        response = write_response(agent.order, move.thought, move.action, agent.action_tags)
        ids = np.array(tokenizer.answer(response) + _end(tokenizer, agent.order), dtype=np.int32)
        nothing = np.zeros(len(ids), dtype=np.float32)
        answer = Sampled(ids, nothing, nothing, nothing + 1, "eos" if agent.order == PLAIN else "tag")
        said = replace(rules.read(answer), action=move.action, verdict="ok")
        rules.record(play, answer, said, game.step(move.action))
    game.close()
    return rules.episode(play)


def _end(tokenizer: ChatTokenizer, order: str) -> list[int]:
    """What a response without tags has to end with, so that a model learns to stop."""
    return (tokenizer.end_of_answer() or sorted(tokenizer.eos_ids)[:1]) if order == PLAIN else []
