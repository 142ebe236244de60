"""Java processes that die, hang or are left behind. They are really killed and really stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.registry import make_world
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions

ONE = ("find-animal",)


@pytest.fixture(autouse=True)
def starts_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java does not optimise what runs for a few seconds only."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether the process ends within that time; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow(8)
def test_killed_and_stopped_processes_are_replaced() -> None:
    """Two processes, four games. Whoever played in the lost one fails, the others go on, and a new start works."""
    world = ScienceWorld(ScienceWorldOptions(tasks=ONE, jvms=2, call_seconds=6))
    instance = world.instance("train", 0)
    tasks = [world.open() for _ in range(4)]
    for task in tasks:
        task.start(instance)
    for deadly in (signal.SIGKILL, signal.SIGSTOP):
        machines = world.machines.processes()
        assert len(machines) == 2
        victim = machines[0].pid
        os.kill(victim, deadly)
        failures: list[str] = []
        for task in tasks:
            try:
                assert task.step("look around").valid
            except TaskError as error:
                failures.append(str(error))
        assert len(failures) == 2
        assert ("died with exit status -9" if deadly == signal.SIGKILL else "did not answer") in failures[0]
        assert "the java process that played this game" in failures[1]
        assert gone(victim)
        views = [task.start(instance) for task in tasks]
        assert len(set(views)) == 1
        assert victim not in [machine.pid for machine in world.machines.processes()]
    survivors = [machine.pid for machine in world.machines.processes()]
    assert len(survivors) == 2
    world.close()
    assert all(gone(pid) for pid in survivors)
    with pytest.raises(TaskError, match="closed"):
        world.open().start(instance)


@pytest.mark.slow(5)
def test_the_pool_records_what_was_lost() -> None:
    world = ScienceWorld(ScienceWorldOptions(tasks=ONE, jvms=1))
    instance = world.instance("train", 0)
    pool = LocalTasks(world, 2)
    assert all(isinstance(view, View) for view in pool.start({0: instance, 1: instance}).values())
    os.kill(world.machines.processes()[0].pid, signal.SIGKILL)
    for result in pool.step({0: "look around", 1: "look around"}).values():
        assert isinstance(result, Failure)
        assert "java process" in result.detail
    assert all(isinstance(view, View) for view in pool.start({0: instance, 1: instance}).values())
    assert all(isinstance(step, Step) for step in pool.step({0: "look around", 1: "wait"}).values())
    pool.close()
    world.close()


CHILD = """
import sys, time
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions
world = ScienceWorld(ScienceWorldOptions(tasks=("find-animal",), jvms=1))
task = world.open()
task.start(world.instance("train", 0))
print(world.machines.processes()[0].pid, flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
"""


@pytest.mark.slow(3)
@pytest.mark.parametrize("how", ["exit", "wait"])
def test_no_java_is_left_behind(how: str) -> None:
    """Neither by a program that ends without closing anything, nor by one that is killed."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, how], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    if how == "wait":
        assert not gone(pid, 0.5)
        child.kill()
    child.wait()
    child.stdout.close()
    assert gone(pid)


def test_a_java_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'cannot reserve enough space' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    world = ScienceWorld(ScienceWorldOptions(tasks=ONE, jvms=1))
    with pytest.raises(TaskError, match="did not start"):
        world.open().start(world.instance("train", 0))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(TaskError, match="apt-get install openjdk-17-jre-headless"):
        make_world("scienceworld")


@pytest.mark.slow(4)
def test_out_of_memory_is_said() -> None:
    """More games are pressed in than there is room for by the pool's own count."""
    world = ScienceWorld(ScienceWorldOptions(tasks=ONE, jvms=1, memory=32, call_seconds=120))
    world.machines._room = 99  # pyright: ignore[reportPrivateUsage]
    instance = world.instance("train", 0)
    with pytest.raises(TaskError, match="ran out of memory"):
        [world.open().start(instance) for _ in range(12)]
    world.close()


@pytest.mark.slow(3)
def test_more_games_than_one_process_has_room_for() -> None:
    world = ScienceWorld(ScienceWorldOptions(tasks=ONE, jvms=1, memory=64))
    assert world.machines._room == 4  # pyright: ignore[reportPrivateUsage]
    world.machines._room = 1  # pyright: ignore[reportPrivateUsage]
    instance = world.instance("train", 0)
    tasks = [world.open() for _ in range(2)]
    assert len({task.start(instance) for task in tasks}) == 1
    assert len(world.machines.processes()) == 2
    world.close()
