"""Seven billion weights on one card: all of them learn, three GRPO steps of 64 household episodes of 24 turns.

    python bench/seven.py                        # one GPU: Qwen2.5-7B's shape, random weights, all ways in turn
    python bench/seven.py --ways adamw8 --kl     # one of them, with a reference on the card too
    python bench/seven.py --shape tiny           # a CPU: that it runs

adamw8   8-bit moments on the card        host   float32 moments in main memory, which come and go in every update
adamw    float32 copies and moments on the card: more than it has, which is measured too

First `check`: on this device, moments that travel give the same weights as moments that stay, to the bit; and how far a
single update in 8 bits is from torch's own AdamW over float32 copies on the same gradients of a small model. Then every
way is a process of its own, and each step's parts are timed with what they took of the card. Responses have a fixed
length and choose actions by chance (isentrope/bench/driven.py). With $OUT set the figures go to $OUT/seven.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.bench.driven import DrivenTokenizer
from isentrope.bench.hardware_cell import Meter, card, shape_facts
from isentrope.bench.sampling import SHAPES, random_policy
from isentrope.bench.work import Work
from isentrope.core.process import memory_metrics
from isentrope.core.types import RolloutPlan
from isentrope.engines.registry import make_engine
from isentrope.learning import lean_adamw
from isentrope.learning.lean_adamw import LeanAdamW
from isentrope.learning.learner import Learner
from isentrope.learning.optimiser import Optimiser
from isentrope.models.memory import BFLOAT16, Plays, Wanted, memory_of
from isentrope.models.policy import snapshot
from isentrope.rollout.collector import Collector

GIB = 2.0**30
SHARE = 0.2  # of the card, for the engine's cache
WAYS = {
    "adamw8": ("learn.optimiser=adamw8",),
    "host": ("learn.moments=host",),
    "adamw": (),
}
SHOWN = ("loss/total", "grad_norm", "kl/old", "ratio/max", "update/skipped", "mismatch/kl")


def grads_of(step: int, weights: Sequence[nn.Parameter]) -> list[Tensor]:
    """Of sizes from 1e-4 to 1."""
    device = weights[0].device
    generator = torch.Generator(device).manual_seed(step)

    def one(weight: Tensor) -> Tensor:
        size = torch.rand(weight.shape, device=device, generator=generator)
        return torch.randn(weight.shape, device=device, generator=generator) * 10 ** (4 * size - 4)

    return [one(weight) for weight in weights]


def check(steps: int = 12) -> dict[str, float]:
    """Weights of several sizes: smaller than a chunk, many chunks, and not a whole number of blocks."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        lean_adamw.CHUNK = 1 << 12
    sizes = [(3 * lean_adamw.CHUNK // 512 + 3, 1024), (777,), (64, 511)]
    found: dict[str, float] = {}

    def made() -> list[nn.Parameter]:
        torch.manual_seed(0)
        return [nn.Parameter((0.02 * torch.randn(size)).to(device, torch.bfloat16)) for size in sizes]

    def flat(optimiser: Optimiser) -> Tensor:
        parts = [p.number() if hasattr(p, "number") else p.detach() for p in optimiser.parameters]
        return torch.cat([part.flatten() for part in parts])

    for kind in ("adamw", "adamw8"):
        stay, travel, torchs = made(), made(), made()
        sides = [Optimiser(stay, kind=kind, moments="host"), Optimiser(travel, kind=kind, moments="host")]
        assert isinstance(sides[0].adam, LeanAdamW)
        sides[0].adam.travels = False  # the same arithmetic, with moments on the card
        sides.append(Optimiser(torchs))
        apart, before = list[float](), flat(sides[2])
        for step in range(steps):
            last = flat(sides[0])
            for side, weights in zip(sides, (stay, travel, torchs), strict=True):
                for weight, held, grad in zip(weights, side.parameters, grads_of(step, weights), strict=True):
                    held.grad = grad if held is not weight else grad.to(weight.dtype)
                side.step(0.0, 1e-4)
            ours, theirs = flat(sides[0]) - last, flat(sides[2]) - before
            before = flat(sides[2])
            apart.append(float((ours - theirs).norm() / theirs.norm()))
        found[f"{kind}: weights that differ if moments travel"] = float((flat(sides[0]) != flat(sides[1])).sum())
        found[f"{kind}: an update against torch's, mean distance"] = sum(apart) / len(apart)
        found[f"{kind}: norm of the parts"] = float(flat(sides[1]).norm())
    for name, value in found.items():
        print(f"check, {name}: {value:.6g}", flush=True)
    return found


def work_of(shape: str) -> Work:
    device, groups, turns, response = ("cuda" if torch.cuda.is_available() else "cpu"), 8, 24, 64
    if shape == "tiny":
        groups, turns, response = 1, 3, 8
    return Work("smollm2", device, groups, 8, turns, response, context=6144, rooms="full")


def measure(shape: str, way: str, steps: int, kl: bool) -> dict[str, Any]:
    work = work_of(shape)
    extra = [*WAYS[way], f"learn.kl={0.01 if kl else 0.0}", f"engine.memory={SHARE}", "learn.old_logprobs=recompute"]
    config, meter = work.config(extra), Meter()
    facts, device = shape_facts(shape), torch.device(work.device)
    total = memory_of(device)
    cache = Plays(config.rollout.batch, SHARE).room(facts, work.context, total)
    need = Wanted(facts, BFLOAT16, 0, config.learn, gpu=True, cache_tokens=cache, card=total).need
    found: dict[str, Any] = {"way": way, "shape": shape, "kl": kl, "foretold": need.items() | {"host": need.host}}
    found["steps"] = []
    print(
        f"{way}: foretold {need.total / GIB:.1f} GiB on the card, {need.host / GIB:.1f} GiB in main memory", flush=True
    )
    try:
        began = time.perf_counter()
        policy = random_policy(shape)
        policy = replace(policy, tokenizer=DrivenTokenizer(policy.tokenizer, work.response))
        reference = snapshot(policy) if kl else None
        learner = Learner(policy, reference, config)
        collector = Collector(config, make_engine(config, policy))
        print(f"{way}: ready after {time.perf_counter() - began:.0f} s", flush=True)
        for number in range(steps):
            found["steps"].append(one_step(collector, learner, number + 1, meter))
            print(f"{way}, step {number + 1}: {json.dumps(found['steps'][-1])}", flush=True)
        collector.close()
    except torch.OutOfMemoryError as error:
        found |= {"oom": str(error)[:300], "held": meter.held}
        print(f"{way}: out of memory: {found['oom']}", flush=True)
    found |= card() | memory_metrics()
    if meter.peaks:
        most = (max(meter.peaks.values()) + found.get("passes", 0) + found.get("outside", 0)) / GIB
        found["most_gib"] = most
        print(f"{way}: at most {most:.1f} GiB of the card, foretold {need.total / GIB:.1f}", flush=True)
    return found


def one_step(collector: Collector, learner: Learner, number: int, meter: Meter) -> dict[str, Any]:
    plan = RolloutPlan(learner.config.agent.order, learner.config.rollout.temperature)
    meter.begin()
    episodes = collector.play_groups(number, plan)
    meter.end("rollout")
    meter.begin()
    credited = learner.credit(number, episodes)
    meter.end("score")
    meter.begin()
    update = learner.update(credited)
    collector.refresh()
    meter.end("update")
    turns = [turn for episode in episodes for turn in episode.turns]
    told = {key: update.metrics[key] for key in SHOWN if key in update.metrics}
    return {
        "episodes": len(episodes),
        "turns": len(turns),
        "sampled": sum(len(turn.response_ids) for turn in turns),
        "tokens": sum(len(turn.response_ids) + len(turn.context_ids) for turn in turns),
        "seconds": {part: round(spent, 2) for part, spent in meter.seconds.items()},
        "seconds/transfer": round(update.seconds.get("transfer", 0.0), 2),
        "peak_gib": {part: round(size / GIB, 1) for part, size in meter.peaks.items()},
        "held_gib": {part: round(size / GIB, 1) for part, size in meter.held.items()},
        **told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2.5-7b", choices=list(SHAPES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--kl", action="store_true", help="with a reference")
    parser.add_argument("--without-check", action="store_true")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds of a way")
    parser.add_argument("--one", choices=list(WAYS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.shape, given.one, given.steps, given.kl)), flush=True)
        return os._exit(0)
    result: dict[str, Any] = {} if given.without_check else {"check": check()}
    out = Path(os.environ.get("OUT", ".")) / "seven.json"
    for way in given.ways:
        command = [sys.executable, __file__, "--one", way, "--shape", given.shape, "--steps", str(given.steps)]
        lines = list[str]()
        with subprocess.Popen(
            [*command, *(["--kl"] if given.kl else [])], stdout=subprocess.PIPE, text=True
        ) as started:
            assert started.stdout is not None
            late = Timer(given.limit, started.kill)
            late.start()
            for line in started.stdout:
                lines.append(line.strip())
                print(line.strip()[:1500], flush=True)
            late.cancel()
        try:
            result[way] = json.loads(lines[-1])
        except (IndexError, ValueError):
            result[way] = {"failed": f"ended with {started.returncode}: {lines[-1:]}"}
        if "OUT" in os.environ:
            out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
