"""How much of an update survives in bfloat16: the same small model trained in float32, in bfloat16 with float32 copies,
and in bfloat16 alone.

    python bench/master_weights.py [STEPS]

The model learns to repeat a pattern of tokens. `lost` is the distance between the change of the weights and the change
that float32 makes of them, relative to the latter: 0 is the same, 1 is as far off as no change at all. It is given for
what learns (the copies, where there are some) and for what the model computes with (the copies rounded).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from isentrope.learning.optimiser import Optimiser
from isentrope.models.llama import Llama, Shape

RATES = (1e-6, 1e-5, 1e-4)
SHAPE = Shape(vocabulary=64, width=64, layers=2, heads=4, kv_heads=2, inner=128)


def flat(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([p.detach().float().flatten() for p in parameters])


def batch(step: int) -> torch.Tensor:
    """Rows that repeat eight random tokens."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, SHAPE.vocabulary, (8, 8), generator=generator).repeat(1, 4)


def loss_of(model: Llama, ids: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    hidden = model.hidden(ids, positions, torch.zeros_like(ids))
    logits = (hidden @ model.head_weight().T).float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


Changes = tuple[torch.Tensor, torch.Tensor, float]


def train(start: Llama, dtype: torch.dtype, masters: bool, rate: float, steps: int) -> Changes:
    """The change of what learns and of what is computed with, and the loss on a batch that was not learnt from."""
    model = Llama(SHAPE)
    model.load_state_dict(start.state_dict())
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    before = flat(model.parameters())
    optimiser = Optimiser(model.parameters(), master_weights=masters)
    for step in range(steps):
        loss = loss_of(model, batch(step))
        loss.backward()
        optimiser.step(float(loss.detach()), rate)
    with torch.no_grad():
        loss = float(loss_of(model, batch(10**6)))
    return flat(optimiser.parameters) - before, flat(model.parameters()) - before, loss


def accumulation_error(start: Llama, passes: int) -> float:
    """How far gradients of many passes, added up in bfloat16, are from the same ones added up in float32."""
    model = Llama(SHAPE)
    model.load_state_dict(start.state_dict())
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    exact, rounded = torch.zeros_like(flat(model.parameters())), list[torch.Tensor]()
    for number in range(passes):
        for parameter in model.parameters():
            parameter.grad = None
        loss_of(model, batch(number)).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        exact += flat(grads)
        rounded = [a + g for a, g in zip(rounded, grads, strict=True)] if rounded else [g.clone() for g in grads]
    return float((flat(rounded) - exact).norm() / exact.norm())


def main(steps: int) -> None:
    torch.set_num_threads(1)
    start = Llama(SHAPE)
    start.initialise(torch.Generator().manual_seed(0))
    for parameter in start.parameters():  # all begin at the same numbers
        parameter.data = parameter.data.bfloat16().float()
    print("| rate | weights | weights that changed | lost in what learns | lost in what computes | loss |")
    print("|---|---|---|---|---|---|")
    for rate in RATES:
        exact, *_ = train(start, torch.float32, True, rate, steps)
        for name, dtype, masters in (
            ("float32", torch.float32, True),
            ("bfloat16, float32 copies", torch.bfloat16, True),
            ("bfloat16 alone", torch.bfloat16, False),
        ):
            learnt, used, loss = train(start, dtype, masters, rate, steps)
            lost = [float((change - exact).norm() / exact.norm()) for change in (learnt, used)]
            moved = 100 * float((used != 0).float().mean())
            print(f"| {rate:.0e} | {name} | {moved:.0f} % | {lost[0]:.2f} | {lost[1]:.2f} | {loss:.4f} |", flush=True)
    print("\n| passes added up in bfloat16 | gradient is off by |\n|---|---|")
    for passes in (2, 8, 32, 128):
        print(f"| {passes} | {100 * accumulation_error(start, passes):.1f} % |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
