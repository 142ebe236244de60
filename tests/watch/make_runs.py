"""Run folders to watch: those of the report's tests, with phases, alarms, groups and scores beside the episodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isentrope.core.types import Episode
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import train_path
from tests.builders.episodes import household_episode
from tests.builders.run_folders import make_run

EVENTS = (
    (0, "phase", "descent", "", ""),
    (41, "phase", "eruption", "Entropy began to rise.", ""),
    (44, "alarm", "eruption", "Entropy rose from 0.34 to 0.61 nats within six steps.", "Try seal, or a smaller rate."),
    (62, "phase", "subsidence", "Entropy fell again.", ""),
)


def make_watched(path: Path, steps: int = 100, seed: int = 0, text: str = "", events: bool = True) -> Path:
    """A run whose training episodes come in two groups of four, with advantages and ratios."""
    make_run(path, steps, seed, text, warmup=False)
    (path / "run.json").write_text('{"kind": "train"}\n')
    if events:
        names = ("step", "kind", "name", "text", "remedy")
        lines = [dict(zip(names, (*event[:3], event[3] + text, event[4] + text), strict=True)) for event in EVENTS]
        (path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in sorted({0, steps // 2, steps - 1}):
        episodes = [grouped(number, seed + step, text) for number in range(8)]
        write_episodes(train_path(path, step), episodes)
        write_scores(path / "episodes" / f"scores-{step:06d}.parquet", episodes)
    return path


def grouped(number: int, seed: int, text: str = "") -> Episode:
    """Members 0 and 1 of a group fail, 2 and 3 solve it; the third turn of a failed one is refused."""
    made = household_episode(np.random.default_rng(seed * 100 + number), number, number % 4 >= 2, text=text)
    return replace(made, group=number // 4, member=number % 4, kind=("heat" if number < 4 else "look") + text)


def write_scores(path: Path, episodes: list[Episode]) -> None:
    """One row a turn: advantages and ratios, one number a response token."""
    rng = np.random.default_rng(0)
    rows = [(e, t, turn) for e, episode in enumerate(episodes) for t, turn in enumerate(episode.turns)]
    sizes = [len(turn.response_ids) for *_, turn in rows]
    signs = [1.0 if episodes[e].success else -1.0 for e, *_ in rows]
    table = {
        "episode": [e for e, *_ in rows],
        "turn": [t for _, t, _ in rows],
        "advantages": [[sign * 0.8] * size for sign, size in zip(signs, sizes, strict=True)],
        "ratios": [np.exp(rng.normal(0, 0.15, size)).tolist() for size in sizes],
    }
    pq.write_table(pa.table(table), path)
