"""ActRe: act first and think afterwards, then the other way round.

Paper: When Instinct Guides and Insight Grounds: Staged RL Training for LLM Agents.

    Stage 1   π(a, t | o) = π(a | o) · π(t | o, a)      the response is <action>…</action><think>…</think>
              a^(i) ~ π(· | o, a^(<i); T_i)             T_i > 1 for the key branching tokens of the action
    Stage 2   π(t, a | o) = π(t | o) · π(a | o, t)      <think>…</think><action>…</action> at the base temperature

Evaluation always has the form of stage 2. Ratios, KL and entropies use the temperature each token was sampled with.

Not stated in the paper, so ours: the switch is at half of the steps; T_i is 1.2; a token is a branching one
  - by the rule `trie`: if two or more different tokens in its place still lead to an admissible action
    (agent/action_trie.py),
  - by the rule `entropy`: if its entropy at the base temperature is above a quantile of the action tokens of the last
    step (no token is, at the first step),
  - by `auto`: `trie` where the task lists admissible actions, else `entropy`.
Variants are the ablations of Table 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from isentrope.agent.action_trie import ActionTries, TrieWalk
from isentrope.config.schema import setting
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.stats import quantile
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Metrics, RolloutPlan, StepTokens, TokenTemperature
from isentrope.learning.tokens import ACTION


@dataclass(frozen=True)
class ActReOptions:
    switch: float = setting(0.5, "end of stage 1: a share of the steps, or above 1 a step number", low=0)
    temperature: float = setting(1.2, "T of the branching tokens in stage 1", low=0.01)
    branching: str = setting("auto", "which tokens are branching ones", choices=("auto", "trie", "entropy"))
    quantile: float = setting(0.8, "entropy rule: share of the action tokens that are not branching", low=0, high=1)
    variant: str = setting(
        "full",
        "the method or one of its ablations",
        choices=("full", "no_stage1", "no_stage2", "no_high_temperature"),
    )


class _TrieRule:
    needs_entropy = False

    def __init__(self, walk: TrieWalk, base: float, hot: float) -> None:
        self.walk, self.base, self.hot = walk, base, hot

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return self.hot if self.walk.branching(response) else self.base


@dataclass
class _Heat:
    """What belongs to the episodes of one step: they may be played while an earlier step is still learnt from."""

    threshold: float | None
    base: float  # the temperature of all tokens that are not hot
    entropies: list[float] = field(default_factory=list[float])  # of the action tokens, at the base temperature

    def __reduce__(self) -> tuple[Any, ...]:
        """On its way to a sampler's process it leaves behind what others were told: their rules here know it."""
        return type(self), (self.threshold, self.base)


class _EntropyRule:
    needs_entropy = True

    def __init__(self, heat: _Heat, hot: float, tokenizer: ChatTokenizer, base: float, tags: tuple[str, ...]) -> None:
        self.heat, self.hot, self.tokenizer, self.base = heat, hot, tokenizer, base
        self.opens = tuple(f"<{tag}>".encode() for tag in tags)
        self.closes = tuple(f"</{tag}>".encode() for tag in tags)
        self.text, self.read = b"", 0
        self.inside: list[tuple[int, float]] = []  # (where it begins, entropy) of the tokens behind the opening tag

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        self.text += b"".join(self.tokenizer.pieces(response[self.read :]))
        self.read = len(response)
        close = max(self.text.find(tag) for tag in self.closes)
        if close >= 0:  # now it is known which tokens were the action's and which the closing tag's
            self.heat.entropies += [value for start, value in self.inside if start < close]
            self.inside = []
        if close >= 0 or not any(tag in self.text for tag in self.opens):
            return self.base
        self.inside.append((len(self.text), entropy))
        threshold = self.heat.threshold
        return self.hot if threshold is not None and entropy > threshold else self.base


class ActRe(Method):
    name = "actre"
    summary = "acts before thinking, with hot branching tokens, then thinks before acting"
    paper = "ActRe, AAAI 2026"
    options_class = ActReOptions
    options: ActReOptions
    off: ClassVar[Mapping[str, Any]] = {"variant": "no_stage1"}
    metrics = (
        Metric("plan/stage", "Stage of ActRe: 1 acts before thinking, 2 thinks before acting.", "stage"),
        Metric("plan/action_temperature", "Temperature of the branching tokens in ActRe's first stage.", "temperature"),
        Metric("actre/branching", "Share of the action tokens that ActRe sampled at the higher temperature.", "share"),
        Metric("actre/threshold", "Entropy from which a token is a branching one at ActRe's next step.", "nats"),
    )
    orders = ("act_think", "think_act")

    def __init__(self, options: ActReOptions | None = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options, steps, seed)
        switch = self.options.switch
        self.last_of_stage1 = int(switch * steps + 0.5) if switch <= 1 else int(switch)
        self.threshold: float | None = None  # of the entropy rule
        self.entropies: list[float] = []  # of the action tokens of the step that was planned last
        self._heats: dict[int, _Heat] = {}  # step -> of the episodes that are not yet learnt from
        self._tries: ActionTries | None = None

    def impossible(self) -> list[str]:
        switch = self.options.switch
        if switch <= 1 or self.last_of_stage1 < self.steps or self.options.variant in ("no_stage1", "no_stage2"):
            return []
        return [
            f"method.actre.switch = {switch:g} with run.steps = {self.steps}: stage 2 would never begin; use a step "
            'before the last, a share of the steps (0.5), or method.actre.variant = "no_stage2"'
        ]

    def stage(self, step: int) -> int:
        fixed = {"no_stage1": 2, "no_stage2": 1}.get(self.options.variant)
        return fixed or (1 if step <= self.last_of_stage1 else 2)

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        stage, self._tries = self.stage(step), None
        heat = self._heats[step] = _Heat(self.threshold, plan.temperature)
        self.entropies = heat.entropies
        notes = {**plan.notes, "stage": float(stage)}
        if stage == 2:
            return replace(plan, order="think_act", notes=notes)
        if self.options.variant == "no_high_temperature":
            return replace(plan, order="act_think", notes=notes)
        notes["action_temperature"] = self.options.temperature
        return replace(plan, order="act_think", temperature_rule=partial(self._rule, heat), notes=notes)

    def evaluation(self, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, order="think_act")

    def _rule(
        self,
        heat: _Heat,
        tokenizer: ChatTokenizer,
        admissible: tuple[str, ...] | None,
        base: float,
        tags: tuple[str, ...],
    ) -> TokenTemperature | None:
        heat.base = base  # a method listed after this one may have changed it
        by_trie = self.options.branching == "trie" or (self.options.branching == "auto" and admissible is not None)
        if not by_trie:
            return _EntropyRule(heat, self.options.temperature, tokenizer, base, tags)
        if admissible is None:
            raise ConfigError(
                'method.actre.branching = "trie": this world lists no admissible actions; use "entropy" or "auto"'
            )
        if not admissible:
            return None
        if self._tries is None:
            self._tries = ActionTries(tokenizer, tags)
        return _TrieRule(TrieWalk(self._tries.trie(admissible), tokenizer), base, self.options.temperature)

    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        """The entropy rule takes its threshold for the next step from this one."""
        inside = tokens.part_N == ACTION
        heat = self._heats.pop(step, None) or _Heat(self.threshold, 1.0, self.entropies)
        metrics: Metrics = {}
        if self.stage(step) == 1 and inside.any():
            hot_N = ~np.isclose(tokens.temperature_N, heat.base) & (self.options.variant != "no_high_temperature")
            metrics["actre/branching"] = float(np.mean(hot_N[inside]))
        if heat.entropies:
            self.threshold = quantile(heat.entropies, self.options.quantile)
            heat.entropies.clear()
            metrics["actre/threshold"] = self.threshold
        return metrics

    def state_dict(self) -> dict[str, Any]:
        ahead = {step: asdict(heat) for step, heat in self._heats.items()}  # played, and not yet learnt from
        return {"threshold": self.threshold} | ({"ahead": ahead} if ahead else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.threshold = state["threshold"]
        self._heats = {step: _Heat(**heat) for step, heat in state.get("ahead", {}).items()}
