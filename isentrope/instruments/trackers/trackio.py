"""trackio. On this machine, where `trackio show` finds it, unless its own variables name a Space or a server."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from isentrope.instruments.trackers.base import Session


class Trackio:
    def __init__(self, session: Session) -> None:
        trackio: Any = importlib.import_module("trackio")
        self.ident = session.ident or f"{session.name}-{os.urandom(3).hex()}"  # its runs are known by their names
        self._run: Any = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or "isentrope",
            name=self.ident,
            config=dict(session.config),
            resume="must" if session.ident else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()
