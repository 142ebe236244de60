"""A collector that plays one step ahead (rollout.ahead).

While the policy learns from the episodes of step k, those of step k + 1 are played in a thread, with the weights as
they were before that update. They are one update old when they are learnt from; the loss corrects for it
(docs/off-policy.md). A checkpoint holds the episodes that were played ahead, so a run that is resumed learns from the
very same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from isentrope.core.method import Method
from isentrope.core.types import RolloutPlan
from isentrope.models.policy import Policy, follow
from isentrope.rollout.collector import Collector, Rollout
from isentrope.rollout.dynamic_sampling import Groups
from isentrope.rollout.episode import EpisodesEnded
from isentrope.runs.episodes import pack_episodes, unpack_episodes


class _Stopped(Exception):
    """Nobody wants the rollout any more."""


class Prefetch:
    """Wraps a collector whose engine plays with `sampler`, a snapshot that follows `policy`."""

    def __init__(self, collector: Collector, policy: Policy, sampler: Policy) -> None:
        self.collector, self._policy, self._sampler = collector, policy, sampler
        # Of its own, or each token that is sampled would wait for all of the update that is queued on the GPU.
        self._stream = torch.cuda.Stream(policy.device) if policy.device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "isentrope-rollout")
        self._coming: Future[Rollout] | None = None
        self._stop = False

    def collect(self, step: int, progress: EpisodesEnded = lambda ended: None) -> Rollout:
        """The episodes of this step; those of the next one are begun, with the weights of now."""
        coming, self._coming = self._coming, None
        rollout = coming.result() if coming is not None else self.collector.collect(step, progress)
        if step < self.collector.config.run.steps:
            self._follow()
            if self._stream is not None:  # an engine that keeps a copy of the weights may still be writing it
                self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            plan = self.collector.plan(step + 1)  # here: methods go on to change in this thread
            self._coming = self._thread.submit(self._play, step + 1, plan)
        return rollout

    def refresh(self) -> None:
        """The policy has changed; the engine gets its weights when the next step begins."""

    def settle(self) -> Collector:
        """The collector, when nothing is being played and the engine has the policy's weights."""
        if self._coming is not None:
            self._coming.result()
        self._follow()
        return self.collector

    def _follow(self) -> None:
        follow(self._sampler, self._policy)
        self.collector.refresh()

    def _play(self, step: int, plan: RolloutPlan) -> Rollout:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            return self.collector.play_step(step, plan, self._unless_stopped)

    def _unless_stopped(self, ended: int) -> None:
        if self._stop:
            raise _Stopped

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """What is under way ends at its next turn."""
        self._stop = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.collector.close()

    def add_method(self, method: Method) -> None:
        self.collector.add_method(method)

    def state_dict(self) -> dict[str, Any]:
        """What was played in advance, once it is complete."""
        if self._coming is None:
            return self.collector.state_dict()
        rollout = self._coming.result()
        state: dict[str, Any] = {"sampled": rollout.groups.metrics, "metrics": rollout.metrics}
        for name in ("kept", "dropped"):
            packed = np.frombuffer(pack_episodes(getattr(rollout.groups, name)), dtype=np.uint8)
            state[name] = torch.from_numpy(packed.copy())
        return state | self.collector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state)
        if "kept" in state:
            packed = (state[name].numpy().tobytes() for name in ("kept", "dropped"))
            kept, dropped = (unpack_episodes(data, "the checkpoint") for data in packed)
            self._coming = Future()
            self._coming.set_result(Rollout(Groups(kept, dropped, state["sampled"]), state["metrics"], {}))
