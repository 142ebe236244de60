"""Chooses the old log-probs: the sampler's, or the trainer's own; and measures how far the two are apart.

The trainer's own take one more forward pass before the update. The first mini-batch does without: its own forward pass
computes them while the weights are still those of before (`own`), so only the other tokens are scored in advance. Until
then their old log-probs are NaN. Nobody asks for them earlier but those whom `asked` names.

`auto` pays for the pass only where it is needed. It begins with it and measures how far the two are apart
(mismatch/kl). Once that is within learn.mismatch_limit, the sampler's log-probs are taken and the pass is left out;
the first update of every step still measures, because it computes its log-probs before anything has changed. Where
they drift apart again, the next step makes the pass again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from isentrope.config.schema import LearnSettings
from isentrope.core.types import Floats, StepTokens, TokenBatch
from isentrope.learning.losses.mismatch import mismatch_metrics, mismatch_ratio
from isentrope.learning.records import Metrics


class Mismatch:
    def __init__(self, settings: LearnSettings, by_response: bool = False) -> None:
        """`by_response`: the loss has one ratio for a whole response."""
        self.settings, self.by_response = settings, by_response
        self.trusted = settings.old_logprobs == "sampler"
        self.failed = False  # whether an update that took its own log-probs found some that are not finite

    def asked(self, reference: bool, policy_too: bool) -> tuple[str, ...]:
        """Who needs the old log-probs of all tokens before the first update; nobody: it can take its own."""
        needs = {
            "the sampler's are taken": self.trusted,
            "a KL penalty in the rewards": reference and self.settings.kl_in == "reward",
            "an update of the critic alone": not policy_too,
            "tokens to leave out, whose log-probs are not finite": self.failed,
        }
        return tuple(who for who, needed in needs.items() if needed)

    def weights(self, trainer_N: Tensor, sampler_N: Tensor, turn_N: Tensor) -> tuple[Tensor, Tensor | None]:
        """The ratio of the two, and the weights that correct for the sampler; None: it is not corrected for."""
        ratio_N = mismatch_ratio(trainer_N, sampler_N, turn_N if self.by_response else None)
        return ratio_N, ratio_N.clamp(max=self.settings.mismatch_cap) if self.settings.mismatch == "truncate" else None

    def own(self, batch: TokenBatch, logp_N: Tensor, sampler_N: Tensor) -> TokenBatch:
        """The batch with the log-probs of its own forward pass as the old ones."""
        old_N = logp_N.detach()
        return replace(batch, old_logp_N=old_N, mismatch_N=self.weights(old_N, sampler_N, batch.turn_N)[1])

    def weigh(self, trainer_N: Floats, tokens: StepTokens) -> tuple[Floats | None, Metrics]:
        """With the trainer's log-probs at hand: weights that correct for the sampler's, and what they differ by."""
        trainer, sampler = torch.from_numpy(trainer_N), torch.from_numpy(tokens.logp_N)
        ratio_N, weight_N = self.weights(trainer, sampler, torch.from_numpy(tokens.turn_N))
        metrics = self._judged(mismatch_metrics(trainer, sampler, ratio_N, self.settings.mismatch_cap), 1.0)
        return None if weight_N is None else weight_N.numpy(), metrics

    def look_back(self, first_logp_N: Floats, tokens: StepTokens) -> Metrics:
        """After the first update: it computed its log-probs while nothing had changed yet, so what the sampler's
        differ from them by is the mismatch. Those of tokens it did not learn from are NaN."""
        known_N = np.flatnonzero(~np.isnan(first_logp_N))
        trainer, sampler = torch.from_numpy(first_logp_N[known_N]), torch.from_numpy(tokens.logp_N[known_N])
        turn_N = torch.from_numpy(np.unique(tokens.turn_N[known_N], return_inverse=True)[1])
        ratio_N = self.weights(trainer, sampler, turn_N)[0]
        return self._judged(mismatch_metrics(trainer, sampler, ratio_N, self.settings.mismatch_cap), 0.0)

    def _judged(self, metrics: Metrics, recomputed: float) -> Metrics:
        if self.settings.old_logprobs != "auto":
            return metrics
        if "mismatch/kl" in metrics:
            self.trusted = metrics["mismatch/kl"] <= self.settings.mismatch_limit  # a NaN is not
        return metrics | {"mismatch/recomputed": recomputed}

    def state_dict(self) -> dict[str, bool]:
        return {"trusted": self.trusted, "failed": self.failed}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        if state and self.settings.old_logprobs == "auto":
            self.trusted = bool(state["trusted"])
        self.failed = bool(state.get("failed", False))
