"""EA: tokens that the policy was unsure of get more advantage.

Paper: Reasoning with Exploration: an Entropy Perspective (Cheng et al., arXiv:2506.14758), compared with in EPO B.4.

    A ← A + min(α · H, |A| / κ)

Symbols: H is the token's entropy, without gradient; α 0.4, κ 2. With κ > 1 the sign of the advantage never changes.
Deviation: H is the entropy of the policy that sampled, so that advantages stay fixed over a step's updates; the paper
takes it from the current policy, which is the same policy at the first update of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Floats, Shaped, StepTokens


@dataclass(frozen=True)
class EaOptions:
    alpha: float = setting(0.4, "α, advantage per nat of entropy", low=0)
    kappa: float = setting(2.0, "κ: at most this fraction, |A|/κ, is added", above=0)


class Ea(Method):
    name = "ea"
    summary = "adds a bounded share of each token's entropy to its advantage"
    paper = "Cheng et al., arXiv:2506.14758; EPO B.4"
    options_class = EaOptions
    options: EaOptions
    off: ClassVar[Mapping[str, Any]] = {"alpha": 0}
    metrics = (Metric("ea/added", "Advantage that EA adds to a token, mean over the step's tokens.", "advantage"),)

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats | Shaped:
        if self.options.alpha == 0 or not len(advantage_N):
            return advantage_N
        added_N = np.minimum(self.options.alpha * tokens.entropy_N, np.abs(advantage_N) / self.options.kappa)
        return Shaped((advantage_N + added_N).astype(np.float32), {"ea/added": float(added_N.mean())})
