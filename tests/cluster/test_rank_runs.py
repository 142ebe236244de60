"""Runs on several ranks: one that is lost, another number of them, and settings that cannot be."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.cluster.engine import ClusterEngine
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, RankLost, TrainError
from isentrope.core.method import Method
from isentrope.core.types import StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.group import ranks_of
from isentrope.learning.learner import Learner
from isentrope.loop import ranks, restart, session
from isentrope.loop.ranks import check_device
from isentrope.loop.train import train
from isentrope.models.policy import Policy
from isentrope.runs.layout import METRICS
from isentrope.runs.log import read_records
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.cluster.inline import Inline
from tests.cluster.kills import differences
from tests.cluster.ranks import Follower, Forked, end_groups, group_of, leading
from tests.cluster.test_ranks import step_of, with_ranks

SMALL = ("run.steps=6", "run.eval_every=0", "run.checkpoint_every=2", "run.keep_last=3", "methods=['seal']")


def inline(config: RunConfig, policy: Policy | None) -> ClusterEngine:
    assert policy is not None
    return ClusterEngine(policy, config, Inline())


@pytest.fixture
def forked() -> Iterator[list[Follower]]:
    """Ranks for runs: samplers are in this process, other ranks are forked from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "RankGroup", group_of)
        made = [Follower(rank) for rank in (1, 2)]
        patch.setattr(ranks, "Processes", lambda *given: Forked(made))  # pyright: ignore
        patch.setattr(session, "open_engine", inline)
        yield made
        for follower in made:
            follower.end()
        end_groups()


def on(size: int, *changes: str) -> RunConfig:
    where = ("cluster.kind=processes", f"cluster.trainers={size}") if size > 1 else ()
    return toy_config(WARM_MODEL, *SMALL, *where, *changes)


@pytest.mark.slow(8)
def test_a_run_goes_on_with_another_number_of_ranks(forked: list[Follower], tmp_path: Path) -> None:
    """Two, then one, then three: SEAL's classifier and AdamW's moments come along."""
    train(on(1), tmp_path / "one", quiet=True)
    wanted = read_records(tmp_path / "one" / METRICS, "train")
    out = tmp_path / "many"
    train(on(2), out, quiet=True)
    assert differences(wanted, read_records(out / METRICS, "train"), 1e-4) == []
    for size in (1, 3):
        train(on(size), out, resume=True, quiet=True, from_step=2)
        assert differences(wanted, read_records(out / METRICS, "train"), 1e-4) == []


@pytest.mark.slow(20)
def test_a_rank_that_is_killed_costs_a_run_nothing_but_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(on(1), tmp_path / "one", quiet=True)
    out, victims = tmp_path / "two", list[int]()

    def kill() -> None:
        while not (out / METRICS).exists() or len(read_records(out / METRICS, "train")) < 3:
            time.sleep(0.01)
        victims.append(min(child.pid or 0 for child in multiprocessing.active_children()))  # it was started first
        os.kill(victims[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with caplog.at_level(logging.WARNING, "isentrope"):
        train(on(2), out, quiet=True)
    wanted, found = (read_records(tmp_path / name / METRICS, "train") for name in ("one", "two"))
    assert [record["step"] for record in found] == list(range(1, 7))
    assert differences(wanted, found, 1e-4) == []
    assert f"rank 1, process {victims[0]} was ended by SIGKILL" in caplog.text
    assert "all ranks are started again, from the checkpoint step-00000" in caplog.text
    assert multiprocessing.active_children() == []
    assert not torch.distributed.is_initialized()


def test_ranks_that_are_lost_again_and_again_end_the_run(tmp_path: Path) -> None:
    starts: list[tuple[bool, int | None]] = []

    def lost(config: RunConfig, out: Path, resume: bool, quiet: bool, from_step: int | None) -> dict[str, float]:
        starts.append((resume, from_step))
        raise RankLost("rank 1 fell")

    with pytest.raises(RankLost, match="rank 1 fell; 3 in a row, without a checkpoint in between"):
        restart.restarting(lost)(on(1), tmp_path, False, True, 4)
    assert starts == [(False, 4), (True, None), (True, None)]


def test_the_work_is_dealt_out_by_cost() -> None:
    chance = np.random.default_rng(0)
    for size in (1, 2, 3, 7):
        cost = chance.random(40) ** 3
        load = np.bincount(ranks_of(cost, size), weights=cost, minlength=size)
        assert load.max() <= cost.sum() / size + cost.max()
    assert ranks_of(np.array([1.0, 5.0, 2.0, 2.0]), 2) == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("cluster.trainers=2",), 'cluster.trainers = 2 with cluster.kind = "local"'),
        (("cluster.kind=processes", "cluster.trainers=0"), "expected an integer from 1 to 64"),
        (
            ("cluster.kind=processes", "cluster.trainers=2", "learn.optimiser=adamw8"),
            "learn.optimiser = adamw8 with cluster.trainers = 2",
        ),
        (("cluster.kind=processes", "cluster.trainers=2", "learn.moments=host"), "learn.moments = host with cluster"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        toy_config(WARM_MODEL, *change)


def test_more_ranks_than_cards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_device(1, torch.device("cuda"))
    check_device(5, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"cluster\.trainers = 2, and this machine has 1 card"):
        check_device(2, torch.device("cuda"))
    for device in ("cuda:1", "mps"):
        with pytest.raises(ConfigError, match=f"run.device = {device} with cluster.trainers = 2"):
            check_device(2, torch.device(device))


class Elsewhere(Method):
    """Fails in every process but the one that it was made in."""

    name = "elsewhere"

    def __init__(self) -> None:
        super().__init__()
        self.process, self.kept = os.getpid(), None

    def begin(self, step: int, tokens: StepTokens) -> dict[str, float]:
        self.kept = (lambda: 0) if step == 2 else None  # which cannot be sent
        return {}

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if os.getpid() != self.process:
            raise ValueError("is not at home")
        return None


def test_an_error_of_another_rank_is_told_and_ends_the_step(forked: list[Follower], tmp_path: Path) -> None:
    step = step_of()
    config = with_ranks(step.config, 2)
    policy, reference, _ = step.parts()
    end_groups()
    with leading([Follower(1)], policy, reference, config, tmp_path) as first:
        learner = Learner(policy, reference, config, [Elsewhere()], first)
        with pytest.raises(TrainError, match="cannot be sent to the other ranks"):
            learner.learn(2, step.episodes)
        with pytest.raises(TrainError, match="rank 1: method elsewhere, hook loss: is not at home"):
            learner.learn(1, step.episodes)
    end_groups()
