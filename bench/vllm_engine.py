"""The vLLM engine on a GPU: some training steps with it, its weights renewed after each, and both passes compared.

    python -m bench.vllm_engine                       # one GPU: SmolLM2-135M's shape, random weights, bfloat16
    python -m bench.vllm_engine --steps 5 --set policy.lora_rank=16
    python -m bench.vllm_engine --engine torch --model tiny --device cpu    # without vLLM: must fail at `stale`

Household games with forced lengths (see docs/performance.md). After every step some conversations are sampled and the
policy scores the same tokens: the distance of log-probs says whether vLLM has this step's weights. At the end all
weights are moved by a third: vLLM's samples must be far off before it takes the new ones (`stale`), or the check proves
nothing, and near after. Needs vLLM: see docs/engines.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bench.engines import apart, converse
from isentrope.bench.results import Row, finish
from isentrope.bench.work import Ours, Work, device_named
from isentrope.core.engine import Engine
from isentrope.models.policy import Policy

NEAR = 0.03  # nats a token, mean: bfloat16 differs by some thousandths, in one engine as in another
FAR = 5.0  # times the distance with the right weights that old ones must be off
SIZES: Any = SimpleNamespace(conversations=16, turns=2, prompt=200, new=24, told=30)


def shake(policy: Policy, by: float = 0.3, least: float = 0.01) -> None:
    """What an update does to the weights, only larger."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in policy.module.parameters():
            if weight.requires_grad and weight.ndim > 1:
                size = (by * weight.std()).clamp(min=least)  # adapters begin at zero
                weight.add_(size * torch.randn_like(weight))


def renewed(engine: Engine, policy: Policy) -> float:
    """Seconds."""
    began = time.perf_counter()
    engine.refresh()
    if policy.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def steps_of(ours: Ours, steps: int) -> list[Row]:
    policy, engine = ours.learner.policy, ours.collector.engine
    spent, seconds, means = list[Any](), list[float](), list[float]()
    before = [weight.detach().clone() for weight in policy.module.parameters() if weight.requires_grad]
    for step in range(steps + 1):
        done = ours.step(step)
        seconds.append(renewed(engine, policy))
        mean, largest = apart(policy, converse(engine, policy, SIZES, seed=step))
        means.append(mean)
        if step:  # the first compiles
            spent.append(done)
        told = f"rollout {done.rollout:.2f} s, update {done.update:.2f} s, new weights {seconds[-1]:.3f} s"
        print(f"step {step}: {told}, log-probs off by {mean:.1e}, at most {largest:.1e}", flush=True)
    after = [weight.detach() for weight in policy.module.parameters() if weight.requires_grad]
    moved = max(float((a - b).abs().max()) for a, b in zip(after, before, strict=True))
    if moved == 0:
        raise SystemExit("no weight has moved: nothing was learnt, so nothing was renewed")
    sampled = statistics.median(one.sampled / one.rollout for one in spent)
    return [
        Row("sampled in training", sampled, "tokens/s", note=f"{ours.work.episodes} episodes, {ours.work.turns} turns"),
        Row("rollout", statistics.median(one.rollout for one in spent), "s"),
        Row("update, new weights included", statistics.median(one.update for one in spent), "s"),
        Row("new weights", statistics.median(seconds[1:]), "s", note=f"largest change of a weight {moved:.1e}"),
        Row("log-probs off, the worst step", max(means), "nats a token", NEAR / max(means), f"{NEAR:g} allowed", 1.0),
    ]


def shaken(ours: Ours) -> list[Row]:
    policy, engine = ours.learner.policy, ours.collector.engine
    shake(policy)
    stale, _ = apart(policy, converse(engine, policy, SIZES, seed=100))
    renewed(engine, policy)
    fresh, _ = apart(policy, converse(engine, policy, SIZES, seed=101))
    return [
        Row("stale: log-probs off with old weights", stale, "nats a token", stale / fresh, "the right ones", FAR),
        Row("log-probs off after all weights moved", fresh, "nats a token", NEAR / fresh, f"{NEAR:g} allowed", 1.0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="smollm2, small or tiny (shapes), or a model folder")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=3, help="after a first one that is not counted")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="our settings")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    given = parser.parse_args()
    work = Work(given.model, device_named(given.device), groups=given.groups, group_size=8, turns=6, response=32)
    settings = [f"engine.kind={given.engine}", "learn.lr=1e-4", "learn.old_logprobs=recompute"]
    if given.engine == "vllm":
        settings.append("engine.memory=0.3")
    with tempfile.TemporaryDirectory() as folder:
        work = work.with_model_in(Path(folder))
        began = time.perf_counter()
        ours = Ours(work, work.config([*settings, *given.set]))
        start = time.perf_counter() - began
        rows = [Row("start, model and engine", start, "s"), *steps_of(ours, given.steps), *shaken(ours)]
        ours.close()
    if not finish("vllm_engine", rows, given.json).met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
