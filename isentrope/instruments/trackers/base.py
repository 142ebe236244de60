"""What a tracker is to us: something that is given numbers, and is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Session:
    """A run, as a tracker is told of it."""

    run: Path
    config: Mapping[str, Any]  # the tables of config.toml
    ident: str | None = None  # what the tracker called the run when it was begun; None: it begins now

    @property
    def name(self) -> str:
        return self.run.resolve().name


class Tracker(Protocol):
    ident: str  # by which the run is found again after --resume

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, all finite. A step may come more than once, with other metrics or with the same."""
        ...

    def close(self) -> None: ...
