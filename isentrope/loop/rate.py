"""Says when a learning rate does not fit the model: one that moves nothing, and one that ruins the policy.

Each is said once, with the number, the setting and a value to try. The limits come from 626 kept runs (docs/runs). None
had moved less than 1.5e-3 nats a token by steps 8 to 12. In three, success or validity fell so steeply within twelve
steps while the policy was far from where it began: two at a rate that is known to be too high, and one that never
recovered. Later falls have other causes, which the alarms are for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.loop.warned import Warned
from isentrope.models.auto import rates
from isentrope.models.load import LARGE
from isentrope.models.policy import Policy

HIGH_RATE = 2e-4
"""A learning rate above which large models usually fall apart when all of their weights learn."""

HIGH_TIMES = 10.0
"""A large model's rate so many times above the one that fits belongs to a much smaller model."""

RUINOUS_TIMES = 100.0
"""A rate so many times above it ruins a model of any size."""

LOW_RATE = 20.0
"""A rate so many times below the one that fits the size moves nothing in the steps that a recipe has."""

UNMOVED = 3e-4  # nats a token to the reference; with bfloat16, rounding alone makes some 5e-5
STEPS = 10  # of the policy's learning before it can be said to stand still, half of them after the rate's warm-up
EQUAL = 0.8  # share of groups that teach nothing: then it is not the rate
USUAL_KL = 0.1  # a larger weight of the KL term holds the policy where it is

EARLY = 12  # steps in which a fall is the rate's
READ = ("kl/k3", "kl/old", "success/all", "valid_ratio", "advantage/zero_groups", "update/count")  # metrics
WINDOW = 3  # steps of a median
FAR, JUMP = 0.15, 0.02  # nats a token: to the reference; within a step, twice in six steps
FALLEN, DROP, LOST_VALID = 0.6, 0.1, 0.25  # success: share of the best, and less by; valid actions: less by


class RateWatch:
    """Looks at every step of a training run.

    warned = watch.look(step, metrics)      # or None
    """

    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self._config = config
        self._weights = _learning(policy)
        self._fits = rates(policy.size, bool(config.policy.lora_rank))[0]
        self._seen: list[Mapping[str, float]] = []
        self._told = False

    @property
    def times(self) -> float:
        """The rate over the one that fits."""
        return self._config.learn.lr / self._fits

    def look(self, step: int, metrics: Mapping[str, float]) -> Warned | None:
        known = {key: value for key in READ if (value := metrics.get(key)) is not None and isfinite(value)}
        self._seen = [*self._seen, known][-max(EARLY, STEPS) :]
        if self._told:
            return None
        told = self._ruins(step) or self._moves_nothing(step)
        self._told = told is not None
        return told

    def state_dict(self) -> dict[str, Any]:
        return {"seen": [dict(one) for one in self._seen], "told": self._told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._seen, self._told = list(state["seen"]), bool(state["told"])

    def _moves_nothing(self, step: int) -> Warned | None:
        learn = self._config.learn
        last = self._seen[-STEPS:]
        distance = _median(_values(last, "kl/k3")[-WINDOW:])
        if len(last) < STEPS or step < STEPS + self._config.critic.warmup or learn.kl > USUAL_KL:
            return None
        past_warmup = step - learn.warmup * self._config.run.steps >= STEPS / 2
        if distance is None or distance >= UNMOVED or not past_warmup:
            return None
        if any(one.get("advantage/zero_groups", 0.0) > EQUAL or not one.get("update/count") for one in last):
            return None
        tried = self._fits if self._fits >= 2 * learn.lr else 10 * learn.lr
        text = (
            f"the policy hardly moves: after {step} steps it is {distance:.1g} nats a token from where it began "
            f"(kl/k3). learn.lr = {learn.lr:g} is low for {self._weights}"
        )
        return Warned(
            "rate_low", text, f"a new run with --set learn.lr={tried:g}", {"kl": distance, "fits": self._fits}
        )

    def _ruins(self, step: int) -> Warned | None:
        if not 2 * WINDOW - 2 <= step <= EARLY or len(self._seen) < step:  # from the beginning, all of it
            return None
        learn, far = self._config.learn, self._far()
        success = _fall(_values(self._seen, "success/all"))
        valid = _fall(_values(self._seen, "valid_ratio"))
        lost = success is not None and success[1] <= FALLEN * success[0] and success[0] - success[1] >= DROP
        refused = valid is not None and valid[0] - valid[1] >= LOST_VALID
        fall, what = (success, "success") if lost else (valid, "valid actions")
        if not far or not (lost or refused) or fall is None:
            return None
        tried = self._fits if 2 * self._fits <= learn.lr else learn.lr / 5
        text = (
            f"the policy is being ruined: {what} fell from {100 * fall[0]:.0f} to {100 * fall[1]:.0f} %, and {far}. "
            f"learn.lr = {learn.lr:g} is high for {self._weights}"
        )
        return Warned("rate_high", text, f"a new run with --set learn.lr={tried:g}", {"fits": self._fits})

    def _far(self) -> str:
        """How far the policy has gone, in words; empty if that is not unusual."""
        away = _median(_values(self._seen[-WINDOW:], "kl/k3"))
        jumps = sorted(_values(self._seen[-2 * WINDOW :], "kl/old"))[-2:]
        if away is not None and away >= FAR:
            return f"it is {away:.2g} nats a token from where it began (kl/k3)"
        if len(jumps) == 2 and jumps[0] >= JUMP:
            return f"single steps move it by {jumps[0]:.2g} nats a token and more (kl/old)"
        return ""


def unfit_rate(config: RunConfig, policy: Policy, kind: str = "sft") -> Warned | None:
    """Before the run begins: a rate so low that nothing will move, or so high that it ruins the model."""
    of_train, of_sft = rates(policy.size, bool(config.policy.lora_rank))
    name, rate, fits = ("learn.lr", config.learn.lr, of_train) if kind == "train" else ("sft.lr", config.sft.lr, of_sft)
    high = _count(policy) >= LARGE and (rate > HIGH_TIMES * fits or (kind != "train" and rate > HIGH_RATE))
    high = high or rate >= RUINOUS_TIMES * fits
    if not high and LOW_RATE * rate > fits:
        return None
    times = f", {rate / fits:,.0f} times the {fits:g} that fits that size" if high else f"; {fits:g} fits that size"
    text = f"{name} = {rate:g} is {'high' if high else 'low'} for {_learning(policy)}{times}"
    return Warned(f"rate_{'high' if high else 'low'}", text, f"--set {name}={fits:g}, or auto", {"fits": fits})


def _count(policy: Policy) -> int:
    return sum(p.numel() for p in policy.module.parameters() if p.requires_grad)


def _learning(policy: Policy) -> str:
    return f"{_count(policy) / 1e6:.3g} million weights that learn"


def _fall(values: Sequence[float]) -> tuple[float, float] | None:
    """The best median of a few steps before the last few, and the median of those."""
    if len(values) < 2 * WINDOW - 2:
        return None
    earlier = values[:-1]
    medians = [median(earlier[max(0, end - WINDOW) : end]) for end in range(1, len(earlier) + 1)]
    return max(medians), median(values[-WINDOW:])


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _values(steps: Sequence[Mapping[str, float]], key: str) -> list[float]:
    found = [one.get(key) for one in steps]
    return [value for value in found if value is not None and isfinite(value)]
