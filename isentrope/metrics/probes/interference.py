"""Gradient interference between the episodes of a group (SEAL, Lemmas 3.2 and 3.3).

    ℓ_i  = Σ_k log p_ik        over the response tokens k of episode i
    g_i  = ∇ℓ_i                K_ij = <g_i, g_j>
    c_j  = 1/G Σ_i K_ij        how strongly episode j's gradient points along the group's
    Σ_j A_j c_j                the change of the group's mean log-likelihood under the update: below 0, it falls

By Lemma 3.2 the output matrix W has the part Σ_k Σ_k' <q_ik, q_jk'> <h_ik, h_jk'> in K_ij, with h the hidden state in
front of a token and q = (one-hot - softmax) / τ. That part is what is computed here; it equals <Q_iᵀH_i, Q_jᵀH_j>,
which needs no pairs of tokens. The vocabulary is walked through in slices, and of a gradient only the slice is ever
held.

Cost for N tokens of a group: 3·N·V·D multiplications (logits for the normaliser, logits again, Qᵀ·H) and G²·V·D for
the inner products, so about what the token head costs in an update; memory for two blocks of CHUNK_VALUES numbers.

`full_kernel` has K_ij over all weights that learn, both terms of Lemma 3.2, by autograd: a forward and a backward pass
per episode, and the gradients of a whole group in memory at once, in float32. 8 episodes × 135 million weights take
4.3 GB. With adapters only these learn, and it is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.core.types import Episode
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.memory import CHUNK_VALUES, chunk_rows
from isentrope.models.policy import Policy
from isentrope.models.token_head import logits

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EpisodeStates:
    """The response tokens of one episode: the state in front of each, the token, and the temperature."""

    hidden_ND: Tensor
    target_N: Tensor
    temperature_N: Tensor


@torch.no_grad()
def kernel(episodes: list[EpisodeStates], weight_VD: Tensor) -> Matrix:
    """K_ij of the output matrix for the episodes of a group."""
    words, size = weight_VD.shape
    count = len(episodes)
    normaliser = [_log_normaliser(episode, weight_VD) for episode in episodes]
    most = max(len(episode.target_N) for episode in episodes)
    room = CHUNK_VALUES.get(weight_VD.device.type, CHUNK_VALUES["cpu"])
    width = max(1, room // max(most, count * size))
    result = np.zeros((count, count))
    for first in range(0, words, width):
        piece_VD = weight_VD[first : first + width]
        gradient = torch.empty(count, piece_VD.numel(), device=weight_VD.device)
        for i, (episode, z_N) in enumerate(zip(episodes, normaliser, strict=True)):
            gradient[i] = _slice(episode, piece_VD, first, z_N).flatten()
        result += (gradient @ gradient.T).cpu().double().numpy()
    return result


def _log_normaliser(episode: EpisodeStates, weight_VD: Tensor) -> Tensor:
    """log Σ_v exp(z_v / τ) of each token."""
    rows = chunk_rows(weight_VD.shape[0], weight_VD.device.type)
    chunks = zip(torch.split(episode.hidden_ND, rows), torch.split(episode.temperature_N, rows), strict=True)
    return torch.cat([torch.logsumexp(logits(h_ND, weight_VD) / t_N[:, None], dim=-1) for h_ND, t_N in chunks])


def _slice(episode: EpisodeStates, piece_VD: Tensor, first: int, normaliser_N: Tensor) -> Tensor:
    """Rows `first`, `first + 1`, … of the episode's gradient with respect to the output matrix: Qᵀ·H."""
    temperature = episode.temperature_N[:, None]
    q_NV = (logits(episode.hidden_ND, piece_VD) / temperature - normaliser_N[:, None]).exp().neg()
    place_N = episode.target_N - first
    here = ((place_N >= 0) & (place_N < len(piece_VD))).nonzero().squeeze(1)
    q_NV[here, place_N[here]] += 1
    return (q_NV / temperature).T @ episode.hidden_ND.float()


@torch.enable_grad()  # pyright: ignore[reportUntypedFunctionDecorator]
def full_kernel(policy: Policy, episodes: Sequence[Episode], micro_tokens: int) -> Matrix:
    """K_ij for the episodes of a group. The weights' own `.grad` is not touched."""
    weights = [weight for weight in policy.module.parameters() if weight.requires_grad]
    gradient = torch.zeros(len(episodes), sum(weight.numel() for weight in weights), device=policy.device)
    for row, episode in zip(gradient, episodes, strict=True):
        sequences, tokens = flatten([episode])
        for batch in micro_batches(sequences, tokens, micro_tokens=micro_tokens, device=policy.device):
            likelihood = policy.stats(batch).logp_N.sum()
            _add(row, weights, torch.autograd.grad(likelihood, weights, allow_unused=True))
    return (gradient @ gradient.T).cpu().double().numpy()


def _add(row: Tensor, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    at = 0
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            row[at : at + weight.numel()] += gradient.flatten().float()
        at += weight.numel()


@dataclass(frozen=True)
class Group:
    """What one group of episodes gave."""

    kernel: Matrix
    advantage_G: Matrix
    tokens_G: Matrix

    @property
    def c_G(self) -> Matrix:
        return self.kernel.mean(0)

    @property
    def c_per_token_G(self) -> Matrix:
        """The same with each ℓ divided by its length, so that an episode is not louder for being longer."""
        return (self.kernel / np.outer(self.tokens_G, self.tokens_G)).mean(0)


def interference_metrics(groups: list[Group]) -> dict[str, float]:
    """c_j averaged over the episodes with positive and with negative advantage, and Σ_j A_j c_j over the groups."""
    if not groups:
        return {}
    advantage = np.concatenate([group.advantage_G for group in groups])
    values = {
        "": np.concatenate([group.c_G for group in groups]),
        "_per_token": np.concatenate([group.c_per_token_G for group in groups]),
    }
    sums = [float(group.advantage_G @ group.c_G) for group in groups]
    metrics = {"probe/interference/sum": float(np.mean(sums))}
    for name, members in (("positive", advantage > 0), ("negative", advantage < 0)):
        if members.any():
            metrics |= {f"probe/interference/{name}{kind}": float(c[members].mean()) for kind, c in values.items()}
    return metrics
