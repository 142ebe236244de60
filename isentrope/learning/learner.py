"""One update from one step's episodes: score, assign credit, shape, then policy-gradient updates.

    credited = learner.credit(step, episodes)      # nothing has changed yet: the moment for probes
    update = learner.update(credited)              # update.metrics, update.scores, update.seconds

Losses are sums of weight · value with a denominator over the whole mini-batch (see token_weights.py), so accumulating
over micro-batches, and over ranks, gives the gradient of the whole mini-batch. What computes with the weights is in
replica.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from isentrope.config.schema import RunConfig
from isentrope.core.method import Method
from isentrope.core.seeding import stream
from isentrope.core.types import Episode, Floats, Metrics, Scores, StepTokens, Targets
from isentrope.learning import hooks
from isentrope.learning.credit import assign_credit
from isentrope.learning.critic import explained_variance
from isentrope.learning.losses.kl import kl_estimate
from isentrope.learning.old_logprobs import Mismatch
from isentrope.learning.records import add_weights, merged, put, scores_of
from isentrope.learning.registry import make_advantage, make_loss
from isentrope.learning.replica import CRITIC, POLICY, REFERENCE, Replica
from isentrope.learning.tokens import Mask, TokenSequence, finite, flatten, only, renumbered, rows, spread
from isentrope.models.policy import Policy

CUT_OFF = ("turn_limit", "context_limit", "truncated", "clock")  # stops that are not the task's own end


@dataclass(frozen=True)
class Credited:
    """What a step's update learns from: its episodes scored, credited and shaped."""

    step: int
    episodes: Sequence[Episode]
    table: StepTokens  # all tokens of the step
    keep_N: Mask  # those of the table whose numbers are finite: `tokens` and `targets` have these alone
    tokens: StepTokens
    targets: Targets
    learnable_N: Mask  # of `tokens`
    sequences: list[TokenSequence]  # with the tokens that can be learnt from
    from_sampler: bool  # whether the old log-probs are the sampler's
    metrics: Metrics
    seconds: Metrics

    @property
    def advantage_N(self) -> Floats:
        """Of all tokens of the table, as they are learnt from."""
        return spread(np.where(self.learnable_N, self.targets.advantage_N, 0), self.keep_N, 0.0)


@dataclass(frozen=True)
class Update:
    """What an update did."""

    metrics: Metrics  # those of its credit included
    scores: Scores
    seconds: Metrics  # by what stands before its first change, and `transfer`: updates with moments on the host


class Learner:
    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        config: RunConfig,
        methods: Sequence[Method] = (),
        replica: Replica | None = None,
    ) -> None:
        """`replica`: the first of several ranks."""
        self.policy, self.reference, self.config, self.methods = policy, reference, config, tuple(methods)
        self.settings = config.learn
        self.replica = replica or Replica(policy, reference, config)
        self.optimiser, self.critic = self.replica.optimiser, self.replica.critic
        self.advantage, self.loss = make_advantage(config.learn), make_loss(config.learn)
        self.mismatch = Mismatch(config.learn, self.loss.by_response)

    def add_method(self, method: Method) -> None:
        """It acts from the next step on."""
        self.methods = (*self.methods, method)

    def credit(self, step: int, episodes: Sequence[Episode]) -> Credited:
        """Score the episodes, turn rewards into advantages, let methods shape them. The policy stays as it is."""
        sequences, table = flatten(episodes)
        from_sampler, begin = self.mismatch.trusted, time.perf_counter()
        wait_N = self._waiting(step, episodes, sequences, table)
        passes = self._passes(sequences, table, wait_N)
        known_N = np.where(wait_N, 0, passes.old_logp_N)
        keep_N = finite(table.logp_N, table.entropy_N, known_N, passes.ref_logp_N, passes.value_N)
        tokens, sequences = rows(table, keep_N), renumbered(sequences, keep_N)
        targets, metrics = self._targets(episodes, tokens, rows(passes, keep_N))
        scored = time.perf_counter()
        shaped = hooks.begin(self.methods, step, tokens)
        advantage_N, more = hooks.shaped(self.methods, step, tokens, targets.advantage_N)
        targets = replace(targets, advantage_N=advantage_N)
        seconds = {"score": scored - begin} | ({"shape": time.perf_counter() - scored} if self.methods else {})
        learnable_N = finite(targets.advantage_N, targets.return_N)
        if wait_N.any() and not (keep_N.all() and learnable_N.all()):  # the mini-batches may be others than foreseen
            old_N = self.score(self.policy, sequences, tokens)
            targets, told = self._with_old(targets, old_N, tokens)
            metrics, learnable_N = metrics | told, learnable_N & finite(old_N)
        if learnable_N.any():
            shaped["advantage/learnt"] = float(targets.advantage_N[learnable_N].std())
        dropped, count = len(table.logp_N) - int(learnable_N.sum()), len(table.logp_N)
        metrics |= shaped | more | {"update/dropped_tokens": dropped, "update/dropped_share": dropped / max(1, count)}
        sequences = only(sequences, learnable_N)
        return Credited(
            step, episodes, table, keep_N, tokens, targets, learnable_N, sequences, from_sampler, metrics, seconds
        )

    def update(self, credited: Credited) -> Update:
        """Improve the policy."""
        step, tokens, targets, sequences = credited.step, credited.tokens, credited.targets, credited.sequences
        lost = not sequences and credited.metrics["update/dropped_tokens"] > 0
        metrics = dict(credited.metrics)
        first_logp_N = np.full_like(tokens.logp_N, np.nan)  # of each token, when it was first learnt from
        if self.settings.mask_truncated:
            whole = self._unmasked(credited.episodes, sequences)
            metrics["update/masked"] = 1 - len({s.episode for s in whole}) / max(1, len({s.episode for s in sequences}))
            sequences = whole
        policy_too = self._policy_learns(step)
        seen, before = list[Metrics](), self._moved()
        weight_N, factor_N = np.zeros_like(tokens.logp_N), np.ones_like(tokens.logp_N)
        self.replica.begin(tokens, hooks.clipped(self.methods, self.loss), self.mismatch, self.methods)
        for epoch in range(self.settings.epochs):
            for mini in self._mini_batches(step, epoch, sequences):
                skipped_before = self.optimiser.skipped
                updated = self.replica.update(mini, targets, policy_too, np.isnan(first_logp_N))
                put(first_logp_N, [updated.first])
                put(factor_N, [updated.factors])
                seen.append(updated.metrics)
                if len(seen) == 1 and np.isnan(targets.old_logp_N).any():
                    old_N = np.where(np.isnan(targets.old_logp_N), first_logp_N, targets.old_logp_N)
                    targets, told = self._with_old(targets, old_N, tokens)
                    metrics, sequences = metrics | told, only(sequences, finite(old_N))
                if policy_too and self.optimiser.skipped == skipped_before:
                    aggregation, constant = self.settings.aggregation, self.replica.constant_length
                    add_weights(weight_N, mini, tokens, targets, aggregation, constant, factor_N)
                if len(seen) == 1 and credited.from_sampler:
                    metrics |= self.mismatch.look_back(first_logp_N, tokens)
        scores = scores_of(credited.table, targets, first_logp_N, weight_N, credited.keep_N)
        for _ in range(self.settings.epochs * self.settings.mini_batches - len(seen)):  # groups may be missing
            self.replica.pass_by(lost)
        metrics |= merged(seen, hooks.extremes([*self.methods, self.loss], seen)) | {
            "update/skipped": self.optimiser.skipped,
            "update/count": len(seen),
        }
        moved = self._moved() - before
        return Update(metrics, scores, credited.seconds | ({"transfer": moved} if moved else {}))

    def _moved(self) -> float:
        """Seconds of all updates so far whose moments came from the host's memory and went back."""
        return self.optimiser.seconds + (self.critic.optimiser.seconds if self.critic else 0.0)

    def learn(self, step: int, episodes: Sequence[Episode]) -> Update:
        """Credit and update at once."""
        return self.update(self.credit(step, episodes))

    def _policy_learns(self, step: int) -> bool:
        return self.critic is None or step > self.config.critic.warmup

    def _unmasked(self, episodes: Sequence[Episode], sequences: list[TokenSequence]) -> list[TokenSequence]:
        if not self.settings.mask_truncated:
            return sequences
        return [s for s in sequences if episodes[s.episode].stop not in CUT_OFF]

    def _waiting(
        self, step: int, episodes: Sequence[Episode], sequences: list[TokenSequence], tokens: StepTokens
    ) -> Mask:
        """The tokens whose old log-probs the first update's own forward pass is to give."""
        wait_N = np.zeros(len(tokens.logp_N), dtype=np.bool_)
        if not self.mismatch.asked(self.reference is not None, self._policy_learns(step)):
            for mini in self._mini_batches(step, 0, self._unmasked(episodes, sequences))[:1]:
                wait_N[np.concatenate([sequence.tokens for sequence in mini])] = True
        return wait_N

    def _passes(self, sequences: Sequence[TokenSequence], tokens: StepTokens, wait_N: Mask | None = None) -> Targets:
        """What forward passes say about the tokens: old and reference log-probs, values. No advantages yet. The old
        log-probs of tokens that wait for the first update are NaN."""
        old_N = tokens.logp_N
        if not self.mismatch.trusted:
            now = sequences if wait_N is None else [s for s in sequences if not wait_N[s.tokens].any()]
            old_N = self.score(self.policy, now, tokens) if now else np.zeros_like(tokens.logp_N)
            old_N = old_N if wait_N is None else np.where(wait_N, np.float32(np.nan), old_N)
        ref_N = self.score(self.reference, sequences, tokens) if self.reference else None
        value_N = self.replica.scores(CRITIC, sequences, tokens) if self.critic else None
        return Targets(np.zeros_like(tokens.logp_N), old_N, ref_N, value_N=value_N)

    def _targets(self, episodes: Sequence[Episode], tokens: StepTokens, passes: Targets) -> tuple[Targets, Metrics]:
        """Correct for the sampler and assign credit."""
        s, metrics, penalty_N = self.settings, Metrics(), None
        old_N, ref_N, value_N = passes.old_logp_N, passes.ref_logp_N, passes.value_N
        if not (self.mismatch.trusted or np.isnan(old_N).any()):
            passes, metrics = self._with_old(passes, old_N, tokens)
        if ref_N is not None and s.kl_in == "reward":
            kl_N = kl_estimate(torch.from_numpy(old_N), torch.from_numpy(ref_N), s.kl_estimator)
            penalty_N = (s.kl * kl_N).numpy()
        credit = assign_credit(episodes, tokens, s, self.config.agent.max_response, penalty_N, value_N, self.advantage)
        metrics |= credit.metrics
        if value_N is not None and credit.return_N is not None and len(value_N):
            estimate, target = torch.from_numpy(value_N), torch.from_numpy(credit.return_N)
            metrics["critic/explained"] = explained_variance(estimate, target)
        return replace(passes, advantage_N=credit.advantage_N, return_N=credit.return_N), metrics

    def _with_old(self, targets: Targets, old_N: Floats, tokens: StepTokens) -> tuple[Targets, Metrics]:
        """With the trainer's log-probs of all tokens, and what corrects for the sampler. Those that are not finite are
        not to be learnt from; in their place stand the sampler's."""
        known_N = finite(old_N)
        self.mismatch.failed |= not known_N.all()
        old_N = np.where(known_N, old_N, tokens.logp_N)
        mismatch_N, metrics = self.mismatch.weigh(old_N, tokens)
        return replace(targets, old_logp_N=old_N, mismatch_N=mismatch_N), metrics

    def score(self, policy: Policy, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        """Log-probs that the policy, or its reference, gives to the response tokens."""
        return self.replica.scores(POLICY if policy is self.policy else REFERENCE, sequences, tokens)

    def _mini_batches(self, step: int, epoch: int, sequences: Sequence[TokenSequence]) -> list[list[TokenSequence]]:
        """The sequences in `mini_batches` parts; the episodes of a group stay together."""
        if not sequences:
            return []
        if self.settings.mini_batches == 1:
            return [list(sequences)]
        groups = sorted({sequence.group for sequence in sequences})
        order = stream(self.config.run.seed, "mini_batches", step, epoch).permutation(len(groups))
        parts = np.array_split(np.array(groups)[order], self.settings.mini_batches)
        members: list[set[int]] = [set(part.tolist()) for part in parts if len(part)]
        return [[s for s in sequences if s.group in chosen] for chosen in members]

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.replica.state_dict(),
            "methods": hooks.states(self.methods),
            "mismatch": self.mismatch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replica.load_state_dict(state)
        self.mismatch.load_state_dict(state.get("mismatch", {}))
        hooks.load_states(self.methods, state["methods"])
