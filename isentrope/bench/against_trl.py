"""Measures our trainer and TRL's GRPOTrainer in turn, step by step in one process."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from isentrope.bench.results import Row, finish
from isentrope.bench.trl_peer import TrlPeer, missing
from isentrope.bench.work import Ours, Spent, Work, typical
from isentrope.config.schema import RunConfig

TRL = "TRL GRPOTrainer"
CLOSE = 0.05  # how far the token counts of the two sides may be apart


@dataclass(frozen=True)
class Compared:
    ours: list[Spent]
    theirs: list[Spent]  # scaled to the same number of episodes, if they played fewer
    scale: float = 1.0
    in_turn: bool = True  # each step of one side beside one of the other

    @property
    def ratio(self) -> float:
        """TRL's time for a step over ours: the median over pairs that ran one after the other; without them the ratio
        of the medians."""
        if not self.in_turn:
            ours, theirs = (statistics.median(spent.step for spent in side) for side in (self.ours, self.theirs))
            return theirs / ours
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(theirs.step / ours.step for ours, theirs in pairs)

    @property
    def apart(self) -> float:
        """The larger of the two differences in tokens, as a share."""
        ours, theirs = typical(self.ours), typical(self.theirs)
        return max(abs(theirs.sampled / ours.sampled - 1), abs(theirs.whole / ours.whole - 1))


def compare(
    work: Work, config: RunConfig, steps: int, micro: int, *, threads: int = 0, warm_turns: int = 2, trl_groups: int = 0
) -> Compared:
    """`steps` steps of each, in turn, after a first one of each that is not counted."""
    ours, found = Ours(work, config), list[Spent]()
    ours.step(0)
    smaller = replace(work, groups=trl_groups or work.groups)
    peer = TrlPeer(smaller, config, min(micro, smaller.episodes), threads)

    def between(step: int) -> None:
        if step:
            found.append(ours.step(step))
            print(f"step {step}/{steps}: ours {found[-1].step:.2f} s", file=sys.stderr, flush=True)

    theirs = peer.run(steps, min(warm_turns, work.turns), between)
    ours.close()
    scale = work.groups / smaller.groups
    times = [(s.rollout * scale, s.update * scale, round(s.sampled * scale), round(s.whole * scale)) for s in theirs]
    return Compared(found, [Spent(*scaled) for scaled in times], scale)


def rows_of(compared: Compared, name: str, bar: float | None, work: Work, peer: str = TRL) -> list[Row]:
    ours, theirs = typical(compared.ours), typical(compared.theirs)
    size = f"{work.groups} × {work.group_size} episodes, {work.turns} turns"
    size += f", {work.response} tokens each" if work.driven else f", at most {work.response} tokens each"
    same = (
        f"sampled tokens {ours.sampled:,} and {theirs.sampled:,}, whole conversations {ours.whole:,} and "
        f"{theirs.whole:,} ({'forced lengths' if work.driven else 'as the model ends them'})"
    )
    if compared.scale != 1:
        size += f"; TRL played 1/{compared.scale:g} of the groups, its times are scaled up"
    if compared.apart > CLOSE:
        same = f"NOT THE SAME WORK: {same}"
    return [
        Row(f"{name}: step", ours.step, "s", compared.ratio, peer, bar, size),
        Row(f"{name}: rollout", ours.rollout, "s", theirs.rollout / ours.rollout, peer, note=same),
        Row(f"{name}: update", ours.update, "s", theirs.update / ours.update, peer),
        Row(f"{name}: sampled", ours.sampled / ours.rollout, "tokens/s"),
        Row(f"{name}: TRL's step", theirs.step, "s", note=f"rollout {theirs.rollout:.3g}, update {theirs.update:.3g}"),
    ]


def add_sizes(parser: argparse.ArgumentParser, work: Work, steps: int, micro: int) -> None:
    """The options that both scripts have, with their defaults."""
    parser.add_argument("--model", default=work.model, help="pocket, smollm2, small or tiny (shapes), or a folder")
    parser.add_argument("--device", default=work.device)
    for name in ("groups", "group_size", "turns", "response", "context"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(work, name))
    parser.add_argument("--episodes", type=int, default=0, help="instead of --groups: episodes in all")
    parser.add_argument("--rooms", default=work.rooms, help="small, medium or full")
    parser.add_argument("--prompt", default=work.prompt, help="wording: full or brief")
    parser.add_argument("--free", action="store_true", help="the model ends its responses and chooses actions itself")
    parser.add_argument("--steps", type=int, default=steps, help="measured steps of each side")
    parser.add_argument("--micro", type=int, default=micro, help="TRL: conversations a backward pass")
    parser.add_argument("--threads", type=int, default=0, help="torch threads of both on a CPU; 0: all cores")
    parser.add_argument("--trl-groups", type=int, default=0, help="groups that TRL plays, its times scaled up; 0: all")
    parser.add_argument("--warm-turns", type=int, default=2, help="turns of TRL's first step, which is not counted")
    parser.add_argument(
        "--own-time", action="store_true", help="count the process's own time; fair with one thread on a busy machine"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="our settings")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")


def work_of(given: argparse.Namespace) -> Work:
    same = ("model", "device", "group_size", "turns", "response", "context", "rooms", "prompt", "own_time")
    groups = given.episodes // given.group_size if given.episodes else given.groups
    return Work(groups=groups, driven=not given.free, **{name: getattr(given, name) for name in same})


def measure(name: str, work: Work, given: argparse.Namespace, bar: float | None) -> None:
    """Compare, print, write; leaves with an error if the bar is missed or TRL is not there."""
    if reason := missing():
        raise SystemExit(f"TRL cannot be measured here: {reason}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder:
        settled = work.with_model_in(Path(folder))
        config = settled.config([f"run.threads={given.threads}", *given.set])
        sizes = {"threads": given.threads, "warm_turns": given.warm_turns, "trl_groups": given.trl_groups}
        compared = compare(settled, config, given.steps, given.micro, **sizes)
    result = finish(name, rows_of(compared, work.model, bar, work), given.json)
    if not result.met or compared.apart > CLOSE:
        raise SystemExit(1)
