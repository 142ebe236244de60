"""Sampled tokens a second of the torch engine and of vLLM in one interleaved run, and how far each is from the trainer.

    python bench/engines.py [--model pocket] [--conversations 32] [--turns 4] [--rounds 3] [--device cuda]

Conversations of several turns: a prompt, then responses of equal length with an observation after each. Both engines
get the same requests with the same random numbers, in turn. Rates are medians over rounds; on a CPU they count the
time that the process itself used, so that other programs disturb less; with one thread that is the time it takes.
The distance is that of each engine's log-probs from those of the pass that trains.
Needs vLLM: see docs/engines.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine, Request, Sampled
from isentrope.engines.torch import TorchEngine
from isentrope.engines.vllm import VllmEngine
from isentrope.loop.session import use_threads
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.models.token_head import log_probs

SIZES = {"conversations": 32, "turns": 4, "rounds": 3, "prompt": 300, "new": 40, "told": 40, "threads": 1}
Asked = tuple[Request, Sampled]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto", help="run.dtype")
    parser.add_argument("--memory", type=float, default=0.3, help="engine.memory")
    given = parser.parse_args()
    length = given.prompt + given.turns * (given.new + given.told)
    config = load_config(
        None,
        [
            f"policy.model={given.model}",
            f"run.device={given.device}",
            f"run.dtype={given.dtype}",
            f"run.threads={given.threads}",
            f"agent.max_context={length + given.new}",
            f"agent.max_response={given.new}",
            f"rollout.batch={given.conversations}",
            f"engine.memory={given.memory}",
            "engine.kind=vllm",
        ],
    )
    compare(config, given)


def compare(config: RunConfig, given: argparse.Namespace) -> None:
    use_threads(config)
    policy = load_policy(config.policy, config.run)
    engines: dict[str, Engine] = {"torch": TorchEngine(policy), "vllm": VllmEngine(policy, config)}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    asked: dict[str, list[Asked]] = {}
    for round_ in range(given.rounds + 1):
        for name, engine in engines.items():
            begin = _clock(policy)
            asked[name] = converse(engine, policy, given, seed=round_)
            seconds = _clock(policy) - begin
            if round_:  # the first only warms up
                rates[name].append(given.conversations * given.turns * given.new / seconds)
            engine.refresh()  # as after an update: nothing of the round before is held
    for name, values in rates.items():
        mean, largest = apart(policy, asked[name])
        print(
            f"{name:6} {statistics.median(values):10,.0f} tokens/s   log-probs off by {mean:.1e}, at most {largest:.1e}"
        )
    print(f"ratio  {statistics.median(v / t for v, t in zip(rates['vllm'], rates['torch'], strict=True)):10.2f}")
    pairs = [(a.ids, b.ids) for (_, a), (_, b) in zip(asked["torch"], asked["vllm"], strict=True)]
    print(f"same responses {np.mean([np.array_equal(a, b) for a, b in pairs]):8.0%}")
    begin = time.perf_counter()
    engines["vllm"].refresh()
    print(f"new weights    {time.perf_counter() - begin:8.3f} s")
    engines["vllm"].close()


def _clock(policy: Policy) -> float:
    if policy.device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def converse(engine: Engine, policy: Policy, given: argparse.Namespace, seed: int) -> list[Asked]:
    rng = np.random.default_rng(seed)
    words = policy.tokenizer.size
    prompts = [rng.integers(300, words, given.prompt).tolist() for _ in range(given.conversations)]
    engine.open(range(given.conversations))
    asked: list[Asked] = []
    for _ in range(given.turns):
        requests = [
            Request(slot, prompt, rng.random(given.new, dtype=np.float32), 1.0, _never)
            for slot, prompt in enumerate(prompts)
        ]
        sampled = engine.sample(requests)
        asked += zip(requests, sampled, strict=True)
        said = [rng.integers(300, words, given.told).tolist() for _ in prompts]
        prompts = [[*p, *s.ids.tolist(), *t] for p, s, t in zip(prompts, sampled, said, strict=True)]
    return asked


def _never(tail: bytes) -> bool:
    return False


@torch.no_grad()
def apart(policy: Policy, asked: Sequence[Asked], most: int = 16) -> tuple[float, float]:
    """Mean and largest difference of log-probs from the pass that trains, over some of the responses."""
    differences: list[float] = []
    for request, sampled in asked[:: max(1, len(asked) // most)]:
        ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]], device=policy.device)
        with policy.compute():
            hidden = policy.model.hidden(
                ids, torch.arange(ids.shape[1], device=ids.device)[None], torch.zeros_like(ids)
            )
        at = hidden[0, len(request.prompt) - 1 : -1]
        words = log_probs(at, policy.model.head_weight(), torch.ones(len(at), device=ids.device))
        chosen = words.gather(1, ids[0, len(request.prompt) :, None]).squeeze(1).cpu().numpy()
        differences += np.abs(chosen - sampled.logprobs).tolist()
    return float(np.mean(differences)), float(np.max(differences))


if __name__ == "__main__":
    main()
