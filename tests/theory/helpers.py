"""Policies small enough that every response can be listed, and derivatives taken two ways. All in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from isentrope.models.llama import Llama, Shape

Response = tuple[int, ...]


class Untied(Llama):
    """Our Llama with an output matrix of its own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.output = nn.Parameter(torch.empty(shape.vocabulary, shape.width))

    def head_weight(self) -> Tensor:
        return self.output


def tiny(seed: int, vocabulary: int = 4, kind: type[Llama] = Llama) -> Llama:
    """Random weights, large enough that predictions are far from uniform and depend on everything before."""
    model = kind(Shape(vocabulary=vocabulary, width=8, layers=1, heads=2, kv_heads=1, inner=8)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.6 * noise if parameter.dim() == 2 else 1 + 0.3 * noise)
    return model


def all_responses(vocabulary: int, limit: int) -> list[Response]:
    """Everything the model can say: it stops at the end token (the last of the vocabulary) or after `limit` tokens."""
    end, done, open_ones = vocabulary - 1, list[Response](), [()]
    for _ in range(limit):
        longer = [(*start, token) for start in open_ones for token in range(vocabulary)]
        done += [response for response in longer if response[-1] == end]
        open_ones = [response for response in longer if response[-1] != end]
    return done + open_ones


@dataclass(frozen=True)
class Scored:
    """R responses of at most T tokens; zero where a response has ended."""

    target_RT: Tensor
    logp_RT: Tensor
    entropy_RT: Tensor
    words_RTV: Tensor  # log-probabilities of every word
    hidden_RTD: Tensor  # what each token is predicted from
    mask_RT: Tensor

    @property
    def logp_R(self) -> Tensor:
        return self.logp_RT.sum(1)


def score(model: Llama, prompts: Sequence[Sequence[int]], responses: Sequence[Response]) -> Scored:
    """Every response after its prompt, in one pass with gradient. Plain logits: the production head is float32."""
    rows = [[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)]
    width, count = max(map(len, rows)), max(map(len, responses))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    positions = torch.arange(width).expand(len(rows), width)
    segments = torch.where(positions < torch.tensor([[len(row)] for row in rows]), 0, -1)
    starts = torch.tensor([[len(prompt)] for prompt in prompts])
    mask = torch.arange(count) < torch.tensor([[len(response)] for response in responses])
    columns = torch.where(mask, starts + torch.arange(count), 1)
    lines = torch.arange(len(rows))[:, None]
    hidden = model.hidden(ids, positions, segments)[lines, columns - 1]
    words = torch.log_softmax(hidden @ model.head_weight().T, dim=-1)
    target = ids[lines, columns]
    logp = words.gather(2, target[..., None]).squeeze(2)
    return Scored(target, logp * mask, -(words.exp() * words).sum(-1) * mask, words, hidden, mask)


def score_one_prompt(model: Llama, prompt: Sequence[int], responses: Sequence[Response]) -> Scored:
    return score(model, [prompt] * len(responses), responses)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.log()).sum()


def covariance(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (p * a * b).sum() - (p * a).sum() * (p * b).sum()


def gradient(value: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """As one vector; what the value does not depend on has gradient 0."""
    parts = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def gradients(values: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    return torch.stack([gradient(value, parameters) for value in values])


@contextmanager
def moved(model: nn.Module, direction: Tensor) -> Iterator[None]:
    """The model with its parameters moved, for as long as the block lasts."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        parts = direction.split([parameter.numel() for parameter in before])
        for parameter, part in zip(model.parameters(), parts, strict=True):
            parameter.add_(part.view_as(parameter))
        try:
            yield
        finally:
            for parameter, old in zip(model.parameters(), before, strict=True):
                parameter.copy_(old)


def model_slope(model: nn.Module, direction: Tensor, value: Callable[[], Tensor], step: float = 1e-5) -> float:
    """Central difference of a value along a direction in parameter space; the step is a length in that space."""
    size = step / float(direction.norm())
    with moved(model, size * direction):
        after = float(value())
    with moved(model, -size * direction):
        before = float(value())
    return (after - before) / (2 * size)


def simplex_slope(value: Callable[[Tensor], Tensor], p: Tensor, direction: Tensor) -> float:
    """Central difference along a straight line in the simplex, short against the smallest probability."""
    size = 1e-4 * float(p.min()) / max(float(direction.abs().max()), 1e-12)
    return float(value(p + size * direction) - value(p - size * direction)) / (2 * size)


def natural(p: Tensor, plain: Tensor) -> Tensor:
    """Fisher-Rao gradient on the simplex from a gradient in plain coordinates: p (∂f - E_p ∂f)."""
    return p * (plain - (p * plain).sum())


def plain_gradient(value: Callable[[Tensor], Tensor], p: Tensor) -> Tensor:
    q = p.detach().clone().requires_grad_()
    return torch.autograd.grad(value(q), q)[0]


def vectors(size: int, limit: float = 3.0) -> st.SearchStrategy[Tensor]:
    number = st.floats(-limit, limit, allow_subnormal=False)
    return st.lists(number, min_size=size, max_size=size).map(lambda values: torch.tensor(values, dtype=torch.float64))


def simplices(size: int) -> st.SearchStrategy[Tensor]:
    return vectors(size).map(lambda logits: torch.softmax(logits, 0))


sizes = st.integers(2, 6)
