"""As killer.py, but the child is asked to end: it sends itself a signal when it comes to a point, and goes on.

python -m tests.loop.stopper     reads [MODEL, OUT, KIND, POINT, COUNT, SIGNAL, GRACE]; answers with the exit code
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.utils.tensorboard  # pyright: ignore[reportUnusedImport]

from isentrope.core.signals import ASKED_TO_END, Interrupted
from isentrope.learning.learner import Learner
from isentrope.loop import imitate, session, train
from isentrope.rollout.collector import Collector
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.loop import killer

PLACES: dict[str, tuple[Any, str, str]] = {
    "loading": (session, "_policy", "before"),
    "in_evaluation": (Collector, "evaluate", "before"),
    "credit": (Learner, "credit", "before"),
    "own_games": (imitate, "_own_games", "before"),
    "sft_evaluation": (imitate, "evaluate", "before"),
    "sft_update": (imitate, "imitate", "after"),
}


def run(model: str, out: str, kind: str, point: str, count: int, number: int, grace: float, *more: str) -> None:
    killer.die = lambda: os.kill(os.getpid(), number)
    if point in PLACES:
        owner, name, when = PLACES[point]
        killer.at(owner, name, count, when)
    else:
        killer.POINTS[point](count)
    start: Any = imitate.warm_up if kind in ("sft", "rft") else train.train
    config = toy_config(Path(model), *killer.SHORT, *killer.KINDS[kind], f"run.grace={grace}", *more)
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
            except Interrupted:
                os._exit(ASKED_TO_END)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
