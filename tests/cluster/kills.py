"""Tiny runs whose samplers are killed and stopped at random: each ends with the metrics of a run in one process.

    python -m tests.cluster.kills [RUNS] [SEED]        30 runs unless something else is said; some seconds each

A run is disturbed by one to three signals at random moments: SIGKILL, or SIGSTOP, which is a sampler that hangs. Most
come when the samplers are at work, some while they start.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from isentrope.cluster import engine
from isentrope.core.errors import IsentropeError
from isentrope.loop.train import train
from isentrope.runs.episodes import read_episodes
from isentrope.runs.layout import EPISODES, METRICS
from isentrope.runs.log import Record, read_records
from tests.builders.toy_runs import WARM_MODEL, toy_config

NOT_COMPARED = ("engine/", "cores/")
KEYS = ("samplers_lost", "requests_moved")
Result = tuple[list[Record], list[list[int]]]
SETTINGS = ("run.steps=8", "rollout.groups=4", "eval.games=8")
CLUSTER = ("cluster.kind=processes", "cluster.engines=2", "cluster.seconds=8")
KINDS: tuple[tuple[str, ...], ...] = (
    (),
    ("methods=['actre', 'entropy_bonus']", "method.actre.branching=entropy", "method.actre.switch=3"),
    ("policy.lora_rank=2", "agent.context=window"),
    ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate"),
)
WORKING = 2.0  # seconds that a run takes, about, once its samplers are there


class Disturber(threading.Thread):
    """Sends signals to processes that this one has started, at random times."""

    def __init__(self, chance: random.Random, out: Path) -> None:
        super().__init__(daemon=True)
        self.out, self.done, self.sent = out, threading.Event(), list[str]()
        self.early = chance.random() < 0.2
        self.times = sorted(chance.uniform(0.0, WORKING) for _ in range(chance.randint(1, 3)))
        self.numbers = [chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)) for _ in self.times]
        self.victims = [chance.random() for _ in self.times]

    def run(self) -> None:
        while not self.early and not (self.out / METRICS).exists():  # the first evaluation is there
            if self.done.wait(0.01):
                return
        begin = time.monotonic()
        for at, number, victim in zip(self.times, self.numbers, self.victims, strict=True):
            if self.done.wait(max(0.0, begin + at - time.monotonic())):
                return
            children = sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)
            if children:
                with suppress(ProcessLookupError):
                    os.kill(children[int(victim * len(children))].pid or 0, number)
                    self.sent.append(number.name)


def run_of(out: Path, *changes: str) -> Result:
    """The training records of a run, and the tokens of all its responses."""
    train(toy_config(WARM_MODEL, *changes), out, quiet=True)
    records = read_records(out / METRICS, "train")
    tokens = [
        turn.response_ids.tolist()
        for path in sorted((out / EPISODES).glob("*.parquet"))
        if not path.name.startswith("scores")
        for episode in read_episodes(path)
        for turn in episode.turns
    ]
    return records, tokens


def differences(ours: list[Record], theirs: list[Record], allowed: float) -> list[str]:
    """Metrics that differ by more than a share of their size."""
    found = [] if len(ours) == len(theirs) else [f"{len(ours)} steps and {len(theirs)}"]
    for mine, other in zip(ours, theirs, strict=False):
        for key in sorted(mine.keys() | other.keys()):
            a, b = mine.get(key), other.get(key)
            if key.startswith(NOT_COMPARED) or key in ("time", "kind"):
                continue
            apart = a is None or b is None or abs(float(a) - float(b)) > allowed * max(1.0, abs(float(a)))
            if apart and a != b:
                found.append(f"step {mine['step']}: {key} is {a} and {b}")
    return found


def disturbed(chance: random.Random, place: Path, number: int, calm: dict[int, Result]) -> tuple[str, bool]:
    """One run that is disturbed: what happened in it, and whether it ended as it should."""
    kind, out = chance.randrange(len(KINDS)), place / f"run{number}"
    if kind not in calm:
        calm[kind] = run_of(place / f"calm{kind}", *SETTINGS, *KINDS[kind])
    disturber = Disturber(chance, out)
    disturber.start()
    begin = time.monotonic()
    problems, records = list[str](), list[Record]()
    try:
        records, tokens = run_of(out, *SETTINGS, *CLUSTER, *KINDS[kind])
        problems += differences(calm[kind][0], records, 1e-4)
        problems += [] if tokens == calm[kind][1] else ["other tokens"]
    except IsentropeError as error:
        problems.append(str(error))
    disturber.done.set()
    disturber.join()
    left = len(multiprocessing.active_children())
    problems += [f"{left} processes are left"] if left else []
    lost, moved = (sum(float(one.get(f"engine/{key}") or 0) for one in records) for key in KEYS)
    signals = ", ".join(disturber.sent) or "nothing"
    happened = f"kind {kind}, {signals}: {lost:.0f} samplers lost, {moved:.0f} requests moved"
    said = "; ".join(problems[:5]) or "the same"
    return f"{happened}, {time.monotonic() - begin:.1f} s: {said}", not problems


def main(runs: int = 30, seed: int = 0) -> int:
    chance, failed = random.Random(seed), 0
    engine.START_SECONDS = 120.0  # of one that is stopped while it starts
    with tempfile.TemporaryDirectory() as place:
        calm: dict[int, Result] = {}
        for number in range(runs):
            said, fine = disturbed(chance, Path(place), number, calm)
            failed += not fine
            print(f"run {number}: {said}", flush=True)
    print(f"{runs} runs, {failed} with other metrics or tokens")
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
