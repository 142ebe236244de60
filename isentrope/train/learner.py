"""One update from one step's episodes: score, assign credit, shape, then policy-gradient updates.

Losses are sums of weight · value with a denominator over the whole mini-batch (see masked.py), so accumulating over
micro-batches gives the gradient of the whole mini-batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.batch import flatten, micro_batches
from isentrope.config.schema import LearnSettings, RunConfig
from isentrope.core.method import Method
from isentrope.core.seeding import stream
from isentrope.core.types import Episode, Floats, Scores, StepTokens, Targets, TokenBatch
from isentrope.layout import TokenSequence
from isentrope.losses.kl import kl_estimate
from isentrope.models.policy import Policy, before
from isentrope.train.credit import assign_credit
from isentrope.train.critic import Critic, explained_variance
from isentrope.train.finite import finite, only, renumbered, rows, spread
from isentrope.train.mismatch import Mismatch
from isentrope.train.objective import Figures, Metrics, accumulate, brought, critic_objective, merged, objective
from isentrope.train.optimise import Optimiser, learning_rate
from isentrope.train.tables import add_weights, scores_of, write_values

Probe = Callable[[Floats], Metrics]
"""From the advantages that will be learnt from to what was measured with the policy that played."""
CUT_OFF = ("turn_limit", "context_limit", "truncated", "clock")  # stops that are not the task's own end


def make_optimiser(policy: Policy, settings: LearnSettings) -> Optimiser:
    return Optimiser(
        policy.module.parameters(),
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        grad_clip=settings.grad_clip,
        max_skips=settings.max_skips,
        master_weights=settings.master_weights,
    )


class Learner:
    def __init__(
        self, policy: Policy, reference: Policy | None, config: RunConfig, methods: Sequence[Method] = ()
    ) -> None:
        self.policy, self.reference, self.config, self.methods = policy, reference, config, methods
        self.settings = config.learn
        self.total_updates = config.run.steps * config.learn.epochs * config.learn.mini_batches
        self.constant_length = config.learn.constant_length or config.task.max_turns * config.agent.max_response
        self.optimiser = make_optimiser(policy, config.learn)
        self.critic = Critic(policy, config.critic, config.learn) if config.learn.advantage == "gae" else None
        self.mismatch = Mismatch(config.learn)
        self.scores: Scores | None = None  # of the last update
        self.seconds: Metrics = {}  # of the last update, by what stands before its first change
        self._shaping = 0.0  # seconds of it that methods took to shape the advantages
        self._first_logp_N: Floats = np.zeros(0, dtype=np.float32)  # of each token, when it was first learnt from

    def update(self, step: int, episodes: Sequence[Episode], probe: Probe | None = None) -> Metrics:
        """Improve the policy on these episodes; says what happened. `probe` is asked right before the first change."""
        sequences, table = flatten(episodes)
        from_sampler, begin = self.mismatch.trusted, time.perf_counter()
        passes = self._passes(sequences, table)
        keep_N = finite(table.logp_N, table.entropy_N, passes.old_logp_N, passes.ref_logp_N, passes.value_N)
        tokens, sequences = rows(table, keep_N), renumbered(sequences, keep_N)
        targets, metrics = self._targets(step, episodes, tokens, rows(passes, keep_N))
        learnable_N = finite(targets.advantage_N, targets.return_N)
        sequences = only(sequences, learnable_N)
        dropped = len(table.logp_N) - int(learnable_N.sum())
        metrics |= {"update/dropped_tokens": dropped, "update/dropped_share": dropped / max(1, len(table.logp_N))}
        lost = dropped > 0 and not sequences
        shaped = time.perf_counter()
        self.seconds = {"score": shaped - begin - self._shaping}
        if self.methods:
            self.seconds["shape"] = self._shaping
        if probe is not None:
            metrics |= probe(spread(np.where(learnable_N, targets.advantage_N, 0), keep_N, 0.0))
            self.seconds["probe"] = time.perf_counter() - shaped
        self._first_logp_N = np.full_like(tokens.logp_N, np.nan)
        if self.settings.mask_truncated:
            whole = [s for s in sequences if episodes[s.episode].stop not in CUT_OFF]
            metrics["update/masked"] = 1 - len({s.episode for s in whole}) / max(1, len({s.episode for s in sequences}))
            sequences = whole
        policy_too = self.critic is None or step > self.config.critic.warmup
        seen: list[Metrics] = []
        weight_N = np.zeros_like(tokens.logp_N)
        for epoch in range(self.settings.epochs):
            for mini in self._mini_batches(step, epoch, sequences):
                skipped_before = self.optimiser.skipped
                seen.append(self._update_once(mini, tokens, targets, policy_too))
                if policy_too and self.optimiser.skipped == skipped_before:
                    add_weights(weight_N, mini, tokens, targets, self.settings.aggregation, self.constant_length)
                if len(seen) == 1 and from_sampler:
                    metrics |= self.mismatch.look_back(self._first_logp_N, tokens)
        self.scores = scores_of(table, targets, self._first_logp_N, weight_N, keep_N)
        for _ in range(self.settings.epochs * self.settings.mini_batches - len(seen)):  # groups may be missing
            self._pass_by(lost)
        return metrics | merged(seen) | {"update/skipped": self.optimiser.skipped, "update/count": len(seen)}

    def _passes(self, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Targets:
        """What forward passes say about the tokens: old and reference log-probs, values. No advantages yet."""
        old_N = tokens.logp_N if self.mismatch.trusted else self.score(self.policy, sequences, tokens)
        ref_N = self.score(self.reference, sequences, tokens) if self.reference else None
        value_N = self._values(sequences, tokens) if self.critic else None
        return Targets(np.zeros_like(tokens.logp_N), old_N, ref_N, value_N=value_N)

    def _targets(
        self, step: int, episodes: Sequence[Episode], tokens: StepTokens, passes: Targets
    ) -> tuple[Targets, Metrics]:
        """Correct for the sampler, assign credit, and let the methods shape it."""
        s, metrics, mismatch_N = self.settings, Metrics(), None
        old_N, ref_N, value_N = passes.old_logp_N, passes.ref_logp_N, passes.value_N
        if not self.mismatch.trusted:
            mismatch_N, metrics = self.mismatch.weigh(old_N, tokens)
        penalty_N = None
        if ref_N is not None and s.kl_in == "reward":
            kl_N = kl_estimate(torch.from_numpy(old_N), torch.from_numpy(ref_N), s.kl_estimator)
            penalty_N = (s.kl * kl_N).numpy()
        credit = assign_credit(episodes, tokens, s, self.config.agent.max_response, penalty_N, value_N)
        metrics |= credit.metrics
        if value_N is not None and credit.return_N is not None and len(value_N):
            estimate, target = torch.from_numpy(value_N), torch.from_numpy(credit.return_N)
            metrics["critic/explained"] = explained_variance(estimate, target)
        advantage_N, begin = credit.advantage_N, time.perf_counter()
        for method in self.methods:
            advantage_N = method.shape(step, tokens, advantage_N)
            metrics |= method.seen
        self._shaping = time.perf_counter() - begin
        return Targets(advantage_N, old_N, ref_N, credit.return_N, value_N, mismatch_N), metrics

    def score(self, policy: Policy, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        """Log-probs that a policy gives to the response tokens, at the temperatures they were sampled with."""
        return self._per_token(lambda batch: policy.stats(batch).logp_N, sequences, tokens)

    def _values(self, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        critic = self.critic
        assert critic is not None
        if critic.body:
            return self._per_token(lambda batch: critic.values(batch, None), sequences, tokens)
        return self._per_token(
            lambda batch: critic.values(batch, before(self.policy.states(batch), batch)), sequences, tokens
        )

    @torch.no_grad()
    def _per_token(
        self, compute: Callable[[TokenBatch], Tensor], sequences: Sequence[TokenSequence], tokens: StepTokens
    ) -> Floats:
        values_N = np.zeros_like(tokens.logp_N)
        write_values(values_N, [(batch.number_N, compute(batch)) for batch in self._pieces(sequences, tokens, None)])
        return values_N

    def _pieces(self, sequences: Sequence[TokenSequence], tokens: StepTokens, targets: Targets | None):
        s, fast = self.settings, self.policy.trains_fast
        return micro_batches(
            sequences,
            tokens,
            targets,
            row_tokens=s.row_tokens or (s.micro_tokens if fast else 0),  # attention by segments has no use for rows
            micro_tokens=s.micro_tokens,
            constant_length=self.constant_length,
            device=self.policy.device,
            share=s.share_prefixes == "on" or (s.share_prefixes == "auto" and fast),
        )

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

    def _update_once(
        self, mini: Sequence[TokenSequence], tokens: StepTokens, targets: Targets, policy_too: bool
    ) -> Metrics:
        s = self.settings
        figures: list[Figures] = []
        first: list[tuple[NDArray[np.int64], Tensor]] = []
        for batch in self._pieces(mini, tokens, targets):
            hidden_ND, both = None, list[Tensor]()  # losses that go back through the policy together
            if policy_too:
                stats = self.policy.stats(batch)
                if len(batch.number_N) and np.isnan(self._first_logp_N[batch.number_N[0]]):
                    first.append((batch.number_N, stats.logp_N.detach()))  # of the first pass over these tokens alone
                loss, seen = objective(batch, stats, s, self.methods)
                figures.append(seen)
                hidden_ND = stats.hidden_ND
                if self.critic and self.critic.reaches_policy:
                    both.append(loss)
                else:
                    loss.backward()
            if self.critic:
                if hidden_ND is None and self.critic.body is None:
                    hidden_ND = before(self.policy.states(batch), batch).detach()
                loss, seen = critic_objective(batch, hidden_ND, self.critic, s)
                figures.append(seen)
                torch.autograd.backward([*both, loss])
        sums: Metrics = {}
        for each in brought(figures):
            accumulate(sums, each)
        write_values(self._first_logp_N, first)
        rate = learning_rate(self.optimiser.updates, self.total_updates, s.lr, s.warmup, s.floor)
        if self.critic:
            peak = self.config.critic.lr
            critic_rate = learning_rate(self.critic.optimiser.updates, self.total_updates, peak, s.warmup, s.floor)
            sums["critic/grad_norm"] = self.critic.optimiser.step(sums["critic/loss"], critic_rate)
        if not policy_too:
            self.optimiser.pass_by()
            return sums
        skipped_before = self.optimiser.skipped
        sums["grad_norm"] = self.optimiser.step(sums.get("loss/total", 0.0), rate)
        for method in self.methods:
            method.updated(self.optimiser.skipped == skipped_before)
        return sums | {"lr": rate}

    def _pass_by(self, lost: bool) -> None:
        """Let the schedules go on over an update that was not made. `lost`: because no token was left to learn from."""
        if lost:
            self.optimiser.skip("had no token to learn from: a log-prob, entropy or advantage of each was not finite")
        else:
            self.optimiser.pass_by()
        if self.critic:
            self.critic.optimiser.pass_by()

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimiser": self.optimiser.state_dict(),
            "critic": self.critic.state_dict() if self.critic else {},
            "methods": {method.name: method.state_dict() for method in self.methods},
            "mismatch": self.mismatch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimiser.load_state_dict(state["optimiser"])
        self.mismatch.load_state_dict(state.get("mismatch", {}))
        if self.critic:
            self.critic.load_state_dict(state["critic"])
        for method in self.methods:
            method.load_state_dict(state["methods"][method.name])
