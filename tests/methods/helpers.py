"""What the tests of all methods share: ragged episodes, one update taken apart, the same loss written down."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from isentrope.config.kinds import ClipOptions
from isentrope.config.schema import LearnSettings, RunConfig, RunSettings
from isentrope.core.method import Method
from isentrope.core.types import Episode, StepTokens, TokenBatch, TokenStats, Turn
from isentrope.learning import hooks
from isentrope.learning.credit import assign_credit
from isentrope.learning.learner import Learner
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.llama import Llama
from isentrope.models.policy import Policy
from tests.builders.turns import make_turn
from tests.models.helpers import small_policy
from tests.reference import naive

Counts = Sequence[Sequence[Sequence[int]]]  # group -> episode -> tokens of each turn
Make = Callable[[], Method]
SETTINGS = LearnSettings(lr=1e-3, kl=0.0, old_logprobs="sampler")
PACKINGS = ({"micro_tokens": 64}, {"row_tokens": 60, "micro_tokens": 10**6}, {"row_tokens": 40, "micro_tokens": 100})


# Made-up episodes


def ragged(counts: Counts, seed: int, full: bool = True, equal: bool = False) -> list[Episode]:
    """`full`: one growing conversation; else every turn has a prompt of its own. `equal`: all rewards are 0."""
    rng = np.random.default_rng(seed)
    episodes: list[Episode] = []
    for g, group in enumerate(counts):
        for member, tokens in enumerate(group):
            turns = [
                make_turn(rng, count, full and t > 0, longest_context=4, rounded=True) for t, count in enumerate(tokens)
            ]
            won = bool(rng.random() < 0.5)
            if turns:
                turns[-1] = replace(turns[-1], reward=turns[-1].reward + 10.0 * won)
            if equal:
                turns = [replace(turn, reward=0.0) for turn in turns]
            common = {"world": "toy", "split": "train", "kind": "pick", "goal": "", "order": "think_act"}
            episodes.append(
                Episode(
                    **common,
                    index=g,
                    group=2 * g + 1,
                    member=member,
                    turns=tuple(turns),
                    success=won,
                    stop="terminated",
                )
            )
    return episodes


SHAPES = st.lists(st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=3), min_size=1, max_size=3)
EPISODES = st.builds(ragged, SHAPES, st.integers(0, 2**32 - 1), st.booleans())
USUAL: Counts = (((3, 2, 4), (1, 5), (2,)), ((4,), (2, 0, 3), (1, 1, 1)), ((5, 2), (3,), (2, 2)))


def usual(seed: int, full: bool = True, equal: bool = False) -> list[Episode]:
    return ragged(USUAL, seed, full, equal)


@dataclass(frozen=True)
class Flat:
    """Every response token in plain lists, read off the episodes themselves."""

    episode: list[int]
    turn: list[int]
    group: list[int]
    entropy: list[float]
    success: list[float]

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> Flat:
        flat, number = cls([], [], [], [], []), 0
        for e, episode in enumerate(episodes):
            for turn in episode.turns:
                number += 1
                for entropy in turn.entropies.tolist():
                    flat.episode.append(e)
                    flat.turn.append(number)
                    flat.group.append(episode.group)
                    flat.entropy.append(entropy)
                    flat.success.append(1.0 if episode.success else 0.0)
        return flat

    def __len__(self) -> int:
        return len(self.entropy)


def shuffled(episodes: Sequence[Episode], seed: int) -> tuple[list[Episode], list[int]]:
    """The episodes in another order, their groups under other numbers, and where each token went."""
    rng = np.random.default_rng(seed)
    order = [int(i) for i in rng.permutation(len(episodes))]
    labels = sorted({episode.group for episode in episodes})
    other = dict(zip(labels, rng.permutation(len(labels)).tolist(), strict=True))
    first = np.cumsum([0, *(sum(len(turn.response_ids) for turn in e.turns) for e in episodes)]).tolist()
    places = [place for i in order for place in range(first[i], first[i + 1])]
    return [replace(episodes[i], group=other[episodes[i].group]) for i in order], places


def other_prompts(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """The same responses behind other and longer contexts."""
    rng = np.random.default_rng(seed)

    def longer(turn: Turn) -> Turn:
        context = rng.integers(0, 40, len(turn.context_ids) + int(rng.integers(0, 9))).astype(np.int32)
        return replace(turn, context_ids=context)

    return [replace(e, turns=tuple(longer(turn) for turn in e.turns)) for e in episodes]


# One method alone, fed with made-up numbers


def shape(method: Method, episodes: Sequence[Episode], advantages: Sequence[float], step: int = 1) -> list[float]:
    """What a method makes of the advantages; `seen` has what it records of the step."""
    tokens = flatten(episodes)[1]
    begun = hooks.begin([method], step, tokens)
    shaped_N, more = hooks.shaped([method], step, tokens, np.array(advantages, dtype=np.float32))
    _SEEN[method] = begun | more
    return shaped_N.tolist()


def seen(method: Method) -> dict[str, float]:
    """What the method recorded when `shape` was last called with it."""
    return _SEEN[method]


_SEEN: WeakKeyDictionary[Method, dict[str, float]] = WeakKeyDictionary()


def some_advantages(episodes: Sequence[Episode], seed: int = 0) -> list[float]:
    """One per token; some are 0."""
    rng = np.random.default_rng(seed)
    count = sum(len(turn.response_ids) for episode in episodes for turn in episode.turns)
    return np.where(rng.random(count) < 0.2, 0, rng.normal(0, 1.5, count)).astype(np.float32).tolist()


def batches(episodes: Sequence[Episode], **packing: int) -> Iterator[TokenBatch]:
    sequences, tokens = flatten(episodes)
    return micro_batches(sequences, tokens, None, **packing)  # type: ignore[arg-type]


def made_up_stats(batch: TokenBatch, entropy_N: np.ndarray, states_BTD: Tensor | None = None) -> TokenStats:
    """As if a policy had given these entropies and states."""
    states = torch.zeros(*batch.ids_BT.shape, 3) if states_BTD is None else states_BTD
    entropy = torch.from_numpy(entropy_N[batch.number_N])
    return TokenStats(torch.zeros(len(batch.number_N)), entropy, states[batch.row_N, batch.col_N - 1], states)


def loss_of(method: Method, episodes: Sequence[Episode], entropy_N: np.ndarray, **packing: int) -> float:
    """What the method adds to the loss of a mini-batch, all its micro-batches together."""
    total = 0.0
    for batch in batches(episodes, **packing):
        term = method.loss(batch, made_up_stats(batch, entropy_N))
        total += float(term.loss.detach()) if term else 0.0
    return total


# One update, taken apart


def sharp_policy(seed: int = 0) -> Policy:
    """A small policy that is sure of some tokens and not of others: entropies from 0 to more than 4 nats."""
    policy = small_policy(seed)
    with torch.no_grad():
        policy.model.head_weight().mul_(3)
    return policy


@dataclass(frozen=True)
class Update:
    gradient: Tensor
    metrics: dict[str, float]


def one_update(
    policy: Policy,
    episodes: Sequence[Episode],
    methods: Sequence[Method] = (),
    settings: LearnSettings = SETTINGS,
    step: int = 1,
    steps: int = 4,
) -> Update:
    """The gradient of one update, taken before the optimiser uses it, and the metrics."""
    reference = small_policy(seed=9) if settings.kl else None
    learner = Learner(policy, reference, RunConfig(run=RunSettings(steps=steps), learn=settings), methods)
    taken: list[Tensor] = []

    def keep(loss: float, rate: float) -> float:
        found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in learner.optimiser.parameters]
        taken.append(torch.cat([gradient.flatten() for gradient in found]))
        return 0.0

    policy.module.zero_grad()
    learner.optimiser.step = keep  # type: ignore[method-assign]
    metrics = learner.learn(step, episodes).metrics
    policy.module.zero_grad()
    return Update(taken[0], metrics)


def sampled_by(policy: Policy, episodes: Sequence[Episode], seed: int = 0, noise: float = 0.2) -> list[Episode]:
    """The episodes with the log-probs and entropies that the policy gives them, the log-probs a little off: some ratios
    are clipped and some are not."""
    sequences, tokens = flatten(episodes)
    logp_N, entropy_N = np.zeros_like(tokens.logp_N), np.zeros_like(tokens.entropy_N)
    with torch.no_grad():
        for batch in micro_batches(sequences, tokens):
            stats = policy.stats(batch)
            logp_N[batch.number_N], entropy_N[batch.number_N] = stats.logp_N.numpy(), stats.entropy_N.numpy()
    logp_N += np.random.default_rng(seed).normal(0, noise, len(logp_N)).astype(np.float32)
    return with_numbers(episodes, logp_N, entropy_N)


def with_numbers(episodes: Sequence[Episode], logp_N: np.ndarray, entropy_N: np.ndarray) -> list[Episode]:
    at, changed = 0, []
    for episode in episodes:
        turns: list[Turn] = []
        for turn in episode.turns:
            part = slice(at, at + len(turn.response_ids))
            turns.append(replace(turn, logprobs=logp_N[part], entropies=entropy_N[part]))
            at = part.stop
        changed.append(replace(episode, turns=tuple(turns)))
    return changed


# The same update, written down


@dataclass(frozen=True)
class Written:
    """One forward pass per response over its whole prefix in float64; every number still knows the parameters."""

    parameters: list[Tensor]
    logp: list[Tensor]
    entropy: list[Tensor]
    state: list[Tensor]  # at the token
    before: list[Tensor]  # in front of it
    old: list[float]
    flat: Flat

    def gradient(self, loss: Tensor) -> Tensor:
        found = torch.autograd.grad(loss, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.flatten() for gradient in found]).float()

    def policy_loss(self, advantages: Sequence[float], s: LearnSettings = SETTINGS) -> Tensor:
        clip = ClipOptions(**s.loss.options)
        losses = [
            naive.clipped_at(torch.exp(logp - old), advantage, clip.clip_low, clip.clip_high)
            for logp, old, advantage in zip(self.logp, self.old, advantages, strict=True)
        ]
        zero = 0.0 * torch.stack(self.logp).sum()  # a clipped loss is a plain number
        return naive.mean_over([zero + loss for loss in losses], self.flat.episode, self.flat.turn, s.aggregation)


def write_down(policy: Policy, episodes: Sequence[Episode]) -> Written:
    assert isinstance(policy.model, Llama)
    model = copy.deepcopy(policy.model).double()
    written = Written(list(model.parameters()), [], [], [], [], [], Flat.of(episodes))
    for episode in episodes:
        prefix: list[int] = []
        for turn in episode.turns:
            start = [*(prefix if turn.continues else []), *turn.context_ids.tolist()]
            prefix = [*start, *turn.response_ids.tolist()]
            ids = torch.tensor([prefix])
            states = model.hidden(ids, torch.arange(len(prefix))[None], torch.zeros_like(ids))[0]
            for j, token in enumerate(turn.response_ids.tolist()):
                at = len(start) + j
                words = torch.log_softmax(model.head_weight() @ states[at - 1] / float(turn.temperatures[j]), -1)
                written.logp.append(words[token])
                written.entropy.append(-(words.exp() * words).sum())
                written.state.append(states[at])
                written.before.append(states[at - 1])
                written.old.append(float(turn.logprobs[j]))
    return written


def advantages_of(episodes: Sequence[Episode], settings: LearnSettings = SETTINGS) -> list[float]:
    """The base algorithm's, before any method."""
    tokens: StepTokens = flatten(episodes)[1]
    return assign_credit(episodes, tokens, settings, max_response=10).advantage_N.tolist()


def assert_same_gradient(ours: Tensor, theirs: Tensor, tolerance: float = 1e-4) -> None:
    """To a small share of the gradient's own size."""
    assert float(theirs.norm()) > 0
    assert float((ours - theirs).norm() / theirs.norm()) < tolerance


def check_packing(
    make: Make, seed: int, settings: LearnSettings = SETTINGS, step: int = 1, equal: bool = False
) -> None:
    """Packing and accumulation change neither the gradient nor the metrics. Padding comes and goes with them."""
    policy = sharp_policy()
    for full in (True, False):
        episodes = sampled_by(policy, usual(seed, full, equal))
        whole = one_update(policy, episodes, [make()], replace(settings, micro_tokens=10**6), step)
        for packing in PACKINGS:
            parts = one_update(policy, episodes, [make()], replace(settings, **packing), step)  # type: ignore[arg-type]
            assert_same_gradient(parts.gradient, whole.gradient, 1e-5)
            np.testing.assert_allclose(
                [parts.metrics[key] for key in whole.metrics], list(whole.metrics.values()), rtol=1e-4, atol=1e-5
            )


def check_order(make: Make, seed: int, step: int = 1, equal: bool = False) -> None:
    """The order of episodes and the numbers of groups do not change the gradient."""
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(seed, equal=equal))
    whole = one_update(policy, episodes, [make()], step=step)
    moved = one_update(policy, shuffled(episodes, seed)[0], [make()], step=step)
    assert_same_gradient(moved.gradient, whole.gradient, 1e-5)


def check_zero(zero: Method, own: str, seed: int = 5) -> None:
    """The gradient and all metrics but the method's own equal those without it, bit for bit."""
    policy = sharp_policy()
    for full in (True, False):
        episodes = sampled_by(policy, usual(seed, full))
        settings = replace(SETTINGS, kl=0.05)
        plain, with_zero = one_update(policy, episodes, (), settings), one_update(policy, episodes, [zero], settings)
        assert float(plain.gradient.norm()) > 0
        assert torch.equal(plain.gradient, with_zero.gradient)
        assert plain.metrics == {key: v for key, v in with_zero.metrics.items() if not key.startswith(own)}
