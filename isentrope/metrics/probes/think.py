"""ΔH = H(action | obs) - H(action | obs, think): how much the thought narrows the action down (ActRe).

A state is what stood in front of a response, its thought and its action. The same action is scored twice, token by
token, with the thought in front of it and without:

    with       context <think>thought</think> <action> a1 a2 … ak
    without    context                        <action> a1 a2 … ak

The entropies are those in front of a1 … ak, over the full vocabulary, at temperature 1. A state's entropy is the mean
over its action tokens, as ActRe defines it for a decision; the probe's is the mean over states.

In the order think_act `with` is the response exactly as it was sampled. In act_think the response was sampled without
a thought in front, so `without` is as sampled and `with` has the thought, which was written later, moved to the front.
The tokens of the action are the same in both. Where one token spans the end of a block and the start of the next (the
`><` of `</think><action>`), the part that remains is encoded anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.seeding import stream
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Episode, Ints, Turn
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.policy import Policy


@dataclass(frozen=True)
class State:
    """One action, and what stands in front of it with its thought and without."""

    with_think: Ints
    without: Ints
    action: Ints


def choose_states(episodes: Sequence[Episode], tokenizer: ChatTokenizer, count: int) -> list[State]:
    """Up to `count` states of these episodes, drawn without regard to the order of the episodes.

    Drawn, not simply the first: those would all be turns of one or two games.
    """
    ordered = sorted(episodes, key=lambda episode: (episode.group, episode.member))
    found = [
        (episode, place)
        for episode in ordered
        for place, turn in enumerate(episode.turns)
        if turn.valid and all(span and span[1] > span[0] for span in (turn.think_span, turn.action_span))
    ]
    drawn: list[int] = stream(0, "probe/states").permutation(len(found)).tolist()
    states = (make_state(*found[number], tokenizer) for number in drawn)
    return list(islice((state for state in states if state), count))


def make_state(episode: Episode, place: int, tokenizer: ChatTokenizer) -> State | None:
    """The state of a valid response with a thought; None if its first action token cannot be told from the tag."""
    turn, context = episode.turns[place], _context(episode.turns, place)
    assert turn.action_span is not None
    first, end = turn.action_span
    response = _Response(turn.response_ids, tokenizer)
    found = re.search(rb"<think>.*?</think>", response.text, re.DOTALL)
    if found is None:
        return None
    thought = found.span()  # from the start of <think> to the end of </think>
    thinks_first = response.starts[first] >= thought[1]
    before = response.text[thought[1] if thinks_first else 0 :]
    opening = len(response.text) - len(before.lstrip())  # where the next block opens
    if opening > response.starts[first]:
        return None
    tag = response.cut(opening, response.starts[first])
    lead = response.cut(0, thought[0] if thinks_first else opening)
    as_sampled = _join(context, turn.response_ids[:first])
    action = turn.response_ids[first:end]
    if thinks_first:
        return State(as_sampled, _join(context, lead, tag), action)
    return State(_join(context, lead, response.cut(*thought), tag), as_sampled, action)


class _Response:
    """The tokens of a response by the places of their bytes."""

    def __init__(self, ids: Ints, tokenizer: ChatTokenizer) -> None:
        self.ids, self.tokenizer = ids, tokenizer
        self.pieces = tokenizer.pieces([int(i) for i in ids])
        self.text = b"".join(self.pieces)
        self.starts = [0, *accumulate(len(piece) for piece in self.pieces)]

    def cut(self, begin: int, end: int) -> Ints:
        """The tokens of the bytes from `begin` to `end`; a token that reaches over an edge is encoded anew in part."""
        ids: list[int] = []
        for i, piece, start in zip(self.ids, self.pieces, self.starts, strict=False):
            if inside := piece[max(begin - start, 0) : max(end - start, 0)]:
                ids += [int(i)] if inside == piece else self.tokenizer.content(inside.decode("utf-8", "replace"))
        return np.array(ids, dtype=np.int32)


def _context(turns: Sequence[Turn], place: int) -> Ints:
    """All tokens in front of a response: by the prefix rule those of the turns that it continues too."""
    parts = [turns[place].context_ids]
    while place and turns[place].continues:
        place -= 1
        parts = [turns[place].context_ids, turns[place].response_ids, *parts]
    return _join(*parts)


def _join(*parts: Ints) -> Ints:
    return np.concatenate(parts).astype(np.int32)


def delta_h(policy: Policy, states: Sequence[State], micro_tokens: int) -> dict[str, float]:
    """The probe's numbers; none if there are no states."""
    if not states:
        return {}
    with_S = _action_entropies(policy, [state.with_think for state in states], states, micro_tokens)
    without_S = _action_entropies(policy, [state.without for state in states], states, micro_tokens)
    return {
        "probe/delta_h": float(np.mean(without_S - with_S)),
        "probe/action_entropy": float(np.mean(with_S)),
        "probe/action_entropy_without": float(np.mean(without_S)),
        "probe/states": float(len(states)),
    }


@torch.no_grad()
def _action_entropies(
    policy: Policy, contexts: Sequence[Ints], states: Sequence[State], micro_tokens: int
) -> NDArray[np.float64]:
    """Of each state, the mean entropy over its action tokens behind the given context."""
    episodes = [_scored(context, state.action) for context, state in zip(contexts, states, strict=True)]
    sequences, tokens = flatten(episodes)
    entropy_N = np.zeros(len(tokens.target_N))
    for batch in micro_batches(sequences, tokens, micro_tokens=micro_tokens, device=policy.device):
        entropy_N[batch.number_N] = policy.stats(batch).entropy_N.float().cpu().numpy()
    return np.array([entropy_N[tokens.episode_N == e].mean() for e in range(len(states))])


def _scored(context: Ints, action: Ints) -> Episode:
    """An episode of one turn, so that the batch builder can pack it."""
    unknown = np.zeros(len(action), dtype=np.float32)
    turn = Turn(
        observation="", admissible=None, anchor="", context_ids=context, continues=False, response_ids=action,
        logprobs=unknown, entropies=unknown, temperatures=np.ones(len(action), dtype=np.float32), think_span=None,
        action_span=None, action=None, verdict="ok", stop="tag", reward=0.0,
    )  # fmt: skip
    return Episode("", "", 0, "", "", 0, 0, "act", (turn,), success=False, stop="terminated")


def pack_states(states: Sequence[State]) -> list[dict[str, Any]]:
    """As a checkpoint keeps them."""
    return [{name: torch.from_numpy(ids.copy()) for name, ids in vars(state).items()} for state in states]


def unpack_states(packed: Sequence[dict[str, Any]]) -> list[State]:
    return [State(**{name: ids.numpy().astype(np.int32) for name, ids in state.items()}) for state in packed]
