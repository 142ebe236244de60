"""Signals that ask a process to end: SIGTERM, SIGHUP and SIGUSR1, as schedulers, terminals and containers send them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ASKED_TO_END = 128 + signal.SIGTERM  # exit status of what ended because it was asked to, by whichever of the signals
SIGNALS = tuple(signal.Signals[name] for name in ("SIGTERM", "SIGHUP", "SIGUSR1") if name in signal.Signals.__members__)


class Interrupted(KeyboardInterrupt):
    """Raised where a signal asked for the end. It goes wherever Ctrl-C goes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def asked_to_end(handle: Callable[[int], None]) -> Generator[bool]:
    """Within, the signals call `handle`. Those that are ignored stay so (nohup), and in other threads than the main one
    nothing changes: gives whether anything did."""
    if threading.current_thread() is not threading.main_thread():
        yield False
        return

    def call(number: int, _: FrameType | None) -> None:
        handle(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in ours:
        signal.signal(number, call)
    try:
        yield True
    finally:
        for number, handler in ours.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def leave_to_the_parent() -> None:
    """For a worker process: whoever signals all of a job's processes means the trainer, who ends its workers. A handler
    that does nothing, as programs that the worker starts would inherit that a signal is ignored."""

    def nothing(_: int, __: FrameType | None) -> None:
        pass

    for number in SIGNALS:
        signal.signal(number, nothing)


def second_interrupt_ends_at_once() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt once; the next one does not wait for what is being put in order."""

    def twice(number: int, _: FrameType | None) -> None:
        end_at_once(128 + number)

    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, twice)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, once)


def end_at_once(status: int) -> NoReturn:
    """Without a traceback and without waiting for anybody. A progress bar has hidden the terminal's cursor."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.isatty():
            os.write(stream.fileno(), b"\x1b[?25h\n")
            break
    os._exit(status)
