"""SEAL: a classifier that tells tokens of successful episodes from others, trained through the policy.

Paper: Cyclical Entropy Eruption: Entropy Dynamics in Agent Reinforcement Learning, arXiv:2605.27954.

    p_t = σ(MLP(h_t))
    Eq. 3   L_SEAL = -mean over all response tokens of [z log p_t + (1 - z) log(1 - p_t)]
    Eq. 2   L = L_policy + α · L_SEAL

Symbols: h_t is the final hidden state (after the last norm) at the response token; z is 1 for every token of a
successful episode, else 0. The gradient reaches the policy through h_t: that is the method.

Not stated in the paper, so ours: the MLP is d → 256 → 1 with GELU and has its own AdamW at 1e-3; α 0.1; groups with
one class only are included (`groups = "mixed"` leaves them out). `state = "before"` takes the state that predicted the
token, the h of the paper's Lemma 3.2, instead of the token's own. `label = "advantage"` is the authors' code: z is 1
where the advantage is not negative, so that a group that failed as a whole counts as correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Metrics, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.records import number


@dataclass(frozen=True)
class SealOptions:
    alpha: float = setting(0.1, "α, the weight of the classifier's loss", low=0)
    width: int = setting(256, "hidden units of the classifier", low=1)
    lr: float = setting(1e-3, "the classifier's learning rate", above=0)
    groups: str = setting("all", "learn from all groups, or from those with both outcomes", choices=("all", "mixed"))
    label: str = setting(
        "success", "z: the episode succeeded, or the advantage is not negative", choices=("success", "advantage")
    )
    state: str = setting("token", "hidden state at the token, or the one before it", choices=("token", "before"))


def make_classifier(size: int, width: int, seed: int) -> nn.Sequential:
    """d → width → 1 with GELU, drawn from its own random numbers: torch's, which a trainer may sample with, stay."""
    layers = nn.Linear(size, width, device="meta"), nn.GELU(), nn.Linear(width, 1, device="meta")
    model = nn.Sequential(*layers).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for layer in (model[0], model[2]):
        assert isinstance(layer, nn.Linear)
        bound = layer.in_features**-0.5
        for parameter in (layer.weight, layer.bias):
            with torch.no_grad():
                parameter.copy_(torch.rand(parameter.shape, generator=generator) * 2 * bound - bound)
    return model


class Seal(Method):
    name = "seal"
    summary = "pushes the hidden states of successful and failed episodes apart"
    paper = "SEAL, arXiv:2605.27954"
    options_class = SealOptions
    options: SealOptions
    off: ClassVar[Mapping[str, Any]] = {"alpha": 0}
    metrics = (
        Metric("seal/bce", "Cross-entropy of SEAL's classifier, mean over tokens.", "nats"),
        Metric("seal/accuracy", "Share of the tokens whose episode's outcome SEAL's classifier tells right.", "share"),
    )

    def __init__(self, options: SealOptions | None = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options, steps, seed)
        self.classifier: nn.Sequential | None = None
        self.optimiser: torch.optim.AdamW | None = None
        self._loaded: dict[str, Any] = {}
        self._counts_N: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)  # which tokens of the step are learnt from

    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        """Finds the tokens to learn from."""
        self._counts_N = np.ones(len(tokens.group_N), dtype=np.bool_)
        if self.options.groups == "mixed":
            for group in np.unique(tokens.group_N):
                members = tokens.group_N == group
                self._counts_N[members] = len(np.unique(tokens.success_N[members])) == 2
        return {}

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if self.options.alpha == 0:
            return None
        hidden = stats.hidden_ND
        if self.options.state == "token":
            hidden = stats.states_BTD[batch.row_N, batch.col_N]
        share = 1.0  # of the mini-batch's tokens that count: the mean is one over them
        if self.options.groups == "mixed":
            share = float(self._counts_N[batch.mini_batch].mean())
            if share == 0:
                return None
        classify = self._ready(hidden)
        logit_N: Tensor = classify(hidden.float()).squeeze(-1)
        weight_N = batch.weights["token"]
        if self.options.groups == "mixed":
            weight_N = weight_N * torch.from_numpy(self._counts_N[batch.number_N]).to(weight_N) / share
        z_N = batch.success_N if self.options.label == "success" else (batch.advantage_N >= 0).to(weight_N)
        loss_N = functional.binary_cross_entropy_with_logits(logit_N, z_N, reduction="none")
        loss = (weight_N * loss_N).sum()
        right = ((logit_N.detach() > 0) == (z_N > 0.5)).to(weight_N)
        metrics = {"seal/bce": number(loss), "seal/accuracy": number((weight_N * right).sum())}
        return Term(self.options.alpha * loss, metrics | {"loss/seal": self.options.alpha * number(loss)})

    def updated(self, applied: bool) -> None:
        if self.optimiser:
            if applied:
                self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)

    def _ready(self, hidden: Tensor) -> nn.Sequential:
        """The classifier, made when the size of a hidden state is first known, and filled from a checkpoint."""
        if self.classifier is None:
            self.classifier = make_classifier(hidden.shape[-1], self.options.width, self.seed).to(hidden.device)
            self.optimiser = torch.optim.AdamW(self.classifier.parameters(), lr=self.options.lr, weight_decay=0.0)
            if self._loaded:
                self.classifier.load_state_dict(self._loaded["classifier"])
                self.optimiser.load_state_dict(self._loaded["optimiser"])
                self._loaded = {}
        return self.classifier

    def state_dict(self) -> dict[str, Any]:
        if self.classifier is None or self.optimiser is None:
            return self._loaded
        return {"classifier": dict(self.classifier.state_dict()), "optimiser": self.optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.classifier, self.optimiser, self._loaded = None, None, state
