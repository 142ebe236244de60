"""Runs the toy training in a child process that kills itself with SIGKILL the n-th time it comes to a named point.

    python -m tests.loop.killer     reads lines of JSON, [MODEL, OUT, KIND, POINT, COUNT]; answers with the exit code

POINT "none" runs to the end, resuming what is there. Children are forked from one process that has made a run already:
what a first run loads and prepares takes as long as the run itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.tensorboard

try:  # once here instead of in every child: it takes seconds
    import peft  # noqa: F401
except ImportError:
    pass

from isentrope.learning.optimiser import Optimiser
from isentrope.loop import imitate, train
from isentrope.metrics import log
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Runner
from isentrope.runs import checkpoints, episodes
from isentrope.runs.log import _line
from tests.builders.toy_runs import WARM_MODEL, toy_config


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: Any, name: str, count: int, when: str = "before") -> None:
    """Die before or after the count-th call of owner.name."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count and when == "before":
            die()
        result = original(*args, **kwargs)
        if calls == count:
            die()
        return result

    setattr(owner, name, wrapped)


def half_a_line(count: int) -> None:
    original = log.append_record
    calls = 0

    def wrapped(path: Path, record: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            line = _line(record).encode()
            with path.open("ab") as file:
                file.write(line[: len(line) // 2])
                file.flush()
            die()
        original(path, record)

    log.append_record = wrapped  # type: ignore[assignment]


def half_removed(count: int) -> None:
    """Die while an old checkpoint is being deleted, with one of its files already gone."""
    original = checkpoints.shutil.rmtree
    calls = 0

    def wrapped(path: Path, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            (Path(path) / "state.json").unlink()
            die()
        original(path, *args, **kwargs)

    checkpoints.shutil.rmtree = wrapped  # type: ignore[assignment]


POINTS: dict[str, Callable[[int], None]] = {
    "rollout": lambda n: at(Runner, "_turn", n),
    "evaluation": lambda n: at(train, "evaluate", n, "after"),
    "before_update": lambda n: at(Optimiser, "step", n),
    "after_update": lambda n: at(Optimiser, "step", n, "after"),
    "episodes": lambda n: at(episodes, "pack_episodes", n),
    "half_a_line": half_a_line,
    "after_metrics": lambda n: at(log.MetricsLog, "write", n, "after"),
    "checkpoint_begun": lambda n: at(Policy, "save", n, "after"),
    "checkpoint_unnamed": lambda n: at(checkpoints, "flush_folder", n, "after"),
    "checkpoint_named": lambda n: at(checkpoints, "read_record", n),
    "best": lambda n: at(checkpoints, "write_atomically", n),
    "half_removed": half_removed,
    "none": lambda n: None,
}


# Four steps, with a checkpoint after the second and the fourth
SHORT = ("run.steps=4", "run.eval_every=2", "run.checkpoint_every=2", "run.keep_last=1")
KINDS: dict[str, tuple[str, ...]] = {
    "train": (),
    "sft": (),
    "rft": ("sft.source=own", "sft.games=12", "sft.epochs=6"),
    "methods": (
        "methods=['actre', 'epo', 'seal', 'aem', 'ea', 'entropy_bonus', 'higher_temperature']",
        "method.actre.branching=entropy",
        "method.actre.switch=3",
        "agent.context=window",
    ),
    "ppo": ("learn.algorithm=ppo", "critic.warmup=1", "critic.lr=1e-2"),
    "lora": ("policy.lora_rank=2", "learn.gradient_checkpointing=true", "learn.kl=0.1"),
    "lora_on": ("policy.lora_rank=2", "learn.algorithm=ppo", "critic.lr=1e-2", "learn.kl=0.1"),
    "bfloat16": ("run.weights=bfloat16", "learn.algorithm=ppo", "critic.lr=1e-2"),
    "drafts": ("engine.drafts=4",),
    "drafts_ahead": (
        "engine.drafts=4",
        "rollout.ahead=1",
        "learn.old_logprobs=recompute",
        "learn.mismatch=truncate",
    ),
    "curriculum": ("task.sampler=pass_rate", "learn.resample=1"),
    "dataset": (
        "task.world=dataset",
        "task.options.file=tests/worlds/dataset/moves.jsonl",
        "task.options.rewards=['exact', 'tests.worlds.dataset.rewards:short']",
        "task.where=local",
        "task.max_turns=2",
        "task.options.tries=2",
        "task.sampler=pass_rate",
        "eval.splits=['test']",
    ),
    "dapo": ("learn.algorithm=dapo", "learn.resample=2"),
    "ahead": (
        "rollout.ahead=1",
        "learn.algorithm=dapo",
        "learn.resample=1",
        "learn.old_logprobs=recompute",
        "learn.mismatch=truncate",
        "methods=['actre', 'entropy_bonus', 'higher_temperature']",
        "method.actre.branching=entropy",
        "method.actre.switch=3",
    ),
    "alarms": (
        "run.steps=8",
        "instruments.probe_every=2",
        "instruments.alarms=['no_signal']",
        "instruments.on_alarm=switch:epo",
    ),
}


def run(model: str, out: str, kind: str, point: str, count: int) -> None:
    POINTS[point](count)
    start = imitate.warm_up if kind in ("sft", "rft") else train.train
    config = toy_config(Path(model), *SHORT, *KINDS[kind])
    start(config, Path(out), resume=(Path(out) / "config.toml").exists(), quiet=True)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        train.train(toy_config(WARM_MODEL, "run.steps=1"), Path(place) / "first", quiet=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(*json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
