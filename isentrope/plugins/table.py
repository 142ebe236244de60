"""The token table and the batches that methods read, made of the padded tensors of another trainer.

One row is an episode, or in verl a part of one. A run of ones in the mask of the model's own tokens is a turn; in TRL
`num_generations` rows that follow each other are a group. Shape letters are those of core/types.py: B rows of all
processes, T columns of the completions, N tokens that the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.agent.response_format import parse_response
from isentrope.core.errors import TrainError
from isentrope.core.token_weights import MODES, token_weights
from isentrope.core.types import Floats, StepTokens, TokenBatch, measured_at
from isentrope.learning.tokens import ACTION, OTHER, THINK, Ids, Mask, finite, rows


@dataclass(frozen=True)
class Rollout:
    """What was sampled for one step, the rows of all processes. Rows of an episode follow each other, as do those of a
    group."""

    ids_BT: Ids
    mask_BT: Mask  # the model's own tokens that count
    reward_B: NDArray[np.float64]  # NaN: no reward function could say
    group_size: int
    temperature: float
    logp_BT: Floats | None  # None: nobody asked for them
    entropy_BT: Floats | None
    episode_B: Ids | None = None  # None: each row is one
    group_E: Ids | None = None  # of each episode; None: `group_size` of them follow each other


@dataclass(frozen=True)
class Table:
    """The tokens of a step, and where they stand in TRL's rows."""

    tokens: StepTokens
    row_N: Ids
    col_N: Ids  # of the completion
    width: int  # T
    rows: int  # B

    @cached_property
    def start_B(self) -> Ids:
        """Where the tokens of each row begin, and where the last ones end."""
        return np.searchsorted(self.row_N, np.arange(self.rows + 1))

    def of(self, row_numbers: Ids) -> Ids:
        """The numbers of the tokens of these rows, in the order of the rows."""
        start_B: list[int] = self.start_B.tolist()
        numbers: list[int] = row_numbers.tolist()
        return np.concatenate([np.arange(start_B[row], start_B[row + 1], dtype=np.int64) for row in numbers])

    def per_token(self, values_BT: Tensor) -> Floats:
        """One column of numbers, from all rows."""
        return flat(values_BT)[self.row_N, self.col_N]

    def padded(self, values_N: Floats, row_numbers: Ids, default_B: Tensor, like_BT: Tensor) -> Tensor:
        """The numbers of these rows in their columns; elsewhere the row's default."""
        values_BT = default_B[:, None].repeat(1, like_BT.shape[1])
        number_N = self.of(row_numbers)
        local_N = torch.from_numpy(self.row_N[number_N] - row_numbers[0]).to(values_BT.device)
        col_N = torch.from_numpy(self.col_N[number_N]).to(values_BT.device)
        values_BT[local_N, col_N] = torch.from_numpy(values_N[number_N]).to(values_BT)
        return values_BT


def flat(values: Tensor) -> Floats:
    return values.detach().float().cpu().numpy()


def make_table(rollout: Rollout, read_piece: Callable[[int], bytes], tags: tuple[str, ...], solved_at: float) -> Table:
    """Tokens whose log-prob or entropy is not finite are left out, as our learner leaves them out."""
    count, size = len(rollout.mask_BT), rollout.group_size
    if rollout.group_E is None and count % size:
        raise TrainError(
            f"TRL sampled {count} completions in groups of {size}, so the last group is incomplete; make "
            "per_device_train_batch_size × processes × steps_per_generation a multiple of num_generations"
        )
    row_N, col_N = np.nonzero(rollout.mask_BT)
    first_N = np.ones(len(row_N), dtype=np.bool_)
    first_N[1:] = (row_N[1:] != row_N[:-1]) | (col_N[1:] != col_N[:-1] + 1)
    turn_N = np.cumsum(first_N) - 1
    episode_B = np.arange(count) if rollout.episode_B is None else rollout.episode_B
    reward_E = np.full(int(episode_B.max(initial=-1)) + 1, np.nan)
    reward_E[episode_B] = rollout.reward_B  # of an episode of several rows that of the last
    episode_N, group_E = episode_B[row_N], np.arange(len(reward_E)) // size
    group_E = group_E if rollout.group_E is None else rollout.group_E
    episode_U = episode_N[first_N]
    ids_N = rollout.ids_BT[row_N, col_N]
    part_N, valid_U = _parts(ids_N, np.flatnonzero(first_N), read_piece, tags)
    known_E = np.isfinite(reward_E)
    solved_E = known_E & (np.nan_to_num(reward_E) >= solved_at)
    sampled_at_N = np.full(len(row_N), rollout.temperature, dtype=np.float32)
    unknown_N = np.full(len(row_N), np.nan, dtype=np.float32)
    scored = rollout.logp_BT is not None and rollout.entropy_BT is not None
    tokens = StepTokens(
        target_N=ids_N,
        temperature_N=measured_at(sampled_at_N),
        sampled_at_N=sampled_at_N,
        logp_N=rollout.logp_BT[row_N, col_N] if rollout.logp_BT is not None else unknown_N,
        entropy_N=rollout.entropy_BT[row_N, col_N] if rollout.entropy_BT is not None else unknown_N,
        episode_N=episode_N,
        turn_N=turn_N,
        group_N=group_E[episode_N],
        part_N=part_N,
        success_N=solved_E[episode_N].astype(np.float32),
        episode_U=episode_U,
        place_U=np.arange(len(episode_U)) - np.searchsorted(episode_U, episode_U),
        valid_U=valid_U,
        kind_E=("",) * len(reward_E),
        solved_E=solved_E,
        failed_E=known_E & ~solved_E,
    )
    if not scored:
        return Table(tokens, row_N, col_N, rollout.mask_BT.shape[1], count)
    keep_N = finite(tokens.logp_N, tokens.entropy_N)
    return Table(rows(tokens, keep_N), row_N[keep_N], col_N[keep_N], rollout.mask_BT.shape[1], count)


def _parts(ids_N: Ids, start_U: Ids, read_piece: Callable[[int], bytes], tags: tuple[str, ...]) -> tuple[Ids, Mask]:
    """Thought and action of each turn by its tags, and whether it has exactly this form."""
    part_N = np.full(len(ids_N), OTHER, dtype=np.int64)
    valid_U = np.zeros(len(start_U), dtype=np.bool_)
    bounds: list[int] = [*start_U.tolist(), len(ids_N)]
    for turn, (start, end) in enumerate(pairwise(bounds)):
        parsed = parse_response([read_piece(number) for number in ids_N[start:end].tolist()], "think_act", "eos", tags)
        valid_U[turn] = parsed.verdict == "ok"
        for span, part in ((parsed.think_span, THINK), (parsed.action_span, ACTION)):
            if span is not None:
                part_N[start + span[0] : start + span[1]] = part
    return part_N, valid_U


@dataclass(frozen=True)
class Window:
    """The mini-batch of one optimizer step: the rows of all processes and all micro-batches."""

    chosen: Ids
    weights: dict[str, Floats]  # by mode, for each token of the table; the denominator is the whole mini-batch


def make_window(table: Table, row_numbers: Ids, constant_length: float) -> Window:
    chosen, tokens = table.of(np.sort(row_numbers)), table.tokens
    weights: dict[str, Floats] = {}
    for mode in MODES:
        weight_N = np.zeros(len(table.row_N), dtype=np.float32)
        weight_N[chosen] = token_weights(mode, tokens.episode_N[chosen], tokens.turn_N[chosen], constant_length)
        weights[mode] = weight_N
    return Window(chosen, weights)


def make_batch(
    table: Table, window: Window, advantage_N: Floats, row_numbers: Ids, inputs: dict[str, Any], logp_BT: Tensor
) -> TokenBatch:
    """The tokens of a micro-batch. `inputs` are TRL's; without old log-probs in them those of now are the old ones."""
    number_N, tokens, device = table.of(row_numbers), table.tokens, logp_BT.device
    local_N = np.repeat(np.arange(len(row_numbers)), (table.start_B[1:] - table.start_B[:-1])[row_numbers])
    row_N, col_N = torch.from_numpy(local_N).to(device), torch.from_numpy(table.col_N[number_N]).to(device)

    def column(values_N: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values_N[number_N]).to(device)

    old_BT, ref_BT = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps")
    seen_BT = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    return TokenBatch(
        ids_BT=torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        segments_BT=seen_BT.long() - 1,
        positions_BT=(seen_BT.long().cumsum(1) - 1).clamp(min=0),
        row_N=row_N,
        col_N=col_N + inputs["prompt_ids"].shape[1],
        target_N=column(tokens.target_N),
        temperature_N=column(tokens.temperature_N),
        old_logp_N=(logp_BT.detach() if old_BT is None else old_BT)[row_N, col_N].float(),
        advantage_N=column(advantage_N),
        ref_logp_N=None if ref_BT is None else ref_BT[row_N, col_N].float(),
        success_N=column(tokens.success_N),
        part_N=column(tokens.part_N),
        turn_N=torch.from_numpy(np.unique(tokens.turn_N[number_N], return_inverse=True)[1]).to(device),
        number_N=number_N,
        mini_batch=window.chosen,
        weights={mode: column(weight_N) for mode, weight_N in window.weights.items()},
    )
