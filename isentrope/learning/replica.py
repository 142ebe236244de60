"""What has the weights and changes them: forward passes over a step's tokens, and updates on mini-batches.

A learner (learner.py) has one. With N ranks (cluster.trainers) each rank has one, all of them are asked the same, each
computes its own part of the sequences (group.py), and all give the answer for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isentrope.config.schema import RunConfig
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.types import Floats, Metrics, StepTokens, Targets, TokenBatch
from isentrope.kernels.attention import on_device
from isentrope.learning import hooks
from isentrope.learning.critic import Critic
from isentrope.learning.group import ALONE, Group, own_part
from isentrope.learning.objective import critic_objective, objective
from isentrope.learning.old_logprobs import Mismatch
from isentrope.learning.optimiser import learning_rate, make_optimiser
from isentrope.learning.packing import bundles_of, micro_batches, row_width
from isentrope.learning.prefix_sharing import Bundle
from isentrope.learning.records import Figures, Numbered, accumulate, brought, numbered, put
from isentrope.learning.registry import make_advantage
from isentrope.learning.tokens import Ids, Mask, TokenSequence
from isentrope.models.policy import Policy, before

POLICY, REFERENCE, CRITIC = "policy", "reference", "critic"
PARTS = ("optimiser", "critic")
"""Of its state."""


@dataclass(frozen=True)
class Updated:
    """What an update on a mini-batch gives."""

    metrics: Metrics
    first: Numbered  # log-probs of a first pass over tokens
    factors: Numbered  # what methods weighed tokens with


class Replica:
    def __init__(self, policy: Policy, reference: Policy | None, config: RunConfig, group: Group = ALONE) -> None:
        self.policy, self.reference, self.config, self.group = policy, reference, config, group
        self.settings = config.learn
        self.total_updates = config.run.steps * config.learn.epochs * config.learn.mini_batches
        self.constant_length = config.learn.constant_length or config.task.max_turns * config.agent.max_response
        self.optimiser = make_optimiser(policy, config.learn, group)
        needs_critic = make_advantage(config.learn).needs_critic
        self.critic = Critic(policy, config.critic, config.learn, group) if needs_critic else None

    def scores(self, whose: str, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        """Log-probs that the policy or the reference gives to the response tokens, at the temperatures they were
        sampled with; or the critic's values."""
        values_N = np.zeros_like(tokens.logp_N)
        own, counts = self._own(sequences)
        with torch.no_grad():
            pieces = self.pieces(sequences, tokens, None, own) if counts else ()
            parts = [(batch.number_N, self._score(whose, batch)) for batch in pieces]
        put(values_N, self.group.all_of(numbered(parts)))
        return values_N

    def _score(self, whose: str, batch: TokenBatch) -> Tensor:
        if whose == CRITIC:
            critic = self.critic
            assert critic is not None
            return critic.values(batch, None if critic.body else before(self.policy.states(batch), batch))
        policy = self.policy if whose == POLICY else self.reference
        assert policy is not None
        return policy.stats(batch).logp_N

    def pieces(
        self,
        sequences: Sequence[TokenSequence],
        tokens: StepTokens,
        targets: Targets | None,
        own: Sequence[Bundle] | None = None,
    ) -> Iterator[TokenBatch]:
        """`own`: those of this rank; None: all of the sequences."""
        return micro_batches(
            sequences,
            tokens,
            targets,
            row_tokens=self._row_tokens,
            micro_tokens=self.settings.micro_tokens,
            constant_length=self.constant_length,
            device=self.policy.device,
            share=self._share,
            own=own,
        )

    @property
    def _row_tokens(self) -> int:
        """Attention by segments has no use for rows."""
        return self.settings.row_tokens or (self.settings.micro_tokens if self.policy.trains_fast else 0)

    @property
    def _share(self) -> bool:
        choice = self.settings.share_prefixes
        return choice == "on" or (choice == "auto" and self.policy.trains_fast)

    def _own(self, sequences: Sequence[TokenSequence]) -> tuple[list[Bundle] | None, bool]:
        """This rank's part, and whether it counts."""
        if self.group.size == 1:
            return None, True
        width = row_width(sequences, self._row_tokens, self.settings.micro_tokens, self._share)
        found = bundles_of(sequences, width, self._share, self.policy.device)
        return own_part(found, sequences, self.policy, self.group)

    def begin(self, tokens: StepTokens, loss: Loss, mismatch: Mismatch, methods: Sequence[Method]) -> None:
        """A step's updates: on these tokens, by this loss."""
        self._tokens, self._loss, self._mismatch, self._methods = tokens, loss, mismatch, methods

    def update(self, mini: Sequence[TokenSequence], targets: Targets, policy_too: bool, fresh_N: Mask) -> Updated:
        """One step of the optimisers. `fresh_N`: no pass has been made over these tokens yet."""
        figures, first, weighed = self._gradients(mini, targets, policy_too, fresh_N)
        parts = self.group.all_of((brought(figures), numbered(first), numbered(weighed)))
        sums: Metrics = {}
        extremes = hooks.extremes([*self._methods, self._loss], [one for part in parts for one in part[0]])
        for each in (one for part in parts for one in part[0]):
            accumulate(sums, each, extremes)
        sums = self._step(sums, policy_too)
        return Updated(sums, [pair for part in parts for pair in part[1]], [pair for part in parts for pair in part[2]])

    def _gradients(
        self, mini: Sequence[TokenSequence], targets: Targets, policy_too: bool, fresh_N: Mask
    ) -> tuple[list[Figures], list[tuple[Ids, Tensor]], list[tuple[Ids, Tensor]]]:
        """Of the own part of the mini-batch; and what there is to tell of it."""
        s, figures, tokens, methods = self.settings, list[Figures](), self._tokens, self._methods
        first: list[tuple[Ids, Tensor]] = []
        weighed: list[tuple[Ids, Tensor]] = []
        own, counts = self._own(mini)
        for batch in self.pieces(mini, tokens, targets, own):
            batch = batch if counts else _without_weight(batch)
            hidden_ND, both = None, list[Tensor]()  # losses that go back through the policy together
            if policy_too:
                stats = self.policy.stats(batch)
                if len(batch.number_N) and fresh_N[batch.number_N[0]]:
                    first.append((batch.number_N, stats.logp_N.detach()))  # of the first pass over these tokens alone
                    if np.isnan(targets.old_logp_N[batch.number_N[0]]):
                        sampler_N = on_device(tokens.logp_N[batch.number_N], self.policy.device)
                        batch = self._mismatch.own(batch, stats.logp_N, sampler_N)
                given_N = hooks.weights(methods, batch, stats)
                weighed += [] if given_N is None else [(batch.number_N, given_N)]
                loss, seen = objective(batch, stats, s, self._loss, methods, given_N)
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
        return (figures, first, weighed) if counts else ([], [], [])

    def _step(self, sums: Metrics, policy_too: bool) -> Metrics:
        """Of the optimisers, where every rank has gone through its part."""
        s = self.settings
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
        hooks.add_gradients(self._methods, self.group)
        hooks.updated(self._methods, self.optimiser.skipped == skipped_before)
        return sums | {"lr": rate}

    def pass_by(self, lost: bool) -> None:
        """Let the schedules go on over an update that was not made. `lost`: because no token was left to learn from."""
        if lost:
            self.optimiser.skip("had no token to learn from: a log-prob, entropy or advantage of each was not finite")
        else:
            self.optimiser.pass_by()
        if self.critic:
            self.critic.optimiser.pass_by()

    def state_dict(self) -> dict[str, Any]:
        return {part: self.state_of(part) for part in PARTS}

    def state_of(self, part: str) -> dict[str, Any]:
        """Of N ranks the first has it; all of them are asked."""
        if part == "optimiser":
            return self.optimiser.state_dict()
        return self.critic.state_dict() if self.critic else {}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Of N ranks the first has it; None at the others."""
        self.optimiser.load_state_dict(None if state is None else state["optimiser"])
        if self.critic:
            self.critic.load_state_dict(None if state is None else state["critic"])


def _without_weight(batch: TokenBatch) -> TokenBatch:
    return replace(batch, weights={mode: torch.zeros_like(weight_N) for mode, weight_N in batch.weights.items()})
