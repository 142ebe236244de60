"""The child process of the worker pool: plays the slots given to it until its pipe closes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from typing import Any

from isentrope.tasks.registry import make_world
from isentrope.tasks.slots import Failure, Slots, close_world, in_words
from isentrope.tasks.wire import pack, result_to_table

# A request is ("start", slot, Instance), ("step", slot, action) or None for "close and go"; every request but the
# last has one answer, in JSON. The first message back is {"ready": true} or the Failure that kept the world from
# opening.
Request = tuple[str, int, Any] | None
READY = {"ready": True}


def serve(pipe: Connection, world_name: str, options: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle: it closes the pipe
    os.setpgid(0, 0)  # a group of its own: whatever the world starts (a JVM, a shell) ends with this process
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the cores belong to the trainer and to the other workers
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        world = make_world(world_name, options)
    except (Exception, SystemExit) as error:
        pipe.send_bytes(pack(result_to_table(Failure("worker_died", in_words(error)))))
        return
    slots = Slots(world)
    pipe.send_bytes(pack(READY))
    try:
        while (request := pipe.recv()) is not None:
            command, slot, argument = request
            result = slots.start(slot, argument) if command == "start" else slots.step(slot, argument)
            pipe.send_bytes(pack(result_to_table(result)))
    except (EOFError, OSError):
        pass  # the trainer is gone
    slots.close()
    close_world(world)


def _exit_with_parent() -> None:
    """A task that hangs never comes back to read the pipe, so somebody else has to see that the trainer died."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.killpg(os.getpgrp(), signal.SIGKILL)
