"""Plays games of ScienceWorld through its Java side, in as many Java processes as are needed."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.core.needs import require, require_program

OPTIONS = ("-XX:+UseSerialGC", "-XX:-UsePerfData")  # the second: no file in /tmp for each process
REPEATABLE = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
SLOW = 10  # how many times longer a slow call (a gold path) may take than others


class Jvm:
    """One java process that holds several simulators. Every call to anything in it is made inside `turn`, so by one
    thread at a time.

    The simulator was made for one game in one process. Three things in it are global: the random numbers, the counter
    that numbers objects, and the simplifications. Two games that share a process would disturb each other through them,
    even if they never run at the same moment. So whoever has the turn first gets its own three put in place (`_seat`):
    every game then runs as if it were alone. The fourth leak is the order of sets, which in Java depends on numbers
    that objects are given at random; `hashCode=2` gives all the same one, so sets are slower and episodes repeatable.
    """

    def __init__(self, memory: int, seconds: float, repeatable: bool = True) -> None:
        self.fault = ""  # why it is of no use any more
        self._lock = threading.Lock()
        self._seconds = seconds
        self._seated: Simulator | None = None
        self._random: object = None
        self.simplified = ""
        self._launch(memory, repeatable)

    def _launch(self, memory: int, repeatable: bool) -> None:
        py4j = require("py4j.java_gateway", "science", "ScienceWorld")
        constants = require("scienceworld.constants", "science", "ScienceWorld")
        java = require_program("java", "ScienceWorld")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what goes wrong there is raised here as well
        complaints: deque[Any] = deque(maxlen=10)
        try:
            port, token, self._process = py4j.launch_gateway(
                classpath=constants.JAR_PATH,
                javaopts=[f"-Xmx{memory}m", *OPTIONS, *(REPEATABLE if repeatable else ())],
                java_path=java,
                cwd=constants.BASEPATH,  # the simulator reads a table from where it runs
                die_on_exit=True,  # it ends when its input closes, which it does however this process ends
                create_new_process_group=True,  # Ctrl-C is not for the simulators
                enable_auth=True,  # others on this machine could run anything through an open gateway
                redirect_stderr=complaints,
                return_proc=True,
            )
            self.pid: int = self._process.pid
            limits = (self._seconds, SLOW * self._seconds)
            ways = [py4j.GatewayParameters(port=port, auth_token=token, read_timeout=limit) for limit in limits]
            self._gateway, self._patient = (py4j.JavaGateway(gateway_parameters=way) for way in ways)
            self._prepare()
        except Exception as error:  # py4j raises whatever it meets
            self._end(f"did not start: {_shortly(error)}")
            lines = (line.decode("utf-8", "replace") if isinstance(line, bytes) else str(line) for line in complaints)
            said = " ".join(line.strip() for line in reversed(list(lines)))
            raise TaskError(f"the java process of ScienceWorld {self.fault}. {said}".strip()) from error

    def _prepare(self) -> None:
        jvm = self._gateway.jvm
        # the simulator prints all it does; set before it is loaded, as it remembers where to
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
        self._dice = getattr(getattr(jvm.scala.util, "Random$"), "MODULE$")
        self._dice_field = self._dice.getClass().getSuperclass().getDeclaredField("self")
        self._dice_field.setAccessible(True)
        self._counter = jvm.util.UniqueIdentifier
        self._simplifier = jvm.main.scala.scienceworld.runtime.SimplifierProcessor
        self.join = jvm.java.lang.String.join

    def interface(self, slow: bool) -> Any:
        """A new simulator's Java side. Calls of a slow one may take ten times as long."""
        return (self._patient if slow else self._gateway).jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def dice(self) -> Any:
        """A source of random numbers for one simulator; loading a game seeds it."""
        return self._gateway.jvm.java.util.Random(0)

    @contextlib.contextmanager
    def turn(self, simulator: Simulator | None, dice: object = None) -> Generator[None]:
        """The process for this simulator alone. Whatever goes wrong in it is raised as a TaskError."""
        with self._lock:
            if self.fault:
                raise TaskError(f"the java process that played this game {self.fault}")
            try:
                if simulator is not None:
                    self._seat(simulator, dice)
                yield
            except TaskError:
                raise
            except Exception as error:
                raise self._judged(error) from error

    def _seat(self, simulator: Simulator, dice: object) -> None:
        if self._seated is not simulator:
            if self._seated is not None:
                self._seated.count = self._counter.count()
            getattr(self._counter, "count_$eq")(simulator.count)
            self._seated = simulator
        if self._random is not dice:
            self._dice_field.set(self._dice, dice)
            self._random = dice
        if self.simplified != simulator.simplified:
            self._simplifier.parseSimplificationStr(simulator.simplified)
            self.simplified = simulator.simplified

    def _judged(self, error: Exception) -> TaskError:
        """An exception of the simulator ends its game; anything else, and no memory, ends the process."""
        inside = getattr(error, "java_exception", None) is not None
        words = str(error) if inside else ""
        if inside and "OutOfMemoryError" not in words and "StackOverflowError" not in words:
            return TaskError(f"the simulator raised {_shortly(words.partition(': ')[2] or words)}")
        if inside:
            self._end(f"ran out of memory (give it more with memory, or use more jvms): {_shortly(words)}")
        elif self._has_ended():
            self._end(f"died with exit status {self._process.returncode}")
        else:
            self._end(f"did not answer as it should, within {self._seconds:g} s ({_shortly(error)})")
        return TaskError(f"the java process of ScienceWorld {self.fault}")

    def _has_ended(self) -> bool:
        """Its connection can be gone a moment before the process is."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.5)
        return self._process.poll() is not None

    def close(self) -> None:
        with self._lock:
            self._end("was closed")

    def _end(self, fault: str) -> None:
        """No call is under way, or the one that is has failed: the process can be killed."""
        if self.fault:
            return
        self.fault = fault
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()
        for gateway in (getattr(self, "_gateway", None), getattr(self, "_patient", None)):
            if gateway is not None:
                with contextlib.suppress(Exception):  # its other end is gone
                    gateway.close()


def _shortly(error: object) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:200]}" if isinstance(error, BaseException) else words[:200]


ASIDE = ("help", "objects", "task")  # questions that the interface answers itself; the game is not stepped
UNKNOWN = "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible object referents. "
MAX_ACTION = 500  # characters; the longest real action has about 120, and longer ones only keep the parser busy


@dataclass(frozen=True)
class Reading:
    """What the simulator says after an action."""

    text: str
    score: int  # in percent, below 0 once the task has failed
    completed: bool
    moves: int  # time steps so far; waiting counts as ten


class Simulator:
    """Lives in a java process and plays one game at a time. `load` before anything else."""

    def __init__(self, jvm: Jvm, slow: bool = False) -> None:
        self.jvm = jvm
        self.count = 0  # these two belong to the process and are put in place by it
        self.simplified = ""
        self._last = Reading("", 0, False, 0)
        with jvm.turn(None):
            self._server = jvm.interface(slow)
            self._dice = jvm.dice()
            self._hint_dice = jvm.dice()  # its own, so that what is shown changes nothing in the game

    def load(self, task: str, variation: int, simplifications: str) -> tuple[str, Reading]:
        """The task in words, and the first look around (which takes no time)."""
        with self.jvm.turn(self, self._dice):
            self._load(task, variation, simplifications, gold=False)
            return str(self._server.getTaskDescription()), self._step("look around")

    def step(self, action: str) -> Reading:
        """As the package's own `env.step`, less what nobody asked for: above all a list of every possible action."""
        with self.jvm.turn(self, self._dice):
            return self._step(action[:MAX_ACTION].encode("utf-8", "replace").decode("utf-8"))

    def objects(self) -> list[str]:
        """Names of what is in sight; what is carried is not among them."""
        with self._aside():
            text = self._server.getPossibleObjectReferentLUTJSON()
        return sorted(set(cast("dict[str, str]", json.loads(text)).values()))

    def valid_actions(self) -> list[str]:
        """Every action that can be taken now: hundreds, and slow.

        The simulator's list also has actions on things in closed containers, which it then does not understand.
        """
        with self._aside():
            listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
            within = self._within_reach()
        # a number answers the question which thing was meant; teleporting is done from afar
        return [
            one["action"]
            for one in listed
            if one["action"].isdecimal() or one["action"].startswith("teleport") or within.issuperset(one["obj_ids"])
        ]

    @contextlib.contextmanager
    def _aside(self) -> Generator[None]:
        """For what is shown and changes nothing. Where things are alike, names are drawn: each time in the same way."""
        with self.jvm.turn(self, self._hint_dice):
            self._hint_dice.setSeed(0)
            yield

    def _within_reach(self) -> set[int]:
        """The numbers of all objects that an action may name: those in the room, and the agent's own."""
        parser, agent = self._game.inputParser(), self._game.agent()
        found: set[int] = set()
        for root in (agent.getContainer().get(), agent):
            numbers = parser.getAllUniqueReferentsLUT(root, True, False).keySet().mkString(" ")
            found.update(map(int, numbers.split()))
        return found

    def action_forms(self) -> list[str]:
        with self._aside():
            return self._lines(self._server.getPossibleActions())

    def gold_path(self, task: str, variation: int, simplifications: str) -> list[str]:
        """A solution, which the simulator works out in some seconds."""
        with self.jvm.turn(self, self._dice):
            self._load(task, variation, simplifications, gold=True)
            return self._lines(self._server.getGoldActionSequence())

    def split(self, name: str) -> list[int]:
        """The variations of the loaded task for "Train", "Dev" or "Test"."""
        with self.jvm.turn(self, self._dice):
            return [int(number) for number in getattr(self._server, f"getVariations{name}")()]

    def _load(self, task: str, variation: int, simplifications: str, gold: bool) -> None:
        trouble = self._server.load(task, variation, simplifications, gold)
        self.simplified = str(self._server.getSimplificationsUsed())
        self.jvm.simplified = self.simplified  # loading a game sets them
        if trouble:
            raise TaskError(f"ScienceWorld could not load {task}, variation {variation}: {trouble}")
        self._game = self._server.agentInterface().get()

    def _step(self, action: str) -> Reading:
        if action.strip().lower() in ASIDE:
            return replace(self._last, text=str(self._server.step(action)))
        # the game itself, not the interface around it: that one also looks around, and keeps and prints a history
        text, score, completed = self._game.step(action).toString()[1:-1].rsplit(",", 2)  # a triple, in one call
        percent = round(100 * float(score))
        if percent < 0 and self._game.isInErrorState():
            raise TaskError(f"the simulator broke down: {str(self._game.getErrorStateMessage())[:300]}")
        self._last = Reading(text or UNKNOWN, percent, completed == "true", int(self._game.getCurIterations()))
        return self._last

    def _lines(self, java_list: Any) -> list[str]:
        """A Java list in one call: reading it item by item takes a call for each."""
        joined = str(self.jvm.join("\n", java_list))
        return joined.split("\n") if joined else []


ROOM = 16  # megabytes that a game is given; it takes about 11


class Machines:
    """Starts processes when they are needed: the first `jvms` as games are opened, more only when those are full.

    A process that died or hung is forgotten, and the next game that finds no room starts a new one.
    """

    def __init__(self, jvms: int, memory: int, seconds: float, repeatable: bool) -> None:
        self._jvms = jvms
        self._start = partial(Jvm, memory, seconds, repeatable)
        self._room = max(1, memory // ROOM)
        self._lock = threading.Lock()
        self._starting: list[_Start] = []
        self._free: list[Simulator] = []
        self._closed = False

    def take(self, slow: bool = False) -> Simulator:
        """A simulator that nobody else uses, until it is given back."""
        with self._lock:
            if self._closed:
                raise TaskError("the world of ScienceWorld is closed")
            while self._free and not slow:
                simulator = self._free.pop()
                if not simulator.jvm.fault:
                    return simulator
            self._starting = [start for start in self._starting if not start.done() or start.is_up()]
            start = min(self._starting, key=lambda start: start.games, default=None)
            if start is None or len(self._starting) < self._jvms or start.games >= self._room:
                start = _Start()
                self._starting.append(start)
            start.games += 1
            first = start.games == 1
        if first:
            try:
                start.set_result(self._start())
            except BaseException as error:
                start.set_exception(error)
        return Simulator(start.result(), slow)

    def give(self, simulator: Simulator) -> None:
        with self._lock:
            if not simulator.jvm.fault:
                self._free.append(simulator)

    def processes(self) -> list[Jvm]:
        """Those that are up."""
        with self._lock:
            return [start.result() for start in self._starting if start.is_up()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            starting, self._starting, self._free = self._starting, [], []
        for start in starting:
            if start.exception() is None:  # waits until it is up
                start.result().close()


class _Start(Future[Jvm]):
    """A process that is up or on its way."""

    games = 0  # simulators that were promised a place in it

    def is_up(self) -> bool:
        return self.done() and self.exception() is None and not self.result().fault
