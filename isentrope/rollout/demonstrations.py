"""Plays a scripted expert and records its games as episodes of the policy: data for imitation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from isentrope.agent.context import Context, split_prefix
from isentrope.agent.response_format import parse_response, write_response
from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.errors import TaskError
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Episode, Turn
from isentrope.worlds.contract import Expert, Instance, Step, View, World


def demonstrations(
    world: World,
    tokenizer: ChatTokenizer,
    agent: AgentSettings,
    task: TaskSettings,
    instances: Iterable[Instance],
    seed: int,
) -> Iterator[Episode]:
    """The expert's games on these instances. Games that the expert loses, or that outgrow the context, are left out."""
    for instance in instances:
        expert = world.expert(seed + instance.index)
        if expert is None:
            raise TaskError(f"{world.name} has no expert, so there is nothing to imitate")
        episode = demonstrate(world, expert, tokenizer, agent, task, instance)
        if episode.success and longest_sequence(episode) <= agent.max_context:
            yield episode


def longest_sequence(episode: Episode) -> int:
    """Tokens of the longest conversation: the whole episode, or its longest turn if turns are prompted anew."""
    longest = length = 0
    for turn in episode.turns:
        length = (length if turn.continues else 0) + len(turn.context_ids) + len(turn.response_ids)
        longest = max(longest, length)
    return longest


def demonstrate(
    world: World, expert: Expert, tokenizer: ChatTokenizer, agent: AgentSettings, task: TaskSettings, instance: Instance
) -> Episode:
    """One game of a scripted player."""
    context = Context.of(tokenizer, agent, agent.order)
    turns: list[Turn] = []
    success, stop = False, "turn_limit"
    play = world.open()
    view = play.start(instance)
    goal = view.goal
    expert.start(view, instance)
    for _ in range(task.max_turns):
        move = expert.act(view)
        prompt = context.prompt(view)
        if context.limit is not None and len(prompt) > context.limit:
            stop = "context_limit"
            break
        ids = tokenizer.answer(write_response(agent.order, move.thought, move.action, agent.action_tags))
        step = play.step(move.action)
        turns.append(_turn(context, view, prompt, ids, move.action, step, task.success_reward))
        context.answered(prompt, ids, move.action)
        view, success = step.view, success or step.success
        if step.terminated or step.truncated:
            stop = "terminated" if step.terminated else "truncated"
            break
    play.close()
    return Episode(
        world=instance.world,
        split=instance.split,
        index=instance.index,
        kind=instance.kind,
        goal=goal,
        group=0,
        member=0,
        order=agent.order,
        turns=tuple(turns),
        success=success,
        stop=stop,
    )


def _turn(
    context: Context, view: View, prompt: list[int], ids: list[int], action: str, step: Step, success_reward: float
) -> Turn:
    parsed = parse_response(context.tokenizer.pieces(ids), context.order, "tag", context.tags)
    continues, new = split_prefix(context.tokens, prompt)
    nothing = np.zeros(len(ids), dtype=np.float32)
    return Turn(
        observation=view.text,
        admissible=view.admissible,
        anchor="",
        context_ids=np.array(new, dtype=np.int32),
        continues=continues,
        response_ids=np.array(ids, dtype=np.int32),
        logprobs=nothing,
        entropies=nothing,
        temperatures=nothing + 1,
        think_span=parsed.think_span,
        action_span=parsed.action_span,
        action=action,
        verdict="ok" if step.valid else "inadmissible",
        stop="tag",
        reward=success_reward * step.reward,
        dropped=context.dropped,
    )
