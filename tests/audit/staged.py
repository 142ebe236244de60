"""A small policy, episodes that its engine has sampled, and one update of a learner that lets itself be watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode
from isentrope.learning.learner import Learner
from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens

PHRASES = ["One more.", "add one", "take one", "look", "You see a number. The number is", " 1", " 2", "reach"]


def loud(model: torch.nn.Module, scale: float = 6.0) -> None:
    """Weights large enough that words are far from uniform, norms that are not all alike."""
    made = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.mul_(scale)
            else:
                p.add_(0.3 * torch.randn(p.shape, generator=made))


def new_llama(width: int = 16, layers: int = 1, heads: int = 2, kv: int = 1, inner: int = 32, seed: int = 5) -> Llama:
    model = Llama(Shape(PocketTokens(PHRASES).size, width, layers, heads, kv, inner))
    model.initialise(torch.Generator().manual_seed(seed))
    loud(model)
    return model.eval()


def saved(folder: Path, **sizes: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    new_llama(**sizes).save(folder)
    PocketTokens(PHRASES).save(folder)
    return folder


def policy_of(model: Llama, device: str, compute: torch.dtype, held: torch.dtype) -> Policy:
    for p in model.parameters():
        p.data = p.data.to(held)
    return Policy(model.to(device), PocketTokens(PHRASES), torch.device(device), compute)


def config_of(model: Path | str, *changes: str) -> RunConfig:
    return load_config(
        None,
        [
            "task.world=tests.toys:ToyWorld",
            "task.max_turns=3",
            "agent.prompt=brief",
            "agent.max_response=8",
            "agent.max_context=400",
            f"policy.model={model}",
            "run.threads=1",
            "run.device=cpu",
            "run.steps=4",
            "run.checkpoint_every=100",
            "run.eval_every=0",
            "rollout.groups=2",
            "rollout.group_size=3",
            "learn.lr=3e-3",
            "learn.warmup=0",
            "learn.kl=0.0",
            "eval.splits=['seen']",
            "eval.games=1",
            "instruments.probe_every=0",
            *changes,
        ],
    )


def rewarded(episodes: Sequence[Episode], seed: int) -> list[Episode]:
    """The same episodes with rewards, outcomes and states drawn at random: a policy of random weights earns nothing."""
    found = []
    for i, e in enumerate(episodes):
        rng = np.random.default_rng([seed, e.group, e.member, i])
        turns = tuple(
            replace(t, reward=float(np.round(rng.normal(), 2)), anchor=f"state {rng.integers(2)}") for t in e.turns
        )
        found.append(replace(e, turns=turns, success=bool(rng.integers(2))))
    return found


class Watched:
    """Remembers, for each step of an optimiser, weights and gradients before it, its rate and the weights after it."""

    def __init__(self, optimiser: Any) -> None:
        self.steps: list[dict[str, Any]] = []
        plain = optimiser.step

        def step(loss: float, rate: float) -> float:
            copies = [p.detach().clone() for p in optimiser.parameters]
            held = [p.detach().clone() for p in optimiser.masters.weights]
            grads = [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in optimiser.parameters]
            norm = plain(loss, rate)
            self.steps.append(
                {
                    "held": held, "copies": copies, "grads": grads, "rate": rate, "norm": norm, "loss": loss,
                    "copies_after": [p.detach().clone() for p in optimiser.parameters],
                    "held_after": [p.detach().clone() for p in optimiser.masters.weights],
                }
            )  # fmt: skip
            return norm

        optimiser.step = step


def names_of(policy: Policy) -> list[str]:
    """Of the weights that learn, in the optimiser's order, without prefixes."""
    names = [name for name, p in policy.module.named_parameters() if p.requires_grad]
    return [name.removeprefix("lm.").removeprefix("model.").removeprefix("decoder.") for name in names]


def watched(learner: Learner) -> Watched:
    return Watched(learner.optimiser)
