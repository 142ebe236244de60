"""Records made up by hand, written as the program itself writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.analysis.measure import Evaluation, Outcome, of_outcomes
from isentrope.analysis.record import Record, write_record

SETTINGS: dict[str, Any] = {"task.world": "toy", "eval.temperature": 0.4, "agent.order": "think_act"}


def outcomes(wins: Sequence[int], episodes: int = 1, kinds: Sequence[str] = ("pick", "heat")) -> tuple[Outcome, ...]:
    """Game 0, 1, … with kinds dealt in turn."""
    return tuple(Outcome(i, kinds[i % len(kinds)], won, episodes) for i, won in enumerate(wins))


def record(
    wins: Mapping[str, Sequence[int]],
    *,
    name: str = "row",
    model: str = "model",
    seed: int = 0,
    step: int | None = None,
    episodes: int = 1,
    **settings: Any,
) -> Record:
    splits = {split: of_outcomes(outcomes(won, episodes), {"turns": 3.0}) for split, won in wins.items()}
    told = SETTINGS | {"eval.episodes": episodes} | {key.replace("__", "."): value for key, value in settings.items()}
    return Record(name, model, seed, "digest", told, (Evaluation(step, splits),), ({},))


def write(path: Path, wins: Mapping[str, Sequence[int]], **options: Any) -> Path:
    write_record(path, record(wins, **{"model": path.stem, **options}))
    return path
