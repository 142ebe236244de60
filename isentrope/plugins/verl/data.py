"""The token table of verl's batches, and the batches that terms read on its workers.

In verl a row is one output of an agent loop: a whole conversation, or a part of it. Keys are `UID_SESSION_NUMBER`: rows
of one session are an episode, sessions of one uid a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isentrope.core.errors import TrainError
from isentrope.core.types import Floats, TokenBatch
from isentrope.learning.tokens import OTHER, Ids
from isentrope.plugins.table import Rollout, Table, flat, make_table


@dataclass(frozen=True)
class Places:
    """Where the rows of a batch stand among episodes and groups."""

    order_B: Ids  # rows by group, session and number
    episode_B: Ids  # of the ordered rows
    group_E: Ids


def places_of(keys: Sequence[str]) -> Places:
    """Groups and sessions in the order in which they first come."""
    parts: list[tuple[str, str, int]] = []
    for key in keys:
        uid, _, rest = str(key).rpartition("_")
        uid, _, session = uid.rpartition("_")
        if not uid or not session or not rest.isdigit():
            raise TrainError(f"the key {key!r:.80} of a row of verl: expected UID_SESSION_NUMBER")
        parts.append((uid, session, int(rest)))
    groups = {uid: number for number, uid in enumerate(dict.fromkeys(uid for uid, _, _ in parts))}
    sessions = {pair: number for number, pair in enumerate(dict.fromkeys((uid, s) for uid, s, _ in parts))}
    ordered = sorted(
        range(len(parts)), key=lambda row: (groups[parts[row][0]], sessions[parts[row][:2]], parts[row][2])
    )
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(parts[row][:2] for row in ordered))}
    episode_B = np.array([numbers[parts[row][:2]] for row in ordered], dtype=np.int64)
    group_E = np.array([groups[uid] for uid, _ in numbers], dtype=np.int64)
    return Places(np.array(ordered, dtype=np.int64), episode_B, group_E)


@dataclass(frozen=True)
class Step:
    """A step's table; its rows are those of verl in another order."""

    table: Table
    order_B: Ids

    def per_token(self, values_BT: Tensor) -> Floats:
        return flat(values_BT)[self.order_B[self.table.row_N], self.table.col_N]

    def padded(self, values_N: Floats, like_BT: Tensor) -> Tensor:
        """The numbers of the tokens in their places among the others."""
        given_BT = like_BT.clone()
        row_N = torch.from_numpy(self.order_B[self.table.row_N]).to(like_BT.device)
        col_N = torch.from_numpy(self.table.col_N).to(like_BT.device)
        given_BT[row_N, col_N] = torch.from_numpy(values_N).to(given_BT)
        return given_BT


def step_of(
    batch: Any,
    keys: Sequence[str],
    read_piece: Callable[[int], bytes],
    tags: tuple[str, ...],
    temperature: float,
    solved_at: float,
) -> Step:
    """`batch`: padded tensors with responses, response_mask, old_log_probs, entropy and rewards of each token."""
    wanted = ("responses", "response_mask", "old_log_probs", "entropy", "token_level_scores")
    missing = [name for name in wanted if name not in batch.keys()]  # noqa: SIM118 - a TensorDict iterates over rows
    if missing:
        raise TrainError(
            f"verl's batch has no {', '.join(missing)}: entropies come with log-probs that the actor computes, so set "
            "algorithm.rollout_correction.bypass_mode=False"
        )
    places = places_of(keys)
    order = torch.from_numpy(places.order_B)
    mask = batch["response_mask"].bool()
    rollout = Rollout(
        ids_BT=batch["responses"].cpu()[order].long().numpy(),
        mask_BT=mask.cpu()[order].numpy(),
        reward_B=(batch["token_level_scores"] * mask).sum(dim=1).double().cpu()[order].numpy(),
        group_size=1,
        temperature=temperature,
        logp_BT=flat(batch["old_log_probs"])[places.order_B],
        entropy_BT=flat(batch["entropy"])[places.order_B],
        episode_B=places.episode_B,
        group_E=places.group_E,
    )
    return Step(make_table(rollout, read_piece, tags, solved_at), places.order_B)


def micro_batch(responses: Tensor, mask_BT: Tensor, told: Any, logp_BT: Tensor) -> TokenBatch:
    """The tokens of a micro-batch on a worker. `told` has verl's numbers of the whole mini-batch: `dp_size`,
    `batch_num_tokens`, `global_batch_size`. Each row counts as an episode."""
    row_N, col_N = mask_BT.nonzero(as_tuple=True)
    first_N = torch.ones_like(row_N, dtype=torch.bool)
    first_N[1:] = (row_N[1:] != row_N[:-1]) | (col_N[1:] != col_N[:-1] + 1)
    turn_N = first_N.cumsum(0) - 1
    length_U = torch.bincount(turn_N)
    turns_B = torch.bincount(row_N[first_N], minlength=len(mask_BT))
    tokens_B = mask_BT.sum(dim=1)
    # gradients are averaged over the processes, and these are shares of what all of them have
    whole, rows = told["batch_num_tokens"] / told["dp_size"], told["global_batch_size"] / told["dp_size"]
    weights = {
        "token": torch.full_like(row_N, 1, dtype=torch.float32) / whole,
        "turn": 1.0 / (length_U[turn_N] * turns_B[row_N] * rows),
        "episode": 1.0 / (tokens_B[row_N] * rows),
    }
    zero_N = logp_BT.new_zeros(len(row_N))
    return TokenBatch(
        ids_BT=responses, segments_BT=mask_BT.long() - 1, positions_BT=torch.zeros_like(responses), row_N=row_N,
        col_N=col_N, target_N=responses[row_N, col_N], temperature_N=zero_N + 1, old_logp_N=logp_BT[row_N, col_N],
        advantage_N=zero_N, ref_logp_N=None, success_N=zero_N, part_N=torch.full_like(row_N, OTHER), turn_N=turn_N,
        number_N=np.arange(len(row_N)), mini_batch=np.arange(len(row_N)), weights=weights,
    )  # fmt: skip
