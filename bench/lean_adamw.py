"""How near AdamW with 8-bit moments is to float32's: update by update on the same gradients, and as learning curves.

    python bench/lean_adamw.py [--steps 300] [--seeds 5]

A small model learns to repeat a pattern of tokens. `apart` is the distance between the changes that one update makes
and those that float32 AdamW makes from the same gradients, relative to the latter; moments stay each optimiser's own.
The curves are of runs by themselves: mean and deviation of the loss over seeds (starts and data), for float32, for the
same with 8-bit moments, for bfloat16 weights with float32 copies, and for those with their rests and 8-bit moments.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

import torch

from bench.master_weights import flat, loss_of
from isentrope.learning.lean_adamw import LeanAdamW
from isentrope.learning.optimiser import Optimiser
from isentrope.models.llama import Llama, Shape

SHAPE = Shape(vocabulary=64, width=128, layers=3, heads=4, kv_heads=2, inner=384)
RATE = 1e-3
BETAS = (0.9, 0.999)
SHOWN = (2, 10, 50, 100, 200, 300, 500)


@dataclass(frozen=True)
class Side:
    name: str
    dtype: torch.dtype
    kind: str


SIDES = (
    Side("float32", torch.float32, "adamw"),
    Side("float32, 8-bit moments", torch.float32, "adamw8"),
    Side("bfloat16, float32 copies", torch.bfloat16, "adamw"),
    Side("bfloat16 with rests, 8-bit moments", torch.bfloat16, "adamw8"),
)


def batch(seed: int, step: int) -> torch.Tensor:
    """Rows that repeat eight random tokens."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.randint(0, SHAPE.vocabulary, (8, 8), generator=generator).repeat(1, 4)


def made(seed: int, dtype: torch.dtype = torch.float32) -> Llama:
    model = Llama(SHAPE)
    model.initialise(torch.Generator().manual_seed(seed))
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().to(dtype)  # all begin at the same numbers
    return model


def apart(seed: int, steps: int) -> list[float]:
    """Of each update, with float32's gradients and weights before it."""
    model, shadow = made(seed), made(seed)
    exact = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, weight_decay=0.0, foreach=False)
    lean = LeanAdamW(list(shadow.parameters()), BETAS, 0.0, eight_bits=True, on_host=False)
    lean.param_groups[0]["lr"] = RATE
    found: list[float] = []
    for step in range(steps):
        exact.zero_grad()
        loss_of(model, batch(seed, step)).backward()
        for mine, theirs in zip(shadow.parameters(), model.parameters(), strict=True):
            mine.data.copy_(theirs.data)
            mine.grad = None if theirs.grad is None else theirs.grad.clone()
        before = flat(model.parameters())
        exact.step()
        lean.step()
        moved, also = flat(model.parameters()) - before, flat(shadow.parameters()) - before
        found.append(float((also - moved).norm() / moved.norm()))
    return found


def curve(side: Side, seed: int, steps: int) -> list[float]:
    """The loss on a batch that is not learnt from, at the steps that are shown."""
    model = made(seed, side.dtype)
    optimiser = Optimiser(model.parameters(), kind=side.kind)
    found: list[float] = []
    for step in range(steps):
        loss = loss_of(model, batch(seed, step))
        loss.backward()
        optimiser.step(float(loss.detach()), RATE)
        if step + 1 in SHOWN:
            with torch.no_grad():
                found.append(statistics.fmean(float(loss_of(model, batch(seed, -1 - i))) for i in range(4)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    shown = [step for step in SHOWN if step <= given.steps]
    found = apart(0, given.steps)
    print("| update | " + " | ".join(map(str, shown)) + " | mean |\n|" + "---|" * (len(shown) + 2))
    print("| apart | " + " | ".join(f"{found[s - 1]:.3f}" for s in shown) + f" | {statistics.fmean(found[1:]):.3f} |")
    print("\n| loss after | " + " | ".join(map(str, shown)) + " |\n|" + "---|" * (len(shown) + 1))
    for side in SIDES:
        columns = zip(*(curve(side, seed, given.steps) for seed in range(given.seeds)), strict=True)
        cells = [f"{statistics.fmean(c):.4f} ± {statistics.stdev(c) if len(c) > 1 else 0:.4f}" for c in columns]
        print(f"| {side.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
