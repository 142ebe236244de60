"""Weights & Biases. Offline unless its own variable WANDB_MODE says otherwise; `wandb sync` uploads later."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from isentrope.instruments.trackers.base import Session


class Wandb:
    def __init__(self, session: Session) -> None:
        mode = os.environ.get("WANDB_MODE") or "offline"
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else it reports its own crashes over the network
        wandb: Any = importlib.import_module("wandb")
        # settings and numbers alone: neither the terminal's text nor code nor the repository's address
        settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "isentrope",
            name=session.name,
            id=session.ident,
            resume="allow" if session.ident and mode != "offline" else None,
            dir=str(session.run),
            config=dict(session.config),
            mode=mode,
            settings=settings,
        )
        self.ident = str(self._run.id)
        # its own count of calls must only grow; a resumed run goes back to an earlier step
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def close(self) -> None:
        self._run.finish()
