"""What a task server and a world of another package can do to the trainer: nothing on its disk, nor to its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import RunError, TaskError
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import eval_path
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.codec import instance_from_table
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks, choose_placement, open_tasks
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.remote_servers import read_description
from isentrope.worlds.pool.sanitize import LARGEST_REWARD, Garbage, sanitize_step
from isentrope.worlds.registry import make_world
from tests.toys import ToyWorld

ROOT = Path(__file__).parents[2]
WORLD = "tests.toys:ToyWorld"
OPTIONS = {"goal": 3, "naughty": False, "flavour": "plain", "pace": 1.0}
FINE: dict[str, Any] = {
    "protocol": 1, "world": WORLD, "name": "toy", "kinds": ["even", "ALE/Pong-v5"],
    "splits": {"train": None, "seen": 10}, "options": OPTIONS,
}  # fmt: skip
NAMES = ("../../outside", "/etc/x", "a/b", "..\\x", "a\0b", "", "x" * 65, "a b", "\x1b[2J", "{step}", 7, None, ["x"])


class Silent(ToyWorld):
    """Says nothing of where it wants to be played."""

    prefers = None


# -- names


@pytest.mark.parametrize("name", NAMES)
def test_a_split_cannot_lead_out_of_the_folder(name: Any, tmp_path: Path) -> None:
    if isinstance(name, str):
        with pytest.raises(Garbage, match="split"):
            read_description(FINE | {"splits": {name: 3}})
        with pytest.raises(RunError, match="cannot name a file"):
            write_episodes(eval_path(tmp_path / "run", 1, name), [])
    with pytest.raises(Garbage, match="split"):
        instance_from_table({"world": "toy", "split": name, "index": 0, "kind": "even"})
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["a\0b", "", "x" * 65, "\x1b[2J", "<script>", "a\nb", 7, None])
def test_kinds_and_worlds_have_names_that_can_be_shown(name: Any) -> None:
    for change in ({"kinds": [name]}, {"name": name}, {"world": name}):
        with pytest.raises(Garbage, match="the name of a"):
            read_description(FINE | change)
    with pytest.raises(Garbage, match="kind"):
        instance_from_table({"world": "toy", "split": "train", "index": 0, "kind": name})


def test_usual_names_pass(tmp_path: Path) -> None:
    found = read_description(FINE)
    assert found.kinds == ("even", "ALE/Pong-v5")
    assert dict(found.splits) == {"train": None, "seen": 10}
    assert instance_from_table({"world": WORLD, "split": "eval_out-of.2", "index": 3, "kind": "a b+c"}).index == 3
    assert eval_path(tmp_path, 1, "valid_seen-2.0").parent == tmp_path / "episodes"


@pytest.mark.parametrize("index", [-1, 2**53, 1.0, True, "0", None])
def test_an_index_is_a_number(index: Any) -> None:
    with pytest.raises(Garbage, match="index"):
        instance_from_table({"world": "toy", "split": "train", "index": index, "kind": "even"})


@pytest.mark.parametrize("size", [-1, 10**400, 2**53, 1.5, True])
def test_the_size_of_a_split_is_a_number(size: Any) -> None:
    with pytest.raises(Garbage, match="size"):
        read_description(FINE | {"splits": {"seen": size}})


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A server that speaks the protocol and names a split after a file of the trainer's."""

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(FINE | {"splits": {"../../../outside": 10}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_a_run_does_not_begin_with_such_a_server(server: ThreadingHTTPServer) -> None:
    with pytest.raises(TaskError, match=r"the name of a split is '\.\./\.\./\.\./outside'"):
        RemoteWorld(WORLD, OPTIONS, f"http://127.0.0.1:{server.server_port}", 5.0)


# -- rewards


@pytest.mark.parametrize("reward", [1e308, -1e308, 1.0001e6, float("inf"), float("nan"), 10**400])
def test_a_reward_is_a_number_that_can_be_reckoned_with(reward: float) -> None:
    with pytest.raises(Garbage, match=r"reward|read"):
        sanitize_step(Step(View("x", None), reward=reward))


def test_large_rewards_pass() -> None:
    assert sanitize_step(Step(View("x", None), reward=-LARGEST_REWARD)).reward == -LARGEST_REWARD


# -- a world that ends its process


def test_a_world_of_another_package_is_kept_in_a_worker() -> None:
    silent = f"{__name__}:Silent"
    with open_tasks(silent, {"naughty": True}, count=2, workers=0, step_seconds=20.0) as tasks:
        assert isinstance(tasks, WorkerTasks)
        world = make_world(silent, {})
        tasks.start({slot: world.instance("train", slot) for slot in (0, 1)})
        ended, other = (tasks.step({0: "exit", 1: "look"})[slot] for slot in (0, 1))
    assert isinstance(ended, Failure)
    assert ended.kind == "worker_died"
    assert isinstance(other, Step)
    assert other.info["pid"] != os.getpid()


def test_the_user_and_the_world_can_say_otherwise() -> None:
    household, silent, local = (make_world(name, {}) for name in ("household", f"{__name__}:Silent", WORLD))
    assert choose_placement("auto", 0, silent).workers == 1
    assert choose_placement("auto", 3, silent).workers == 3
    assert choose_placement("local", 0, silent).workers == 0
    assert choose_placement("auto", 0, local).workers == 0  # it says prefers = "local"
    assert choose_placement("auto", 0, household).workers == 0  # ours
    assert isinstance(open_tasks(WORLD, {}, count=1, workers=0, step_seconds=5.0), LocalTasks)


def test_a_world_of_a_script_or_a_notebook_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker could not import it."""
    monkeypatch.setattr(Silent, "__module__", "__main__")
    silent: Any = Silent()
    assert choose_placement("auto", 0, silent).workers == 0


SCRIPT = """
from isentrope.worlds.pool.open import open_tasks
from isentrope.worlds.registry import make_world
print("begun")
world = "tests.attack.test_task_server:Silent"
with open_tasks(world, {}, count=1, workers=0, step_seconds=20.0) as tasks:
    tasks.start({0: make_world(world, {}).instance("train", 0)})
    print(tasks.step({0: "look"})[0].view.text)
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """A worker does not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["begun", "You see a number. The number is 0."], done.stderr
