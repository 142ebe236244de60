"""A run that SIGTERM, SIGHUP or SIGUSR1 ends leaves what it needs to compute the same numbers when it goes on."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, make_model

TERM, HUP, USR1 = signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
# kind, point, count, signal, seconds: there is time to finish the step (20), or none (0); and the checkpoint left
STOPS = [
    ("train", "loading", 1, TERM, 20, 0),
    ("train", "in_evaluation", 1, HUP, 20, 0),  # before the first step
    ("train", "rollout", 6, USR1, 20, 0),  # the first step: nobody knows yet how long an update takes
    ("train", "rollout", 10, TERM, 20, 2),
    ("train", "rollout", 10, TERM, 0, 1),  # given up: the step before is saved
    ("train", "rollout", 22, TERM, 0, 3),
    ("train", "episodes", 4, HUP, 0, 2),
    ("train", "credit", 2, USR1, 20, 2),
    ("train", "before_update", 5, TERM, 20, 3),
    ("train", "after_update", 4, TERM, 20, 2),
    ("train", "in_evaluation", 2, TERM, 20, 2),
    ("train", "in_evaluation", 2, TERM, 0, 2),  # the evaluation of step 2 is still to come
    ("train", "in_evaluation", 3, USR1, 0, 4),  # as is that of the last step
    ("train", "checkpoint_begun", 2, TERM, 0, 2),
    ("train", "checkpoint_unnamed", 1, HUP, 20, 2),
    ("train", "best", 1, USR1, 0, 2),
    ("methods", "rollout", 9, TERM, 20, 2),
    ("methods", "rollout", 14, TERM, 0, 2),
    ("ppo", "credit", 3, TERM, 20, 3),
    ("dapo", "rollout", 18, USR1, 0, 2),
    ("ahead", "credit", 2, TERM, 20, 2),
    ("ahead", "credit", 3, TERM, 20, 3),
    ("alarms", "after_update", 11, TERM, 20, 6),
    ("sft", "sft_update", 3, TERM, 20, 3),
    ("sft", "sft_evaluation", 2, HUP, 0, 4),
    ("rft", "own_games", 1, TERM, 20, 0),
]
MORE = [(kind, point, count, TERM, 20, None) for kind in ("lora", "bfloat16", "dapo") for point, count in (
    ("rollout", 12), ("credit", 3), ("in_evaluation", 2))]  # fmt: skip


class Stopper:
    """The process that forks the runs."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.loop.stopper"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def play(self, *order: object) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def outcome(out: Path) -> dict[str, str]:
    """What must be equal; sums of the settings, which name the seconds, aside."""
    last = sorted((out / "checkpoints").glob("step-*"))[-1]
    paths = [out / "metrics.jsonl", out / "events.jsonl", out / "checkpoints" / "best.json"]
    paths += [*sorted(last.rglob("*")), *sorted(out.glob("episodes/*"))]
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file() and path.name not in ("settings.toml", "sha256.json")
    }


@pytest.fixture(scope="module")
def stopper() -> Iterator[Stopper]:
    stopper = Stopper()
    yield stopper
    stopper.process.kill()
    stopper.process.wait()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def whole(stopper: Stopper, fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    outcomes: dict[str, dict[str, str]] = {}
    for kind in {stop[0] for stop in [*STOPS, *(MORE if EXPLORE else [])]}:
        out = tmp_path_factory.mktemp(kind) / "whole"
        assert stopper.play(str(model_of(kind, fresh)), str(out), kind, "none", 0, 0, 20) == 0
        outcomes[kind] = outcome(out)
    return outcomes


def model_of(kind: str, fresh: Path) -> Path:
    return fresh if kind in ("train", "sft", "alarms") else WARM_MODEL


@pytest.mark.slow(1)
@pytest.mark.parametrize(("kind", "point", "count", "number", "grace", "left"), [*STOPS, *MORE] if EXPLORE else STOPS)
def test_asked_to_end_and_resumed_equals_never_asked(
    kind: str,
    point: str,
    count: int,
    number: int,
    grace: float,
    left: int | None,
    stopper: Stopper,
    fresh: Path,
    whole: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    out, model = tmp_path / "run", str(model_of(kind, fresh))
    assert stopper.play(model, str(out), kind, point, count, number, grace) == 143
    if left is not None:
        assert max([0, *(int(path.name[5:]) for path in out.glob("checkpoints/step-*"))]) == left
    assert not list(out.glob("checkpoints/.part-*"))
    assert stopper.play(model, str(out), kind, "none", 0, 0, grace) == 0
    assert outcome(out) == whole[kind]
