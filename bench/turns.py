"""What a turn costs on the host: prompts, tokens, random numbers, parsing, records, tasks, files. No model at all.

    python bench/turns.py [--conversations 128] [--turns 20] [--workers 2] [--tokenizer FOLDER] [--against CHECKOUT]

An engine that answers from a list, about 40 tokens each, plays household games with the tokens of the pocket model or
of a Hugging Face tokenizer (--tokenizer: a folder that has one with a chat template). Times are those of this process
alone, so that worker processes and other programs count less. At 100,000 tokens a second a response of 40 tokens takes
0.4 ms of the engine: the bar for the host is 0.3 ms. Games are in groups of eight, as in training, so much of what is
told is told again and its tokens are remembered; a text that is new takes a tokenizer 0.03 to 0.1 ms more. `--against`
runs the same with an older checkout of Isentrope and prints the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.agent.context import Context
from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Request, Sampled
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import RolloutPlan
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout import episode as episode_module
from isentrope.rollout.collector import Runner
from isentrope.rollout.episode import Seat
from isentrope.runs.episodes import write_episodes
from isentrope.worlds.pool.open import open_tasks
from isentrope.worlds.registry import make_world

BAR = 0.3  # ms a turn
PLACES = ("desk 1", "shelf 1", "shelf 2", "drawer 1", "drawer 2", "cabinet 1", "cabinet 3", "fridge 1", "sinkbasin 1")
THOUGHT = "I have not found what I am looking for yet , so I go on to the next place that may have it and look there"
SPENT: dict[str, float] = {}
INSIDE: set[str] = set()


class Canned:
    """Answers at once, from a list; the random number of the request says which."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        lines = [f"<think>{THOUGHT}</think><action>go to {place}</action>" for place in PLACES]
        lines += [f"<think>{THOUGHT}</think><action>{action}</action>" for action in ("look", "inventory", "dance")]
        said = [np.array(tokenizer.answer(line), dtype=np.int32) for line in lines]
        self.said = [(ids, np.zeros(len(ids), np.float32), np.ones(len(ids), np.float32)) for ids in said]

    def open(self, slots: Sequence[int]) -> None: ...
    def keep(self, slots: Sequence[int]) -> None: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...

    def notes(self) -> dict[str, float]:
        return {}

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        with counted("engine"):
            return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Sampled:
        ids, zeros, ones = self.said[int(request.uniforms[0] * len(self.said))]
        return Sampled(ids, zeros, zeros, ones, "tag")


class Streaming(Canned):
    """The same, for conversations at their own pace: a quarter of those that wait are answered at a time."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        super().__init__(tokenizer)
        self._queue: dict[int, Request] = {}

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._queue[request.slot] = request

    def collect(self) -> dict[int, Sampled]:
        with counted("engine"):
            return {slot: self._one(self._queue.pop(slot)) for slot in list(self._queue)[: 1 + len(self._queue) // 4]}


@contextmanager
def counted(name: str) -> Iterator[None]:
    if name in INSIDE:  # counted already
        yield
        return
    INSIDE.add(name)
    begin = time.process_time()
    try:
        yield
    finally:
        INSIDE.remove(name)
        SPENT[name] = SPENT.get(name, 0.0) + time.process_time() - begin


def watch(owner: Any, method: str, name: str) -> None:
    """Count the time of a method."""
    inner: Callable[..., Any] = getattr(owner, method)

    def timed(*arguments: Any, **named: Any) -> Any:
        with counted(name):
            return inner(*arguments, **named)

    setattr(owner, method, timed)


def watch_parts() -> None:
    watch(Context, "prompt", "prompt and tokens")
    module: Any = episode_module
    watch(module, "parse_response", "parsing")
    watch(module.Streams, "uniforms", "random numbers")
    watch(module.Rules, "record", "records")


def measure(tokenizer: ChatTokenizer, engine: Canned, arguments: argparse.Namespace, workers: int) -> dict[str, float]:
    world = make_world("household", {})
    agent = AgentSettings(max_response=512, max_context=8192)
    tasks = open_tasks("household", {}, arguments.conversations, workers, 30.0)
    for method in ("start", "step", "send_starts", "send", "receive"):
        if hasattr(tasks, method):
            watch(tasks, method, "tasks")
    task = TaskSettings(max_turns=arguments.turns)
    runner = Runner(engine, tasks, agent, task, arguments.conversations)
    seats = [Seat(world.instance("train", i), i // 8, i % 8) for i in range(arguments.conversations)]
    runner.play(seats[:8], RolloutPlan(), 0, "warm")
    SPENT.clear()
    begin, cpu = time.perf_counter(), time.process_time()
    episodes = runner.play(seats, RolloutPlan(), 0, "bench")
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    tasks.close()
    count = sum(len(episode.turns) for episode in episodes)
    with tempfile.TemporaryDirectory() as folder, counted("store"):
        write_episodes(Path(folder) / "episodes.parquet", episodes)
    stored = SPENT.pop("store")
    parts = {name: 1e3 * seconds / count for name, seconds in SPENT.items()}
    host = 1e3 * cpu / count - parts.pop("engine")
    rest = host - sum(parts.values())
    return {"turns": float(count), "host": host, **parts, "other": rest, "store": 1e3 * stored / count,
            "wall": 1e3 * wall / count}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=128)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tokenizer", type=Path, help="folder of a Hugging Face tokenizer")
    parser.add_argument("--against", type=Path, help="an older checkout of Isentrope")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    found = measured(arguments)
    if arguments.json:
        print(json.dumps(found))
        return
    before = older(arguments) if arguments.against else {}
    for name, row in found.items():
        show(name, row, before.get(name))
    if out := os.environ.get("OUT"):
        (Path(out) / "turns.json").write_text(json.dumps({"now": found, "before": before}, indent=1))


def measured(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    watch_parts()
    tokenizers: dict[str, ChatTokenizer] = {"pocket tokens": PocketTokens.load(POCKET)}
    if arguments.tokenizer:
        from isentrope.models.chat.tokenizer import ChatTokens

        tokenizers[str(arguments.tokenizer.name)] = ChatTokens.load(arguments.tokenizer)
    found: dict[str, dict[str, float]] = {}
    for name, tokenizer in tokenizers.items():
        for workers in sorted({0, arguments.workers}):
            where = f"{workers} workers" if workers else "tasks here"
            for kind, engine in {"together": Canned, "at own pace": Streaming}.items():
                found[f"{name}, {where}, {kind}"] = measure(tokenizer, engine(tokenizer), arguments, workers)
    return found


def older(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    environment = {**os.environ, "PYTHONPATH": str(arguments.against)}
    passed = [f"--{name}={getattr(arguments, name)}" for name in ("conversations", "turns", "workers")]
    passed += [f"--tokenizer={arguments.tokenizer}"] if arguments.tokenizer else []
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--json", *passed], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def show(name: str, row: dict[str, float], before: dict[str, float] | None) -> None:
    verdict = "ok" if row["host"] <= BAR else "OVER"
    against = f"; before {before['host']:.3f} ms, {before['host'] / row['host']:.1f} times" if before else ""
    print(f"{name}: {row['host']:.3f} ms a turn (bar {BAR}: {verdict}){against}; {row['turns']:.0f} turns")
    for part, value in row.items():
        if part not in ("turns", "host"):
            old = f"   (before {before[part]:.3f})" if before and part in before else ""
            print(f"    {part:20} {value:7.3f} ms{old}")


if __name__ == "__main__":
    main()
