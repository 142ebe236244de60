"""Methods, losses and advantage estimators with one fault each, for the tests of `isentrope check-method`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isentrope.config.schema import setting
from isentrope.core.advantage import Advantage, Estimate, Outcomes
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Floats, Metrics, RolloutPlan, StepTokens, Term, TokenBatch, TokenStats


@dataclass(frozen=True)
class Options:
    coefficient: float = setting(0.01, "weight of the bonus", low=0)


class Good(Method):
    """A bonus that grows with the steps it has seen, and weights; nothing is wrong with it."""

    name = "good"
    summary = "a bonus that grows"
    options_class = Options
    options: Options
    metrics = (Metric("good/seen", "Steps so far."), Metric("good/entropy", "Mean entropy of the tokens.", "nats"))

    def __init__(self, options: Options | None = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options, steps, seed)
        self.seen = 0

    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        self.seen += 1
        return {"good/seen": self.seen}

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return (advantage_N * (1 + self.options.coefficient)).astype(np.float32)

    def weigh(self, batch: TokenBatch, stats: TokenStats) -> Tensor | None:
        return 1 + self.options.coefficient * stats.entropy_N if self.options.coefficient else None

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if self.options.coefficient == 0:
            return None
        mean = (batch.weights["token"] * stats.entropy_N).sum()
        loss = -self.options.coefficient * self.seen * mean
        return Term(loss, {"good/entropy": float(mean.detach()), f"loss/{self.name}": float(loss.detach())})

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class TakenName(Good):
    name = "epo"


class NoSummary(Good):
    summary = ""


@dataclass(frozen=True)
class Needy:
    coefficient: float


class NoDefaults(Good):
    options_class = Needy


class NoDataclass(Good):
    options_class = dict


class NeverOff(Good):
    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return advantage_N * np.float32(1.0001 + self.options.coefficient)


class PlansWhenOff(Good):
    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return RolloutPlan(temperature=1.1)


class Raises(Good):
    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        raise KeyError("nothing here")


class TooShort(Good):
    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return advantage_N[:-1]


class NotFinite(Good):
    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        return Term((0 * stats.entropy_N).log().sum()) if self.options.coefficient else None


class HasNan(Good):
    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return np.where(advantage_N > 0, np.float32(np.nan), advantage_N) if self.options.coefficient else advantage_N


class Detached(Good):
    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        term = super().loss(batch, stats)
        return None if term is None else Term(term.loss.detach(), term.metrics)


class InfiniteGradient(Good):
    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if self.options.coefficient == 0:
            return None
        return Term(self.options.coefficient * (batch.weights["token"] * (stats.logp_N * 0).sqrt()).sum())


class WeighsWithGradient(Good):
    def weigh(self, batch: TokenBatch, stats: TokenStats) -> Tensor | None:
        return torch.ones_like(stats.logp_N).requires_grad_() if self.options.coefficient else None


class ChangesAdvantages(Good):
    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        advantage_N *= np.float32(1 + self.options.coefficient)
        return advantage_N


class ChangesBatch(Good):
    def weigh(self, batch: TokenBatch, stats: TokenStats) -> Tensor | None:
        batch.success_N.add_(self.options.coefficient)
        return super().weigh(batch, stats)


class ForgetsState(Good):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class OddState(Good):
    def state_dict(self) -> dict[str, Any]:
        return {"seen": np.int64(self.seen)}


class CannotBeSaved(Good):
    def state_dict(self) -> dict[str, Any]:
        raise OSError("no state")


class MeansOverPiece(Good):
    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        return Term(-self.options.coefficient * stats.entropy_N.mean()) if self.options.coefficient else None


class LooksAtPlaces(Good):
    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return np.where(tokens.episode_N == 0, 1 + self.options.coefficient, 1).astype(np.float32) * advantage_N


class Undeclared(Good):
    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        return super().begin(step, tokens) | {"good/other": 1.0}


class NoMeaning(Good):
    metrics = (*Good.metrics, Metric("good/never", " "))


class GoodLoss(Loss):
    name = "good_loss"
    summary = "twice the policy gradient"

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        return -2 * batch.advantage_N * stats.logp_N


class WrongSign(GoodLoss):
    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        return batch.advantage_N * stats.logp_N


class OneNumber(GoodLoss):
    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        return super().per_token(batch, stats).sum()


class GoodAdvantage(Advantage):
    name = "good_advantage"
    summary = "returns as they are"

    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(outcomes.per_token(outcomes.return_E[outcomes.episode_U]))


class FirstCounts(GoodAdvantage):
    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(outcomes.per_token((outcomes.return_E - outcomes.return_E[0])[outcomes.episode_U]))


class Remembers(GoodAdvantage):
    """An estimator has no state, so what it keeps is lost at a restart."""

    seen = 0

    def estimate(self, outcomes: Outcomes) -> Estimate:
        self.seen += 1
        return Estimate(outcomes.per_token(self.seen * outcomes.return_E[outcomes.episode_U]))


class ChangesTokens(GoodAdvantage):
    def estimate(self, outcomes: Outcomes) -> Estimate:
        outcomes.tokens.entropy_N[:] = 0
        return super().estimate(outcomes)


class TwoColumns(GoodAdvantage):
    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(np.zeros((len(outcomes.turn_N), 2)))


class NotAPart:
    name = "not_a_part"
