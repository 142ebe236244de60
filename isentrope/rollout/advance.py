"""The episodes of each step: played when they are asked for, or in advance (rollout.ahead).

In advance means: while the policy learns from the episodes of step k, those of step k + 1 are played in a thread, with
the weights as they were before that update. They are one update old when they are learnt from; the loss corrects for
it (docs/off-policy.md). A checkpoint holds the episodes that were played in advance, so a run that is resumed learns
from the very same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import torch

from isentrope.core.types import RolloutPlan
from isentrope.rollout.dynamic import Sampled
from isentrope.runs.episodes import pack_episodes, unpack_episodes

Progress = Callable[[int], None]
Metrics = dict[str, float]


@dataclass(frozen=True)
class Played:
    """The rollout of one step."""

    sampled: Sampled
    metrics: Metrics  # what the plan, the engine and the tasks have to tell
    seconds: Metrics  # by part


class _Stopped(Exception):
    """Nobody wants the rollout any more."""


class Rollouts:
    """`play` plays a step by its plan, with the weights that the engine has; `follow` gives it those of now."""

    def __init__(
        self,
        plan: Callable[[int], RolloutPlan],
        play: Callable[[int, RolloutPlan, Progress], Played],
        follow: Callable[[], None],
        ahead: bool,
        last: int,
        device: torch.device,
    ) -> None:
        self._plan, self._play, self._follow, self._last = plan, play, follow, last
        # Of its own, or each token that is sampled would wait for all of the update that is queued on the GPU.
        self._stream = torch.cuda.Stream(device) if ahead and device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "isentrope-rollout") if ahead else None
        self._coming: Future[Played] | None = None
        self._stop = False

    def take(self, step: int, progress: Progress) -> Played:
        """The episodes of this step."""
        coming, self._coming = self._coming, None
        return coming.result() if coming is not None else self._play(step, self._plan(step), progress)

    def begin_next(self, step: int) -> None:
        """The episodes of `step` have been taken, and the update on them is about to begin."""
        if self._thread is not None and step < self._last:
            self._follow()
            if self._stream is not None:  # an engine that keeps a copy of the weights may still be writing it
                self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            plan = self._plan(step + 1)  # here: methods go on to change in this thread
            self._coming = self._thread.submit(self._aside, step + 1, plan)

    def learnt(self) -> None:
        """The policy has changed."""
        if self._thread is None:
            self._follow()

    def settle(self) -> None:
        """Nothing is being played, and the engine has the policy's weights: something else may be played."""
        if self._thread is not None:
            if self._coming is not None:
                self._coming.result()
            self._follow()

    def _aside(self, step: int, plan: RolloutPlan) -> Played:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            return self._play(step, plan, self._unless_stopped)

    def _unless_stopped(self, finished: int) -> None:
        if self._stop:
            raise _Stopped

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """What is under way ends at its next turn."""
        self._stop = True
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """What was played in advance, once it is complete."""
        if self._coming is None:
            return {}
        played = self._coming.result()
        packed = {name: _as_tensor(pack_episodes(getattr(played.sampled, name))) for name in ("kept", "dropped")}
        return packed | {"sampled": played.sampled.metrics, "metrics": played.metrics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            packed = (state[name].numpy().tobytes() for name in ("kept", "dropped"))
            kept, dropped = (unpack_episodes(data, "the checkpoint") for data in packed)
            self._coming = Future()
            self._coming.set_result(Played(Sampled(kept, dropped, state["sampled"]), state["metrics"], {}))


def _as_tensor(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy())
