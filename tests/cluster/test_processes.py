"""Samplers as real processes: the same tokens, whatever is done to them, and none that is left."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.cluster import engine as engine_module
from isentrope.cluster.engine import ClusterEngine
from isentrope.core.engine import Request, Sampled
from isentrope.engines.torch import TorchEngine
from isentrope.loop.session import open_engine
from isentrope.models.policy import Policy
from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.cluster import kills
from tests.cluster.test_engine import change, check_same, never, play
from tests.models.helpers import small_policy

PATIENCE = 60.0  # seconds within which a process is gone that has to go


def processes(count: int, *changes: str) -> ClusterEngine:
    config = toy_config(WARM_MODEL, "cluster.kind=processes", f"cluster.engines={count}", *changes)
    engine = open_engine(config, small_policy())
    assert isinstance(engine, ClusterEngine)
    return engine


def pids() -> list[int]:
    return sorted(child.pid or 0 for child in multiprocessing.active_children())


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


@pytest.fixture
def no_other_children() -> Iterator[None]:
    """Other tests may have left workers of tasks to the garbage collector."""
    before = set(pids())
    yield
    assert wait_until(lambda: set(pids()) <= before)


@pytest.mark.slow(12)
@pytest.mark.usefixtures("no_other_children")
def test_processes_that_are_killed_and_stopped_give_the_same_tokens(caplog: pytest.LogCaptureFixture) -> None:
    torch.set_num_threads(1)
    before = set(pids())
    engine = processes(2, "cluster.seconds=8")
    try:
        first, second = sorted(set(pids()) - before)
        wanted = play(TorchEngine(engine.policy))
        check_same(play(engine), wanted)
        change(engine.policy)
        engine.refresh()
        with caplog.at_level(logging.WARNING, "isentrope"):
            os.kill(first, signal.SIGKILL)
            wanted = play(TorchEngine(engine.policy))
            check_same(play(engine), wanted)
            os.kill(second, signal.SIGSTOP)
            check_same(play(engine), wanted)
        assert "was ended by SIGKILL" in caplog.text
        assert "kept silent for 8 s and was ended" in caplog.text
        assert engine.notes()["samplers_lost"] >= 2  # more where other programs keep all cores
        ours = set(pids()) - before
    finally:
        engine.close()
    assert all(wait_until(lambda pid=pid: gone(pid)) for pid in {first, second, *ours})


@pytest.mark.slow(6)
@pytest.mark.usefixtures("no_other_children")
def test_no_sampler_outlives_a_learner_that_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    driver = os.fork()
    if driver == 0:
        try:
            before = set(pids())
            engine = processes(1)
            told.with_suffix(".part").write_text(" ".join(str(pid) for pid in set(pids()) - before))
            told.with_suffix(".part").rename(told)
            rng = np.random.default_rng(0)
            engine.open([0])
            while True:  # it is killed in the midst of work
                engine.sample([Request(0, [9, 50], rng.random(200, dtype=np.float32), 1.0, never)])
        finally:
            os._exit(1)
    assert wait_until(told.exists)
    (sampler,) = map(int, told.read_text().split())
    assert not gone(sampler)
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    assert wait_until(lambda: gone(sampler))


@pytest.mark.slow(12)
@pytest.mark.usefixtures("no_other_children")
def test_ten_steps_of_training_are_those_of_one_process(tmp_path: Path) -> None:
    settings = ("run.steps=10", "run.eval_every=5", "rollout.groups=3", "methods=['actre']")
    settings += ("method.actre.branching=entropy", "method.actre.switch=6")
    records, tokens = kills.run_of(tmp_path / "local", *settings)
    two = ("cluster.kind=processes", "cluster.engines=2")
    others, same = kills.run_of(tmp_path / "processes", *settings, *two)
    assert kills.differences(records, others, 1e-4) == []
    assert len(others) == 10
    assert tokens == same
    assert all(one["engine/samplers"] == 2 and one["engine/samplers_lost"] == 0 for one in others)
    moved = sum(abs(float(record["grad_norm"] or 0)) for record in records)
    assert moved > 0  # it did learn


class Slow(TorchEngine):
    """Draws a token now and then."""

    def __init__(self, policy: Policy, config: object, options: object) -> None:
        super().__init__(policy)

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return super().sample([replace(one, stop=partial(slowly, one.stop)) for one in requests])


def slowly(stop: Callable[[bytes], bool], tail: bytes) -> bool:
    time.sleep(0.1)
    return stop(tail)


@pytest.mark.skipif(not EXPLORE, reason="its time limit is short: ISENTROPE_EXPLORE=1")
def test_an_engine_that_takes_longer_than_the_limit_but_goes_on_is_left_alone() -> None:
    engine = processes(1, "cluster.seconds=3", "engine.kind=tests.cluster.test_processes:Slow")
    try:
        check_same(play(engine), play(TorchEngine(engine.policy)))
        assert engine.notes()["samplers_lost"] == 0
    finally:
        engine.close()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not EXPLORE, reason="half a minute: ISENTROPE_EXPLORE=1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["start", "step"])
def test_every_end_of_a_command_ends_its_samplers(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", ("run.steps=1000", "run.grace=1", *kills.CLUSTER)
    sets = [part for one in settings for part in ("--set", one)]
    command = [sys.executable, "-m", "isentrope", "train", "demo", "--out", str(out), "--set", "eval.games=4", *sets]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if moment == "start":
            assert wait_until(lambda: len(children_of(run.pid)) >= 2)
        else:
            assert wait_until(lambda: (out / "episodes").exists())
            time.sleep(1.0)
        children = children_of(run.pid)
        assert len(children) >= 2
        run.send_signal(number)
        assert run.wait(PATIENCE) != 0
    finally:
        run.kill()
        run.wait()
    assert all(wait_until(lambda pid=pid: gone(pid)) for pid in children)


@pytest.mark.skipif(not EXPLORE, reason="some minutes: ISENTROPE_EXPLORE=1, or python -m tests.cluster.kills")
@pytest.mark.slow(400)
def test_runs_whose_samplers_are_killed_at_random_end_with_the_same_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "START_SECONDS", 120.0)
    assert kills.main(30, random.randrange(1 << 30)) == 0
