"""Every record that crosses a stage of the loop. All frozen.

Shape letters, used as suffixes of array names everywhere:
    G  episodes of one group (all on one task instance, from one start)
    B  rows of a packed batch        T  columns of a row
    N  response tokens of a batch    D  hidden size    V  vocabulary
    E  episodes of a step            U  turns of a step

A worked example, in `full` context. Two turns of one episode, `c` context tokens (prompt, observations:
written by the task or by us) and `r` response tokens (sampled by the policy):

    turn 0   context_ids = [c0 c1 c2]   continues = False   response_ids = [r3 r4]
    turn 1   context_ids = [c5]         continues = True    response_ids = [r6 r7]

By the prefix rule turn 1 continues turn 0, so both become one row of 8 tokens with
`response_mask = [0 0 0 1 1 0 1 1]`. In `window` context turn 1 has a prompt of its own, `continues` is
False, and the episode becomes two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # keeps `isentrope --help` free of torch
    from torch import Tensor

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Metrics = dict[str, float]
Span = tuple[int, int]  # token positions inside the response, end excluded


def measured_at(temperatures: Floats) -> Floats:
    """The temperatures that log-probs and entropies belong to: those of sampling, but 1 for a token that was taken
    greedily. At temperature 0 every taken token would have probability 1 and entropy 0, which says nothing."""
    return np.where(temperatures > 0, temperatures, np.float32(1))


@dataclass(frozen=True)
class Turn:
    """One observation, one response, one step of the task."""

    observation: str
    admissible: tuple[str, ...] | None
    anchor: str  # hash of goal and raw observation: the same state gives the same anchor
    context_ids: Ints  # tokens before the response; only the new ones if the turn continues the one before
    continues: bool
    response_ids: Ints
    logprobs: Floats  # of each sampled token, at the temperature it was sampled with (see `measured_at`)
    entropies: Floats  # full-vocabulary entropy in nats, same temperature
    temperatures: Floats  # 0: the likeliest token was taken
    think_span: Span | None  # what stands between the tags, the tags excluded
    action_span: Span | None
    action: str | None  # what was sent to the task, None if nothing could be parsed
    verdict: str  # "ok", or why the response was not a valid action: see agent/response_format.py
    stop: str  # why sampling ended: "tag", "eos" or "length"
    reward: float  # after scaling, the penalty for an invalid response included
    dropped: int = 0  # earlier turns left out of the conversation in front of this one, because it grew too long
    mended: str = ""  # what was put right in the task's answer to this turn (see View.mended), joined by blanks

    @property
    def valid(self) -> bool:
        return self.verdict == "ok"


# stops that say something about the task or the engine, nothing about the policy
FAILURES = ("task_error", "time_limit", "worker_died", "garbage", "engine_error")
# In an evaluation a game that the clock cut off is lost to a fault too: on a faster machine it might have been solved.
FAULTS = (*FAILURES, "clock")
CUTS = ("clock", "context_limit")  # stops that an evaluation counts, as a larger limit might have changed the outcome


@dataclass(frozen=True)
class Episode:
    """One play of one task instance."""

    world: str
    split: str
    index: int  # of the task instance in its split
    kind: str
    goal: str
    group: int  # which group of the step
    member: int  # which episode of the group
    order: str  # "think_act", "act_think", "act" or "plain": the response form it was played with
    turns: tuple[Turn, ...]
    success: bool
    stop: str  # "terminated", "truncated", "turn_limit", "context_limit", "clock"; or one of FAILURES
    detail: str = ""  # the reason in words, for a failure
    score: float | None = None  # 0 to 1, if the task gives one of its own beside the reward (Step.info["score"])
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])  # of reward functions, by name, unweighted

    @property
    def ret(self) -> float:
        return float(sum(turn.reward for turn in self.turns))


class TokenTemperature(Protocol):
    """The temperature of each token of one response."""

    needs_entropy: bool  # whether it is to be told the entropy of the next token at the plan's temperature

    def __call__(self, response: Sequence[int], entropy: float) -> float: ...


TemperatureRule = Callable[[Any, tuple[str, ...] | None, float, tuple[str, ...]], TokenTemperature | None]
"""From the chat tokenizer of the model, the admissible actions of a turn, the plan's temperature and the tags that hold
an action to the temperatures of the response; None leaves the plan's for all of it."""


@dataclass(frozen=True)
class RolloutPlan:
    """How the episodes of one step are to be played. A method's `plan` may replace any of it."""

    order: str = "think_act"
    temperature: float = 1.0
    temperature_rule: TemperatureRule | None = None
    notes: dict[str, float] = field(default_factory=dict[str, float])  # shown as metrics


@dataclass(frozen=True)
class StepTokens:
    """All N response tokens of a step's episodes, in the order of episodes, turns and tokens.

    Methods shape advantages on this, instruments measure it, and every TokenBatch is a selection of it. U counts the
    turns that have tokens. learning/tokens.py makes it.
    """

    target_N: NDArray[np.int64]
    temperature_N: Floats  # that log-probs and entropies are measured at: see `measured_at`
    sampled_at_N: Floats  # the temperature of sampling; 0: the likeliest token was taken
    logp_N: Floats  # of the policy that sampled
    entropy_N: Floats  # likewise
    episode_N: NDArray[np.int64]  # index into the step's episodes
    turn_N: NDArray[np.int64]  # number of the turn, counted over the whole step
    group_N: NDArray[np.int64]
    part_N: NDArray[np.int64]  # OTHER, THINK or ACTION
    success_N: Floats  # 1.0 if the token's episode was successful
    episode_U: NDArray[np.int64]  # of each turn that turn_N counts
    place_U: NDArray[np.int64]  # which turn of its episode it is, from 0
    valid_U: NDArray[np.bool_]
    kind_E: tuple[str, ...]
    solved_E: NDArray[np.bool_]
    failed_E: NDArray[np.bool_]  # the policy did not solve it; an episode that broke is neither

    @cached_property
    def length_U(self) -> NDArray[np.int64]:
        """Tokens of each turn."""
        return np.bincount(self.turn_N, minlength=len(self.episode_U))


@dataclass(frozen=True)
class Shaped:
    """What a method makes of the advantages, and what to record of that."""

    advantage_N: Floats
    metrics: Metrics


@dataclass(frozen=True)
class Targets:
    """What an update aims at, for each response token of the step."""

    advantage_N: Floats
    old_logp_N: Floats
    ref_logp_N: Floats | None = None
    return_N: Floats | None = None  # for the critic
    value_N: Floats | None = None  # the critic's, before the update
    mismatch_N: Floats | None = None  # weight of each token's policy loss; None: all count in full


@dataclass(frozen=True)
class Scores:
    """What an update made of a step's responses: U of them, N tokens in all, in the order of episodes and turns."""

    episode_U: NDArray[np.int64]  # index into the step's episodes
    turn_U: NDArray[np.int64]  # which turn of its episode, from 0
    length_U: NDArray[np.int64]
    advantage_N: Floats  # as it was learnt from: after all methods
    ratio_N: Floats  # new over old probability at the first pass over the token; NaN: it was not learnt from
    weight_N: Floats | None = None  # of its policy loss in the updates that were made; None: an older file

    def responses(self) -> list[tuple[int, int, int]]:
        """Episode, turn and length of each."""
        columns: list[list[int]] = [self.episode_U.tolist(), self.turn_U.tolist(), self.length_U.tolist()]
        return list(zip(*columns, strict=True))  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Spans:
    """The segments of a batch whose rows are laid end to end, padding included; they lie one after the other."""

    start: NDArray[np.int64]
    length: NDArray[np.int64]
    parent: NDArray[np.int64]  # number of the segment that this one goes on from; -1: it begins by itself

    def columns(self, number: int) -> NDArray[np.int64]:
        start = int(self.start[number])
        return np.arange(start, start + int(self.length[number]), dtype=np.int64)

    def seen(self) -> NDArray[np.bool_]:
        """[token, token]: which tokens each one sees. For tests and small batches."""
        of = np.repeat(np.arange(len(self.start)), self.length)
        allowed: NDArray[np.bool_] = (of[:, None] == of[None, :]) | (self.parent[of][:, None] == of[None, :])
        return np.tril(allowed)


@dataclass(frozen=True)
class TokenBatch:
    """Packed rows, and the response tokens in them.

    `segments_BT` numbers the sequences packed into a row (-1: padding); a token sees only its own sequence, and the
    segment `parents_BT` (-2: none) that it goes on from, where sequences share their beginning. Response token n
    stands at (row_N[n], col_N[n]) and is predicted from the column before, which is in the same segment.
    """

    ids_BT: Tensor
    segments_BT: Tensor
    positions_BT: Tensor
    row_N: Tensor
    col_N: Tensor
    target_N: Tensor
    temperature_N: Tensor
    old_logp_N: Tensor
    advantage_N: Tensor
    ref_logp_N: Tensor | None
    success_N: Tensor
    part_N: Tensor
    turn_N: Tensor  # number of the response within the batch, from 0
    number_N: NDArray[np.int64]  # of each token in StepTokens
    mini_batch: NDArray[np.int64]  # numbers of all tokens of the mini-batch that this is a piece of
    weights: dict[str, Tensor]  # aggregation mode -> weight per token; its denominator is the whole mini-batch
    return_N: Tensor | None = None
    old_value_N: Tensor | None = None
    mismatch_N: Tensor | None = None
    parents_BT: Tensor | None = None
    spans: Spans | None = None  # the same layout for those who read it outside of the device


@dataclass(frozen=True)
class TokenStats:
    """One forward pass, three outputs, for the N response tokens of a TokenBatch."""

    logp_N: Tensor
    entropy_N: Tensor
    hidden_ND: Tensor  # the state in front of each token: what it was predicted from
    states_BTD: Tensor  # the states of all tokens of the batch's rows, prompts included


@dataclass(frozen=True)
class Term:
    """A method's addition to the loss, and what to record of it: numbers, or tensors of one, which keep a GPU busy."""

    loss: Tensor
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict[str, "float | Tensor"])
