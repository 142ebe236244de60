"""One java process that holds several simulators.

The simulator was made for one game in one process. Three things in it are global: the random numbers, the counter that
numbers objects, and the simplifications. Two games that share a process would disturb each other through them, even if
they never run at the same moment. So whoever has the turn first gets its own three put in place (`_seat`): every game
then runs as if it were alone. The fourth leak is the order of sets, which in Java depends on numbers that objects are
given at random; `hashCode=2` gives all of them the same one. That makes sets slower and an episode repeatable.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
from collections import deque
from collections.abc import Generator
from typing import Any, Protocol

from isentrope.core.errors import TaskError
from isentrope.worlds.registry import require, require_program

HOW_TO_GET_JAVA = "apt-get install openjdk-17-jre-headless"
REPEATABLE = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
SLOW = 10  # how many times longer a slow call (a gold path) may take than others


class Seat(Protocol):
    """What of a simulator has to be put in place before it is called."""

    count: int
    simplified: str


class Jvm:
    """Started when made. Every call to anything in it is made inside `turn`, so by one thread at a time."""

    def __init__(self, memory: int, seconds: float, repeatable: bool = True) -> None:
        self.fault = ""  # why it is of no use any more
        self._lock = threading.Lock()
        self._seconds = seconds
        self._seated: Seat | None = None
        self._random: object = None
        self.simplified = ""
        self._launch(memory, repeatable)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _launch(self, memory: int, repeatable: bool) -> None:
        py4j = require("py4j.java_gateway", "science", "ScienceWorld")
        constants = require("scienceworld.constants", "science", "ScienceWorld")
        java = require_program("java", "ScienceWorld", HOW_TO_GET_JAVA)
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what goes wrong there is raised here as well
        complaints: deque[Any] = deque(maxlen=10)
        try:
            port, token, self._process = py4j.launch_gateway(
                classpath=constants.JAR_PATH,
                javaopts=[
                    f"-Xmx{memory}m",
                    "-XX:+UseSerialGC",
                    "-XX:-UsePerfData",  # no file in /tmp for each process
                    *(REPEATABLE if repeatable else ()),
                ],
                java_path=java,
                cwd=constants.BASEPATH,  # the simulator reads a table from where it runs
                die_on_exit=True,  # it ends when its input closes, which it does however this process ends
                create_new_process_group=True,  # Ctrl-C is not for the simulators
                enable_auth=True,  # others on this machine could run anything through an open gateway
                redirect_stderr=complaints,
                return_proc=True,
            )
            self._gateway, self._patient = (
                py4j.JavaGateway(
                    gateway_parameters=py4j.GatewayParameters(port=port, auth_token=token, read_timeout=seconds)
                )
                for seconds in (self._seconds, SLOW * self._seconds)
            )
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
    def turn(self, simulator: Seat | None, dice: object = None) -> Generator[None]:
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

    def _seat(self, simulator: Seat, dice: object) -> None:
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
