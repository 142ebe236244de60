"""Drafts by lookup against none: the same episodes with both, in turn in one process.

    python bench/drafts.py --model FOLDER                            # the demo's rollout, on one thread of a CPU
    python bench/drafts.py --model FOLDER --drafts 2,4,8 --steps 4
    python bench/drafts.py --grid                                    # where nothing can be guessed: 4 sizes × 4 batches
    python bench/drafts.py --costs                                   # what a pass costs, by rows and tokens in each

FOLDER is a warmed-up model (isentrope sft recipes/demo.toml --out FOLDER). Every step plays new games, with and without
drafts; what is remembered goes on from step to step, as in training. The times are those of the process's own work
(all its threads), since other programs may be running. Responses must be the same token by token; where they are not,
the episodes that part are counted. The bar is 1.5 times the sampled tokens a second on two CPU cores.

--grid samples from random weights, which repeat nothing: what drafts cost where they are of no use. The bar is 0.98.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Request
from isentrope.core.types import Episode
from isentrope.engines.registry import make_engine
from isentrope.engines.torch import TorchEngine
from isentrope.models.kv_cache import Cache
from isentrope.models.llama import Llama, Shape
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.collector import Collector

BAR = 1.5
SHAPES = {
    "pocket": Shape(vocabulary=555, width=128, layers=4, heads=4, kv_heads=2, inner=384),
    "middle": Shape(vocabulary=555, width=256, layers=6, heads=8, kv_heads=4, inner=768),
    "wide": Shape(vocabulary=555, width=576, layers=6, heads=9, kv_heads=3, inner=1536),
    "words": Shape(vocabulary=8192, width=256, layers=4, heads=8, kv_heads=4, inner=768),
}
BATCHES = (1, 8, 32, 96)


def config_of(recipe: str, model: str, changes: Sequence[str], drafts: int) -> RunConfig:
    return load_config(Path(recipe), [f"policy.model={model}", f"engine.drafts={drafts}", *changes])


def words(episodes: Sequence[Episode]) -> list[list[list[int]]]:
    return [[turn.response_ids.tolist() for turn in episode.turns] for episode in episodes]


def parted(one: Sequence[Episode], other: Sequence[Episode]) -> int:
    """Episodes that are not the same token by token."""
    return sum(a != b for a, b in zip(words(one), words(other), strict=True))


class Side:
    """One engine with its collector, and what it took so far."""

    def __init__(self, config: RunConfig, policy: Policy, drafts: int) -> None:
        self.drafts = drafts
        self.collector = Collector(config, make_engine(config, policy))
        self.tokens, self.seconds = 0, 0.0
        self.told: dict[str, float] = {}

    def play(self, step: int) -> list[Episode]:
        began = time.process_time()
        rollout = self.collector.collect(step)
        seconds = time.process_time() - began
        self.collector.refresh()
        tokens = sum(len(turn.response_ids) for episode in rollout.episodes for turn in episode.turns)
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds
        for name, value in rollout.metrics.items():
            self.told[name] = self.told.get(name, 0.0) + value
        said = "".join(f", {name.removeprefix('engine/')} {value:.0f}" for name, value in rollout.metrics.items())
        print(
            f"  step {step}, drafts {self.drafts}: {tokens} tokens, {tokens / seconds:,.0f} a second{said}", flush=True
        )
        return rollout.episodes

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def episodes(given: argparse.Namespace) -> None:
    lengths = [0, *map(int, given.drafts.split(","))]
    configs = [config_of(given.recipe, given.model, given.set, drafts) for drafts in lengths]
    policy = load_policy(configs[0].policy, configs[0].run, max_context=configs[0].agent.max_context)
    sides = [Side(config, policy, drafts) for config, drafts in zip(configs, lengths, strict=True)]
    different = 0
    for step in range(1, given.steps + 1):
        at = step % len(sides)
        played = {side.drafts: side.play(step) for side in [*sides[at:], *sides[:at]]}
        different += sum(parted(played[0], played[drafts]) for drafts in lengths[1:])
        if step == 1:  # the first has nothing to remember and is no part of the figures
            for side in sides:
                side.tokens, side.seconds, side.told = 0, 0.0, {}
    for side in sides[1:]:
        drafted, accepted = (side.told.get(f"engine/{name}", 0.0) for name in ("drafted", "accepted"))
        ratio = side.rate / sides[0].rate
        print(
            f"drafts {side.drafts}: {side.rate:,.0f} sampled tokens a second against {sides[0].rate:,.0f} without: "
            f"{ratio:.2f} times (bar {BAR}); {accepted / max(1.0, drafted):.0%} of {drafted:.0f} drafted tokens right"
        )
    print(f"{different} episodes that are not the same token by token")


def grid(given: argparse.Namespace) -> None:
    """Seconds with drafts and without, turn by turn, for conversations of random words."""
    ratios: list[float] = []
    for name, shape in SHAPES.items():
        model = Llama(shape)
        model.initialise(torch.Generator().manual_seed(0))
        policy = Policy(model, AnyWord(["a"]), torch.device("cpu"), torch.float32)
        for rows in BATCHES:
            engines = [TorchEngine(policy, drafts=drafts) for drafts in (0, 0, given.longest)]
            seconds = [0.0] * len(engines)
            for turn in range(1 + given.rounds):
                for side in [*range(turn % 3, 3), *range(turn % 3)]:
                    took = talk(engines[side], shape.vocabulary, rows, turn)
                    seconds[side] += took if turn else 0.0
            ratios.append((seconds[0] + seconds[1]) / (2 * seconds[2]))
            told, same = engines[2].notes(), seconds[0] / seconds[1]
            print(
                f"{name}, {rows} rows: {ratios[-1]:.3f} times, {told['drafted']:.0f} drafted; without against without "
                f"{same:.3f}",
                flush=True,
            )
    print(f"least: {min(ratios):.3f} times (bar 0.98)")


def talk(engine: TorchEngine, words: int, rows: int, seed: int, turns: int = 8, room: int = 24) -> float:
    """Seconds of the process for a few turns of conversations."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(9, words, (rows, 80)).tolist()
    engine.open(range(rows))
    began = time.process_time()
    for _ in range(turns):
        requests = [
            Request(row, prompt, rng.random(room, dtype=np.float32), 1.0, lambda tail: False)
            for row, prompt in enumerate(prompts)
        ]
        for row, sampled in enumerate(engine.sample(requests)):
            prompts[row] = [*prompts[row], *sampled.ids.tolist(), *rng.integers(9, words, 16).tolist()]
    return time.process_time() - began


class AnyWord(PocketTokens):
    """Words that end nothing; what they are does not matter."""

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [b""] * len(ids)


def costs(given: argparse.Namespace) -> None:
    """Milliseconds of a pass over conversations of 600 tokens, by rows (down) and new tokens of each (across)."""
    for name, shape in SHAPES.items():
        model = Llama(shape)
        model.initialise(torch.Generator().manual_seed(0))
        for rows in (1, 8, 32, 128):
            took = [pass_seconds(model, rows, width) * 1e3 for width in (1, 2, 3, 5, 9)]
            print(name, rows, *(f"{ms:.1f} ({ms / took[0]:.2f})" for ms in took), flush=True)


@torch.no_grad()
def pass_seconds(model: Llama, rows: int, width: int, held: int = 600, rounds: int = 10) -> float:
    """Of some of a cache's conversations, as when others have ended."""
    cache, where = Cache(rows + 1, torch.device("cpu")), torch.arange(rows)
    ids, counts, began = torch.ones(rows, width, dtype=torch.long), torch.full((rows,), width), 0.0
    for turn in range(rounds + 2):
        if turn == 2:
            began = time.process_time()
        cache.lengths[:] = held
        model.extend_all(cache, ids, counts, where, held + width)
    return (time.process_time() - began) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a warmed-up model")
    parser.add_argument("--recipe", default="recipes/demo.toml")
    parser.add_argument("--drafts", default="4,8", help="values of engine.drafts, with commas")
    parser.add_argument("--steps", type=int, default=4, help="the first is not counted")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the recipe")
    parser.add_argument("--longest", type=int, default=8, help="engine.drafts of --grid")
    parser.add_argument("--rounds", type=int, default=3, help="of --grid")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--costs", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if not (given.costs or given.grid or given.model):
        parser.error("--model is needed: isentrope sft recipes/demo.toml --out FOLDER makes one")
    (costs if given.costs else grid if given.grid else episodes)(given)


if __name__ == "__main__":
    main()
