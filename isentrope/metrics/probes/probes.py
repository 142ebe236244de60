"""Runs the probes: measurements with the model on a bounded part of a step, every so many steps.

They read the policy as it is when they are asked, which is meant to be before the update: then the hidden states, the
gradients and the advantages belong to the policy that played. Nothing of the policy, its gradients or the random
state is changed, so a run with probes learns the same as one without, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.config.schema import InstrumentSettings
from isentrope.core.types import Episode, Floats
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import episode_slices, flatten, step_tokens
from isentrope.metrics.means import Metrics
from isentrope.metrics.probes.interference import EpisodeStates, Group, full_kernel, interference_metrics, kernel
from isentrope.metrics.probes.think import State, choose_states, delta_h, pack_states, unpack_states
from isentrope.models.policy import Policy, before

Matrix = NDArray[np.float64]
FOLDS = 5
RIDGE = 1.0  # times the mean squared length of the standardised features


def similarity_metrics(mean_ED: Matrix, solved_E: NDArray[np.bool_], games: Sequence[Hashable]) -> dict[str, float]:
    """How alike the hidden states of solved and failed episodes are.

    An episode is the mean, over its response tokens, of the final hidden state at the token (after the last norm): the
    representation of SEAL's Figure 3. `games` says which task instance each episode was played on. What cannot be
    measured has no key.
    """
    metrics = cosines(mean_ED, solved_E)
    if (accuracy := probe_accuracy(mean_ED, solved_E, games)) is not None:
        share = float(np.mean(solved_E))
        metrics |= {"probe/accuracy": accuracy, "probe/majority": max(share, 1 - share)}
    return metrics


def cosines(mean_ED: Matrix, solved_E: NDArray[np.bool_]) -> dict[str, float]:
    """Mean cosine over all pairs of different episodes: within solved, within failed and between the two."""
    unit_ED = mean_ED / np.maximum(np.linalg.norm(mean_ED, axis=1, keepdims=True), 1e-12)
    metrics: dict[str, float] = {}
    for name, members in (("solved", solved_E), ("failed", ~solved_E)):
        count = int(members.sum())
        if count > 1:
            cosine_EE = unit_ED[members] @ unit_ED[members].T
            different = np.triu_indices(count, k=1)
            metrics[f"probe/similarity/{name}"] = float(cosine_EE[different].mean())
    if solved_E.any() and not solved_E.all():
        metrics["probe/similarity/between"] = float((unit_ED[solved_E] @ unit_ED[~solved_E].T).mean())
    return metrics


def probe_accuracy(mean_ED: Matrix, solved_E: NDArray[np.bool_], games: Sequence[Hashable]) -> float | None:
    """Share of the episodes whose outcome is told right by a linear probe that was trained on other games.

    The probe is a ridge regression from the standardised means to +1 (solved) and -1 (failed); the sign decides.
    """
    # Games are dealt out to folds in a fixed order, and all episodes of one go together.
    number = {game: i for i, game in enumerate(sorted(set(games), key=repr))}
    fold_E = np.array([number[game] % FOLDS for game in games], dtype=np.int64)
    if fold_E.max(initial=0) == 0 or solved_E.all() or not solved_E.any():
        return None
    label_E = np.where(solved_E, 1.0, -1.0)
    right = 0
    for fold in range(int(fold_E.max()) + 1):
        asked = fold_E == fold
        guess = _ridge(mean_ED[~asked], label_E[~asked], mean_ED[asked])
        right += int(np.sum((guess > 0) == solved_E[asked]))
    return right / len(label_E)


def _ridge(known_ED: Matrix, label_E: Matrix, asked_ED: Matrix) -> Matrix:
    """Predictions for `asked_ED`. Solved among episodes, not among features: there are far fewer of them."""
    mean_D, spread_D = known_ED.mean(0), known_ED.std(0)
    scale_D = np.where(spread_D > 1e-9, spread_D, np.inf)  # a feature that never differs says nothing
    known, asked = (known_ED - mean_D) / scale_D, (asked_ED - mean_D) / scale_D
    gram_EE = known @ known.T
    penalty = RIDGE * max(float(np.trace(gram_EE)) / len(known), 1e-12)
    weight_E = cast("Any", np.linalg).solve(gram_EE + penalty * np.eye(len(known)), label_E - label_E.mean())
    return asked @ (known.T @ weight_E) + label_E.mean()


class Probes:
    """`run` gives the numbers, `timings` what the last run of it took."""

    def __init__(self, settings: InstrumentSettings, micro_tokens: int = 16384) -> None:
        self.settings, self.micro_tokens = settings, micro_tokens
        self.states: list[State] = []
        self.timings: Metrics = {}

    def due(self, step: int) -> bool:
        """At the first step, so that there is something to compare with, and then every so many."""
        every = self.settings.probe_every
        return every > 0 and (step == 1 or step % every == 0)

    def run(self, policy: Policy, episodes: Sequence[Episode], advantages: Floats | None) -> Metrics:
        """All probes. `advantages` has one number per response token, in the order of episodes, turns and tokens."""
        begin = time.monotonic()
        with_tokens = [episode for episode in episodes if any(len(turn.response_ids) for turn in episode.turns)]
        missing = self.settings.probe_states - len(self.states)
        with undisturbed(policy):
            if missing > 0:  # until there are enough; from then on they stay the same
                self.states += choose_states(with_tokens, policy.tokenizer, missing)
            metrics = delta_h(policy, self.states, self.micro_tokens)
            metrics |= self._read_groups(policy, with_tokens, _per_episode(with_tokens, advantages))
        self.timings = {"probe/seconds": time.monotonic() - begin}
        return metrics

    def _read_groups(self, policy: Policy, episodes: Sequence[Episode], advantage_E: Matrix | None) -> Metrics:
        """Similarity and interference, from one forward pass over the first groups of the step."""
        means: list[Matrix] = []
        read: list[Episode] = []
        groups: list[Group] = []
        for members in self._groups(episodes):
            chosen = [episodes[e] for e in members]
            mean_ED, states = read_episodes(policy, chosen, self.micro_tokens)
            means.append(mean_ED)
            read += chosen
            if advantage_E is not None:
                tokens_G = np.array([len(state.target_N) for state in states], dtype=np.float64)
                if self.settings.probe_gradient == "all":
                    products = full_kernel(policy, chosen, self.micro_tokens)
                else:
                    products = kernel(states, policy.model.head_weight())
                groups.append(Group(products, advantage_E[members], tokens_G))
        if not read:
            return {}
        solved_E = np.array([episode.success for episode in read])
        games = [(episode.world, episode.split, episode.index) for episode in read]
        return similarity_metrics(np.concatenate(means), solved_E, games) | interference_metrics(groups)

    def _groups(self, episodes: Sequence[Episode]) -> list[list[int]]:
        """Places of the episodes of the first groups, by the numbers of group and member."""
        numbers = sorted({episode.group for episode in episodes})[: self.settings.probe_groups or None]
        ordered = sorted(range(len(episodes)), key=lambda e: (episodes[e].group, episodes[e].member))
        return [[e for e in ordered if episodes[e].group == number] for number in numbers]

    def state_dict(self) -> dict[str, Any]:
        return {"states": pack_states(self.states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.states = unpack_states(state["states"])


@contextmanager
def undisturbed(policy: Policy) -> Generator[None]:
    """Within this the model answers without dropout and without gradients; after it everything is as it was."""
    modes = [(module, module.training) for module in policy.module.modules()]
    devices = [policy.device] if policy.device.type == "cuda" else []
    policy.module.eval()
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def read_episodes(
    policy: Policy, episodes: Sequence[Episode], micro_tokens: int
) -> tuple[NDArray[np.float64], list[EpisodeStates]]:
    """Of each episode the mean state at its response tokens, and the state in front of each of them."""
    sequences, tokens = flatten(episodes)
    at: list[Tensor] = []
    front: list[Tensor] = []
    numbers: list[NDArray[np.int64]] = []
    for batch in micro_batches(sequences, tokens, micro_tokens=micro_tokens, device=policy.device):
        states_BTD = policy.states(batch)
        at.append(states_BTD[batch.row_N, batch.col_N])
        front.append(before(states_BTD, batch))
        numbers.append(batch.number_N)
    order = torch.from_numpy(np.argsort(np.concatenate(numbers))).to(policy.device)
    at_ND, front_ND = torch.cat(at)[order], torch.cat(front)[order]
    target_N = torch.from_numpy(tokens.target_N).to(policy.device)
    temperature_N = torch.from_numpy(tokens.temperature_N).to(policy.device)
    places = episode_slices(tokens)
    means = [at_ND[place].float().mean(0).cpu().double().numpy() for place in places]
    return np.array(means), [EpisodeStates(front_ND[place], target_N[place], temperature_N[place]) for place in places]


def _per_episode(episodes: Sequence[Episode], advantages: Floats | None) -> Matrix | None:
    """One advantage per episode: the mean over its tokens, which all have the same unless credit is finer."""
    if advantages is None:
        return None
    places = episode_slices(step_tokens(episodes))
    count = places[-1].stop if places else 0
    if len(advantages) != count:
        raise ValueError(f"{len(advantages)} advantages for {count} response tokens; expected one for each")
    return np.array([advantages[place].mean(dtype=np.float64) for place in places])
