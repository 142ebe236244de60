"""Made-up episodes, a tiny random model, and updates on them with the part that is checked or without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.config.convert import parse_section
from isentrope.config.schema import Choice, CriticSettings, LearnSettings, RunConfig, RunSettings
from isentrope.core.advantage import Advantage
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import Part, calling, check_declared
from isentrope.core.tokenizer import ACTION
from isentrope.core.types import Episode, Metrics, RolloutPlan, Turn
from isentrope.learning.learner import Learner
from isentrope.learning.old_logprobs import Mismatch
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens

STEPS = 4
LENGTHS = (((3, 2, 4), (1, 5), (2, 3)), ((4,), (2, 0, 3), (1, 1, 1)), ((5, 2), (3,), (2, 2)))
"""Group -> episode -> tokens of each turn. The last group fails as a whole."""
ACTIONS = ("look", "go to desk 1", "go to desk 2")
RESPONSE = "<action>go to desk 1</action><think>I look.</think>"


def tiny_policy() -> Policy:
    """It is sure of some tokens and not of others: entropies from 0 to more than 4 nats."""
    tokens = PocketTokens([" desk", " go", " to", " 1", " 2", "look", "go to"])
    model = Llama(Shape(vocabulary=tokens.size, width=32, layers=2, heads=4, kv_heads=2, inner=48))
    model.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6 if parameter.dim() == 2 else 1)
        model.head_weight().mul_(3)
    return Policy(model.eval(), tokens, torch.device("cpu"), torch.float32)


def made_up(policy: Policy, seed: int) -> list[Episode]:
    """Three groups of three, in the policy's own numbers, the log-probs a little off: some ratios are clipped."""
    rng = np.random.default_rng(seed)
    episodes: list[Episode] = []
    for g, group in enumerate(LENGTHS):
        prompt = rng.integers(0, policy.tokenizer.size, 6).astype(np.int32)
        for m, lengths in enumerate(group):
            won = g < 2 and m < 2 - g
            turns = [_turn(rng, policy, n, prompt, t, m != 1) for t, n in enumerate(lengths)]
            turns[-1] = replace(turns[-1], reward=turns[-1].reward + 10.0 * won)
            stop, kind, group = "terminated" if won else "turn_limit", ("pick", "look")[g % 2], 2 * g + 1
            episodes.append(
                Episode("made up", "train", g, kind, "", group, m, "think_act", tuple(turns), success=won, stop=stop)
            )
    return _sampled(policy, episodes, rng)


def _turn(rng: np.random.Generator, policy: Policy, count: int, prompt: Any, place: int, full: bool) -> Turn:
    """`full`: one growing conversation; else every turn has a prompt of its own."""
    words, think, valid = policy.tokenizer.size, int(rng.integers(0, count + 1)), bool(rng.random() < 0.8)
    said = rng.integers(0, words, int(rng.integers(1, 5))).astype(np.int32)
    continues = full and place > 0
    return Turn(
        observation=f"You see desk {place}.", admissible=ACTIONS, anchor=f"desk {place}",
        context_ids=said if continues else np.concatenate([prompt, said]) if place else prompt, continues=continues,
        response_ids=rng.integers(0, words, count).astype(np.int32), logprobs=np.zeros(count, dtype=np.float32),
        entropies=np.zeros(count, dtype=np.float32), temperatures=rng.choice([0.7, 1.0, 1.2], count).astype(np.float32),
        think_span=(0, think), action_span=(think, count), action="look" if valid else None,
        verdict="ok" if valid else "inadmissible", stop="tag", reward=0.0 if valid else -0.1,
    )  # fmt: skip


@torch.no_grad()
def _sampled(policy: Policy, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]:
    sequences, tokens = flatten(episodes)
    logp_N, entropy_N = np.zeros_like(tokens.logp_N), np.zeros_like(tokens.entropy_N)
    for batch in micro_batches(sequences, tokens):
        stats = policy.stats(batch)
        logp_N[batch.number_N], entropy_N[batch.number_N] = stats.logp_N.numpy(), stats.entropy_N.numpy()
    logp_N += rng.normal(0, 0.2, len(logp_N)).astype(np.float32)
    at, changed = 0, list[Episode]()
    for episode in episodes:
        turns: list[Turn] = []
        for turn in episode.turns:
            part = slice(at, at + len(turn.response_ids))
            turns.append(replace(turn, logprobs=logp_N[part].copy(), entropies=entropy_N[part].copy()))
            at = part.stop
        changed.append(replace(episode, turns=tuple(turns)))
    return changed


def shuffled(episodes: Sequence[Episode]) -> list[Episode]:
    """The same episodes in another order, their groups under other numbers."""
    order: list[int] = np.random.default_rng(1).permutation(len(episodes)).tolist()
    return [replace(episodes[i], group=10 - episodes[i].group) for i in order]


def flat(tensors: Sequence[Tensor | None]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors if tensor is not None])


class Lab:
    """A part's class with the options to check it with."""

    def __init__(self, kind: type[Part], table: Mapping[str, Any]) -> None:
        self.kind, self.table = kind, dict(table)
        self.recorded: set[str] = set()  # keys of all metrics that the part has recorded so far
        policy = tiny_policy()
        self.episodes = {step: made_up(policy, step) for step in range(1, STEPS + 1)}

    def make(self, changes: Mapping[str, Any] | None = None) -> Part:
        """A new object. Metrics that it has not declared are no error here: they have a check of their own."""
        options = parse_section(self.kind.options_class, {**self.table, **(changes or {})}, self.kind.name)
        part = self.kind(options, STEPS, 0) if issubclass(self.kind, Method) else self.kind(options)
        part.declares = self._declares
        return part

    def _declares(self, key: str) -> bool:
        self.recorded.add(key)
        return True

    def learner(self, part: Part | None, policy: Policy | None = None, **learn: Any) -> Learner:
        """With the part, or with none."""
        advantage = "gae" if isinstance(part, Advantage) and part.needs_critic else "grpo"
        settings = LearnSettings(lr=1e-3, kl=0.0, advantage=Choice(advantage), **learn)
        config = RunConfig(run=RunSettings(steps=STEPS), learn=settings, critic=CriticSettings(kind="head"))
        learner = Learner(policy or tiny_policy(), None, config, [part] if isinstance(part, Method) else [])
        if isinstance(part, Loss):
            learner.loss, learner.mismatch = part, Mismatch(settings, part.by_response)
        if isinstance(part, Advantage):
            learner.advantage = part
        return learner

    def run(self, learner: Learner, steps: Sequence[int], moved: bool = False) -> list[Metrics]:
        """What the steps record. `moved`: the episodes come in another order."""
        seen: list[Metrics] = []
        for step in steps:
            notes = [planned(method, step, learner.policy).notes for method in learner.methods]
            episodes = shuffled(self.episodes[step]) if moved else self.episodes[step]
            metrics = learner.learn(step, episodes).metrics
            seen.append(metrics | {f"plan/{name}": value for each in notes for name, value in each.items()})
        return seen

    def gradients(self, part: Part, moved: bool = False, **learn: Any) -> list[tuple[Tensor, Metrics]]:
        """The gradients of two steps, and what they record. The policy stays as it is."""
        learner, taken = self.learner(part, **learn), list[Tensor]()

        def keep(loss: float, rate: float) -> float:
            parameters = learner.optimiser.parameters
            taken.append(flat([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]))
            learner.optimiser.pass_by()
            return 0.0

        learner.optimiser.step = keep
        metrics = self.run(learner, (1, 2), moved)
        return list(zip(taken, metrics, strict=True))


def planned(method: Method, step: int, policy: Policy) -> RolloutPlan:
    """The plan of a step, its temperatures asked for as a rollout does."""
    with calling(method, "plan"):
        plan = method.plan(step, RolloutPlan())
        if not isinstance(cast(object, plan), RolloutPlan) or not 0 < plan.temperature < float("inf"):
            raise ValueError(f"gave {plan!r:.60}: expected a RolloutPlan with a finite temperature above 0")
        check_declared(method, {f"plan/{name}": 0 for name in plan.notes})
        for admissible in (None, ACTIONS) if plan.temperature_rule else ():
            assert plan.temperature_rule is not None
            rule = plan.temperature_rule(policy.tokenizer, admissible, plan.temperature, ACTION)
            ids = policy.tokenizer.answer(RESPONSE)
            for place in range(len(ids) + 1 if rule else 0):
                given = rule(ids[:place], 1.0 + place) if rule else 0.0
                if not 0 <= given < float("inf"):
                    raise ValueError(f"its rule gave the temperature {given}: expected a finite number of at least 0")
    return plan
