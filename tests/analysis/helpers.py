"""Records and run folders made up by hand, written as the program itself writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.analysis.measure import Evaluation, Outcome, of_outcomes
from isentrope.analysis.record import Record, write_record
from isentrope.metrics.log import record_of

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


def run_folder(
    path: Path,
    curve: Mapping[int, float],
    *,
    seed: int = 0,
    steps: int | None = None,
    games: int = 100,
    split: str = "seen",
    config: str = "",
    kind: str = "train",
) -> Path:
    """A run folder whose evaluations have the success `curve` by step."""
    path.mkdir(parents=True)
    total = f"steps = {steps}\n" if steps is not None else ""
    text = f"[run]\nseed = {seed}\n{total}[task]\nworld = 'toy'\n[eval]\ntemperature = 0.4\n{config}"
    (path / "config.toml").write_text(text)
    (path / "run.json").write_text(json.dumps({"kind": kind}))
    lines = [record_of(step, metrics(success, games, split), "eval") for step, success in curve.items()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def metrics(success: float, games: int, split: str) -> dict[str, float]:
    """Half of the games are of each kind; both kinds are solved equally often."""
    base = f"eval/{split}"
    found = {f"{base}/success": success, f"{base}/games": float(games), f"{base}/low": 0.0, f"{base}/high": 1.0}
    for kind in ("pick", "heat"):
        found |= {f"{base}/success/{kind}": success, f"{base}/games/{kind}": games / 2}
    return found | {f"{base}/turns": 4.0, f"{base}/return": 2.0, f"{base}/valid_ratio": 0.5}
