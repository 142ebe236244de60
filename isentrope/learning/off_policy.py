"""Chooses the old log-probs: the sampler's, or the trainer's own from one more pass.

`auto` pays for the pass only where it is needed. It begins with it and measures how far the two are apart
(mismatch/kl). Once that is within learn.mismatch_limit, the sampler's log-probs are taken and the pass is left out; the
first update of every step still measures, because it computes its log-probs before anything has changed. Where they
drift apart again, the next step makes the pass again.
"""

from __future__ import annotations

import numpy as np
import torch

from isentrope.config.schema import LearnSettings
from isentrope.core.types import Floats, StepTokens
from isentrope.learning.losses.mismatch import mismatch_metrics, mismatch_ratio
from isentrope.learning.records import Metrics


class Mismatch:
    def __init__(self, settings: LearnSettings) -> None:
        self.settings = settings
        self.trusted = settings.old_logprobs == "sampler"

    def weigh(self, trainer_N: Floats, tokens: StepTokens) -> tuple[Floats | None, Metrics]:
        """With the trainer's log-probs at hand: weights that correct for the sampler's, and what they differ by."""
        s = self.settings
        trainer, sampler = torch.from_numpy(trainer_N), torch.from_numpy(tokens.logp_N)
        turn_N = torch.from_numpy(tokens.turn_N) if s.loss == "sequence" else None
        ratio_N = mismatch_ratio(trainer, sampler, turn_N)
        weight_N = ratio_N.clamp(max=s.mismatch_cap).numpy() if s.mismatch == "truncate" else None
        return weight_N, self._judged(mismatch_metrics(trainer, sampler, ratio_N, s.mismatch_cap), 1.0)

    def look_back(self, first_logp_N: Floats, tokens: StepTokens) -> Metrics:
        """After the first update: it computed its log-probs while nothing had changed yet, so what the sampler's
        differ from them by is the mismatch. Those of tokens it did not learn from are NaN."""
        known_N = np.flatnonzero(~np.isnan(first_logp_N))
        trainer, sampler = torch.from_numpy(first_logp_N[known_N]), torch.from_numpy(tokens.logp_N[known_N])
        turn_N = np.unique(tokens.turn_N[known_N], return_inverse=True)[1]
        by_turn = torch.from_numpy(turn_N) if self.settings.loss == "sequence" else None
        ratio_N = mismatch_ratio(trainer, sampler, by_turn)
        return self._judged(mismatch_metrics(trainer, sampler, ratio_N, self.settings.mismatch_cap), 0.0)

    def _judged(self, metrics: Metrics, recomputed: float) -> Metrics:
        if self.settings.old_logprobs != "auto":
            return metrics
        if "mismatch/kl" in metrics:
            self.trusted = metrics["mismatch/kl"] <= self.settings.mismatch_limit  # a NaN is not
        return metrics | {"mismatch/recomputed": recomputed}

    def state_dict(self) -> dict[str, bool]:
        return {"trusted": self.trusted}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        if state and self.settings.old_logprobs == "auto":
            self.trusted = bool(state["trusted"])
