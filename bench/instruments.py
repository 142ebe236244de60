"""What the instruments cost, as a share of a training step, in one run.

    python bench/instruments.py [--rounds 10] [--device cuda] [--recipe recipes/demo.toml] [--set KEY=VALUE ...]

A step is the rollout and the update, by the recipe's own settings. In every round a rollout is played and learnt from;
the instruments that run at every step look at it, and each probe is run. All shares are of the same round's step; the
figure is the median over rounds, with its quartiles. On a CPU it is the time that the process itself used, so that
other programs disturb less. Bar: 0.03 of a step for everything that runs at every step, files included. Probes have no
bar; their cost is given for the step that they run in and spread over instruments.probe_every steps.

With --full the interference of the output matrix is compared with that of all weights, by autograd, episode by episode:
how well they agree, and what either costs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from isentrope.config.load import load_config
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.learning.learner import Learner
from isentrope.loop.measure import Monitor
from isentrope.loop.session import RunSession, open_run
from isentrope.metrics.episodes import rollout_metrics
from isentrope.metrics.probes.interference import full_kernel, kernel
from isentrope.metrics.probes.probes import read_episodes, similarity_metrics, undisturbed
from isentrope.metrics.probes.think import delta_h
from isentrope.models.load import load_policy
from isentrope.rollout.collector import Collector, Rollout
from isentrope.rollout.dynamic_sampling import Groups
from isentrope.runs.episodes import write_scores

T = TypeVar("T")
BAR = 0.03
STEP = ("rollout", "update")
EVERY_STEP = ("metrics of the episodes", "observer, scores and events", "metrics.jsonl and TensorBoard")
PARTS = ("  of which: the observer", "  of which: writing the scores")
PROBES = ("all probes", "  thinking (ΔH)", "  hidden states", "  similarity and accuracy", "  interference")


class Bench:
    """One run's parts, and a clock that knows how long each took in each round."""

    def __init__(self, run: RunSession) -> None:
        self.run, self.config, self.policy = run, run.config, run.policy
        reference = load_policy(self.config.policy, self.config.run)
        self.learner, self.monitor = Learner(self.policy, reference, self.config), Monitor(run)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def time(self, name: str, work: Callable[[], T]) -> T:
        begin = self._clock()
        result = work()
        self.seconds[name].append(self._clock() - begin)
        return result

    def _clock(self) -> float:
        if self.policy.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def round(self, collector: Collector, step: int) -> list[Episode]:
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        episodes = self.time("rollout", lambda: collector.play_groups(step, plan))
        self.probe(episodes)
        learnt = self.time("update", lambda: self.learner.learn(step, episodes))
        metrics, observe, write = EVERY_STEP
        seen, scores = self.time(metrics, lambda: rollout_metrics(episodes)) | learnt.metrics, learnt.scores
        self.time(PARTS[0], lambda: self.monitor.observer.of_episodes(episodes, scores))
        self.time(PARTS[1], lambda: write_scores(self.run.folder.path / "scores.parquet", scores))
        rollout = Rollout(Groups(episodes, [], {}), {}, {})
        seen |= self.time(observe, lambda: self.monitor.measure(step, rollout, scores, seen)).metrics
        self.time(write, lambda: self.run.log.write(step, seen))
        return episodes

    def probe(self, episodes: list[Episode]) -> None:
        advantages = np.concatenate([np.full(_tokens(e), e.ret, dtype=np.float32) for e in episodes])
        probes, micro = self.monitor.probes, self.config.learn.micro_tokens
        self.time("all probes", lambda: probes.run(self.policy, episodes, advantages))
        with undisturbed(self.policy):
            self.time("  thinking (ΔH)", lambda: delta_h(self.policy, probes.states, micro))
            chosen = read_groups(episodes, self.config.instruments.probe_groups)
            read = self.time("  hidden states", lambda: [read_episodes(self.policy, g, micro) for g in chosen])
            weight = self.policy.model.head_weight()
            self.time("  interference", lambda: [kernel(states, weight) for _, states in read])
        means, members = np.concatenate([mean for mean, _ in read]), [e for group in chosen for e in group]
        solved, games = np.array([e.success for e in members]), [e.index for e in members]
        self.time("  similarity and accuracy", lambda: similarity_metrics(means, solved, games))


def _tokens(episode: Episode) -> int:
    return sum(len(turn.response_ids) for turn in episode.turns)


def read_groups(episodes: list[Episode], count: int) -> list[list[Episode]]:
    numbers = sorted({episode.group for episode in episodes})[: count or None]
    return [[e for e in episodes if e.group == number] for number in numbers]


def report(bench: Bench) -> bool:
    """Prints the shares; says whether the bar is met."""
    seconds = {name: values[1:] for name, values in bench.seconds.items()}  # the first round warms everything up
    step = [sum(parts) for parts in zip(*(seconds[name] for name in STEP), strict=True)]
    every = bench.config.instruments.probe_every

    def share(name: str, values: list[float]) -> float:
        ratios = sorted(value / whole for value, whole in zip(values, step, strict=True))
        quarter, middle = len(ratios) // 4, statistics.median(ratios)
        print(f"{name:34} {middle:8.4f}  [{ratios[quarter]:.4f}, {ratios[-quarter - 1]:.4f}]")
        return middle

    medians = ", ".join(f"{name} {statistics.median(seconds[name]):.2f} s" for name in STEP)
    print(f"\na step: {medians}\nshares of a step                      median  [quartiles]")
    for name in (*EVERY_STEP, *PARTS):
        share(name, seconds[name])
    total = share("every step", [sum(parts) for parts in zip(*(seconds[name] for name in EVERY_STEP), strict=True)])
    print(f"  bar {BAR}: {'met' if total <= BAR else 'MISSED'}")
    for name in PROBES:
        share(name, seconds[name])
    share(f"all probes, every {every} steps", [value / max(every, 1) for value in seconds["all probes"]])
    return total <= BAR


def compare(bench: Bench, episodes: list[Episode]) -> None:
    """c_j by the output matrix alone against c_j by all weights."""
    micro, head, full = bench.config.learn.micro_tokens, [], []
    for group in read_groups(episodes, bench.config.instruments.probe_groups):
        full.append(bench.time("full", lambda g=group: full_kernel(bench.policy, g, micro)).mean(0))
        with undisturbed(bench.policy):
            _, states = read_episodes(bench.policy, group, micro)
            head.append(bench.time("head", lambda s=states: kernel(s, bench.policy.model.head_weight())).mean(0))
    a, b = np.concatenate(head), np.concatenate(full)
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    print(f"\nc_j of the output matrix against all weights, {len(a)} episodes:")
    print(f"correlation {np.corrcoef(a, b)[0, 1]:.3f}, of ranks {np.corrcoef(*ranks)[0, 1]:.3f}", end="")
    print(
        f", time of all weights over the output matrix × {sum(bench.seconds['full']) / sum(bench.seconds['head']):.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--recipe", type=Path, default=Path(__file__).parent.parent / "recipes" / "demo.toml")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--full", action="store_true", help="compare with the gradient of all weights")
    arguments = parser.parse_args()
    config = load_config(arguments.recipe, [f"run.device={arguments.device}", "run.threads=1", *arguments.set])
    with tempfile.TemporaryDirectory() as folder, open_run(config, Path(folder) / "run", quiet=True) as run:
        bench = Bench(run)
        with Collector(config, TorchEngine(bench.policy)) as collector:
            episodes: list[Episode] = []
            for number in range(arguments.rounds + 1):
                episodes = bench.round(collector, number + 1)
                print(f"\rround {number}/{arguments.rounds}", end="", flush=True)
        met = report(bench)
        if arguments.full:
            compare(bench, episodes)
        run.log.close()
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
