"""A run killed with SIGKILL and resumed gives the same metrics file and the same weights as the run never killed."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isentrope.loop.imitate import warm_up
from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, make_model, toy_config
from tests.loop.killer import KINDS

# Every point in a plain run; every kind of run once with half of an update's work done, and wherever it has more than
# that to bring back
KILLS = [
    ("train", "rollout", 2),
    ("train", "rollout", 17),
    ("train", "evaluation", 2),
    ("train", "before_update", 7),
    ("train", "after_update", 4),
    ("train", "episodes", 4),
    ("train", "half_a_line", 8),
    ("train", "after_metrics", 5),
    ("train", "checkpoint_begun", 3),  # the first save is the reference
    ("train", "checkpoint_unnamed", 3),
    ("train", "checkpoint_named", 2),
    ("train", "best", 1),
    ("train", "half_removed", 1),
    ("sft", "after_update", 5),
    ("rft", "after_update", 5),
    ("methods", "rollout", 9),
    ("methods", "after_update", 7),
    ("ppo", "checkpoint_unnamed", 3),
    ("lora", "checkpoint_begun", 2),
    ("lora_on", "after_update", 7),
    ("bfloat16", "after_update", 7),
    ("drafts", "after_update", 7),
    ("drafts", "evaluation", 2),  # which leaves nothing behind in what is remembered
    ("drafts_ahead", "after_update", 5),
    ("dapo", "rollout", 14),
    ("curriculum", "rollout", 14),
    ("dataset", "after_update", 5),
    ("curriculum", "after_update", 5),
    ("ahead", "rollout", 9),
    ("ahead", "after_update", 5),  # the episodes of the next step are being played
    ("alarms", "after_update", 11),  # right after the alarm that switches a method on
]
MORE_KILLS = [
    ("sft", "checkpoint_unnamed", 2),
    ("methods", "after_update", 4),
    ("methods", "checkpoint_named", 2),
    ("ppo", "after_update", 5),
    ("lora", "after_update", 5),
    ("bfloat16", "checkpoint_unnamed", 3),
    ("drafts", "rollout", 14),
    ("drafts", "checkpoint_named", 2),
    ("dapo", "episodes", 4),
    ("ahead", "after_update", 7),
    ("ahead", "checkpoint_unnamed", 3),
    ("alarms", "after_update", 14),
]


class Killer:
    """The process that forks the runs."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.loop.killer"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def play(self, model: Path, out: Path, kind: str, point: str, count: int) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(model), str(out), kind, point, count]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def outcome(out: Path) -> dict[str, str]:
    """What must be equal: the metrics, the events, the stored episodes, the last checkpoint, the choice of the best."""
    checkpoints = out / "checkpoints"
    last = sorted(checkpoints.glob("step-*"))[-1]
    paths = [
        out / "metrics.jsonl",
        out / "events.jsonl",
        checkpoints / "best.json",
        *sorted(last.rglob("*")),
        *sorted(out.glob("episodes/*")),
    ]
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()
    }


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.process.kill()
    killer.process.wait()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each kind of run starts from: random weights, or a model that knows the form and solves some games."""
    place = tmp_path_factory.mktemp("model")
    fresh = make_model(place / "fresh")
    adapters = toy_config(WARM_MODEL, "policy.lora_rank=2", "run.eval_every=0", "sft.epochs=1")
    warm_up(adapters, place / "adapters", quiet=True)
    others = {"train": fresh, "sft": fresh, "alarms": fresh, "lora_on": place / "adapters"}
    return {kind: others.get(kind, WARM_MODEL) for kind in KINDS}


@pytest.fixture(scope="module")
def whole(
    killer: Killer, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    outcomes: dict[str, dict[str, str]] = {}
    for kind in KINDS:
        out = tmp_path_factory.mktemp(kind) / "whole"
        assert killer.play(models[kind], out, kind, "none", 0) == 0
        outcomes[kind] = outcome(out)
        assert len((out / "metrics.jsonl").read_text().splitlines()) >= 6
    return outcomes


@pytest.mark.slow(1)
@pytest.mark.parametrize(("kind", "point", "count"), [*KILLS, *MORE_KILLS] if EXPLORE else KILLS)
def test_killed_and_resumed_equals_never_killed(
    kind: str,
    point: str,
    count: int,
    killer: Killer,
    models: dict[str, Path],
    whole: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    assert killer.play(models[kind], out, kind, point, count) == -signal.SIGKILL, (
        "the run ended before it came to the point"
    )
    assert killer.play(models[kind], out, kind, "none", 0) == 0
    assert outcome(out) == whole[kind]
