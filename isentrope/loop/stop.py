"""Ends a run that is asked to end: by SIGTERM, SIGHUP or SIGUSR1, within `run.grace` seconds.

A checkpoint holds what a run is between two steps, so the step under way is finished if there is time, saved, and the
run ends there. If there is not, the step is given up. Before its update, the step before is saved; in the evaluation
after it, the checkpoint says that the evaluation is still to come; an update that is given up leaves the checkpoint
that there is. In each case a resumed run computes what it would have computed without the signal, bit for bit on the
CPU. A second signal ends the process at once.

    with Stop(20.0) as stop:                    # a signal that comes here raises Interrupted
        with stop.waits():                      # here it waits, until the time is nearly up
            with stop.or_else(save): ...        # Interrupted: `save` first
            stop.check(seconds)                 # Interrupted, if a signal came and so many seconds are not left
            with stop.saves(): ...              # nothing interrupts this
            stop.end()                          # Interrupted, if a signal came
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from isentrope.core.process import signal_name
from isentrope.core.signals import ASKED_TO_END, Interrupted, asked_to_end, end_at_once
from isentrope.loop.progress import Progress

_SAME_SECONDS = 1.0  # a signal this soon after the first is the same request: a terminal that closes sends two
_FOR_SAVING = 0.25  # share of the time, until a first checkpoint has shown how long one takes


class Stop:
    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.asked: int | None = None  # the signal
        self.saving_seconds = _FOR_SAVING * grace / 2
        self._at = 0.0
        self._waits = self._saves = False
        self._stack = ExitStack()

    def __enter__(self) -> Stop:
        self._stack.enter_context(asked_to_end(self._ask))
        return self

    def __exit__(self, *raised: Any) -> None:
        if self.asked is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        self._stack.close()

    @property
    def left(self) -> float:
        """Seconds until only the time to save is left."""
        return self._at + self.grace - min(2 * self.saving_seconds, self.grace / 2) - time.monotonic()

    def _ask(self, number: int) -> None:
        now = time.monotonic()
        if self.asked is not None:
            if now - self._at > _SAME_SECONDS:
                end_at_once(ASKED_TO_END)
            return
        self.asked, self._at = number, now
        if not self._waits:
            raise Interrupted(number)
        if not self._saves:
            self._set_alarm()

    def _set_alarm(self) -> None:
        before = signal.signal(signal.SIGALRM, self._late)
        self._stack.callback(signal.signal, signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, self.left))

    def _late(self, _: int, __: FrameType | None) -> None:
        if self._waits and not self._saves:
            self.end()

    def end(self) -> None:
        """Now, if a signal asked for it."""
        if self.asked is not None:
            self._waits = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise Interrupted(self.asked)

    def check(self, seconds: float = 0.0) -> None:
        """The last moment before something that takes `seconds` and cannot be given up without loss."""
        if self.asked is not None and seconds >= self.left:
            self.end()

    @contextmanager
    def waits(self) -> Generator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    @contextmanager
    def saves(self) -> Generator[None]:
        """What is done here is done to its end, however long it takes."""
        self._saves, began = True, time.monotonic()
        try:
            yield
        finally:
            self._saves, self.saving_seconds = False, time.monotonic() - began
        if self.asked is not None and self._waits:
            self._set_alarm()

    @contextmanager
    def or_else(self, save: Callable[[], None]) -> Generator[None]:
        try:
            yield
        except Interrupted:
            save()
            raise


def lost_games(metrics: Mapping[str, float]) -> bool:
    """Whether games of an evaluation failed: after a signal they may have failed because of it."""
    return any(key.startswith("eval/") and key.endswith("/failures") for key in metrics)


def say_stopped(progress: Progress, path: Path, number: int, saved: int, done: int) -> None:
    """`saved`: the step of the last checkpoint, 0: there is none; `done`: the last step that was completed."""
    if not saved:
        told = "before there was a checkpoint: the run begins anew"
    elif done > saved:
        told = f"it goes on from the checkpoint of step {saved} and computes step{'s' if done > saved + 1 else ''} "
        told += f"{saved + 1} to {done} again" if done > saved + 1 else f"{done} again"
    else:
        told = f"it goes on from the checkpoint of step {saved}"
    progress.say(f"stopped by {signal_name(number)}: {path}, {told}")
