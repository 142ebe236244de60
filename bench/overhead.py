"""Time of a training step with each entropy method over the time without, in one interleaved run.

    python bench/overhead.py [--rounds 20] [--device cuda] [--recipe recipes/demo.toml] [--set KEY=VALUE ...]

A step is the rollout and the update. In every round one rollout is played; then each variant learns from it, in a new
order, from the same weights. So all variants do the same work but for the method itself, and the ratio of a round is
(rollout + update with) / (rollout + update without). The figure is the median over rounds, with its quartiles. On a CPU
it is the time that the process itself used, so that other programs disturb less.
Bars: 1.02 for epo, aem, ea and the entropy bonus, 1.05 for seal. Methods that change what is sampled play a rollout of
their own (--others) and have none.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.learning.learner import Learner
from isentrope.loop.session import use_threads
from isentrope.methods.registry import make_methods
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector

BARS = {"entropy_bonus": 1.02, "epo": 1.02, "ea": 1.02, "aem": 1.02, "seal": 1.05}
OTHERS = ("higher_temperature", "actre", "no_think")
BASELINE = "none"
STEP = 2  # EPO has a history from its second step on


class Variant:
    """A learner of its own on the shared policy; the baseline is the one without methods."""

    def __init__(self, config: RunConfig, name: str, policy: Policy, reference: Policy) -> None:
        self.config = replace(config, methods=() if name == BASELINE else (name,), method={})
        self.methods = make_methods(self.config)
        self.learner = Learner(policy, reference, self.config, self.methods)

    def play(self, collector: Collector, number: int) -> tuple[list[Episode], float]:
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        for method in self.methods:
            plan = method.plan(number, plan)
        begin = clock(collector)
        episodes = collector.play_groups(number, plan)
        return episodes, clock(collector) - begin

    def learn(self, collector: Collector, number: int, episodes: list[Episode]) -> float:
        begin = clock(collector)
        self.learner.learn(number, episodes)
        return clock(collector) - begin


def clock(collector: Collector) -> float:
    if collector.runner.engine.device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--recipe", type=Path, default=Path(__file__).parent.parent / "recipes" / "demo.toml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--others", action="store_true", help="also the methods that change what is sampled")
    arguments = parser.parse_args()
    small = ["rollout.groups=6", "rollout.group_size=8", f"run.device={arguments.device}", "run.threads=1"]
    config = load_config(arguments.recipe, [*small, *arguments.set])
    use_threads(config)
    policy, reference = load_policy(config.policy, config.run), load_policy(config.policy, config.run)
    names = [BASELINE, *BARS, *(OTHERS if arguments.others else ())]
    variants = {name: Variant(config, name, policy, reference) for name in names}
    first = {key: value.clone() for key, value in policy.module.state_dict().items()}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with Collector(config, TorchEngine(policy)) as collector:
        for round_number in range(arguments.rounds + 1):
            random.Random(round_number).shuffle(names)
            number = STEP + round_number
            policy.module.load_state_dict(first)
            shared = variants[BASELINE].play(collector, number)
            for name in names:
                policy.module.load_state_dict(first)
                episodes, playing = variants[name].play(collector, number) if name in OTHERS else shared
                learning = variants[name].learn(collector, number, episodes)
                if round_number:  # the first round warms everything up
                    times[name].append({"rollout": playing, "update": learning, "step": playing + learning})
            print(f"\rround {round_number}/{arguments.rounds}", end="", flush=True)
    print()
    report(times)


def report(times: dict[str, list[dict[str, float]]]) -> None:
    base = times.pop(BASELINE)
    print(f"without methods: rollout {_median(base, 'rollout'):.2f} s, update {_median(base, 'update'):.2f} s")
    missed = False
    for name, steps in times.items():
        ratios = sorted(step["step"] / other["step"] for step, other in zip(steps, base, strict=True))
        updates = [step["update"] / other["update"] for step, other in zip(steps, base, strict=True)]
        ratio, bar = statistics.median(ratios), BARS.get(name)
        verdict = "" if bar is None else f" (bar {bar}: {'met' if ratio <= bar else 'MISSED'})"
        missed |= bar is not None and ratio > bar
        quarter = len(ratios) // 4
        print(
            f"{name:20} step × {ratio:.3f} [{ratios[quarter]:.3f}, {ratios[-quarter - 1]:.3f}], "
            f"update × {statistics.median(updates):.3f}{verdict}"
        )
    if missed:
        raise SystemExit(1)


def _median(steps: list[dict[str, float]], part: str) -> float:
    return statistics.median(step[part] for step in steps)


if __name__ == "__main__":
    main()
