"""Run folders written by hand: what a run writes, without a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.core.stats import wilson
from isentrope.metrics.entropy import key_part
from isentrope.metrics.log import record_of
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import METRICS, TIMINGS, eval_path, train_path
from isentrope.study.cells import Cell
from isentrope.study.plan import Plan, Study, write_plan
from isentrope.study.plan import run_folder as study_run_folder
from tests.builders.episodes import KINDS, TOKENS, household_episode

GAMES = 128
CONFIG = """methods = {methods}

[run]
seed = {seed}
steps = {steps}

[task]
world = "household"
max_turns = 50

[agent]
order = "think_act"

[policy]
model = {model}

[rollout]
groups = 16
group_size = 8

[learn]
algorithm = "grpo"
lr = 1e-6
"""
STUDY_CONFIG = """[run]
seed = {seed}
steps = {steps}
[rollout]
groups = 2
group_size = 3
[learn]
lr = 1e-4
"""


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


# Runs as the household world gives them


def curve(step: float, steps: int, low: float, high: float) -> float:
    return low + (high - low) / (1 + math.exp(-10 * (step / max(steps, 1) - 0.4)))


def train_metrics(rng: np.random.Generator, step: int, steps: int) -> dict[str, float]:
    success = float(np.clip(curve(step, steps, 0.45, 0.9) + rng.normal(0, 0.04), 0, 1))
    eruption = 0.5 * math.exp(-(((step / steps - 0.55) / 0.07) ** 2))
    entropy = 0.25 + 0.45 * math.exp(-4 * step / steps) + eruption + rng.normal(0, 0.015)
    kinds = {
        kind: float(np.clip(success + (n - 2.5) * 0.06 + rng.normal(0, 0.05), 0, 1)) for n, kind in enumerate(KINDS)
    }
    clipped = float(0.004 + 0.02 * eruption + abs(rng.normal(0, 0.001)))
    invalid = float(max(0.0, 0.11 * math.exp(-5 * step / steps) + 0.1 * eruption + rng.normal(0, 0.004)))
    return {
        "return/mean": 10 * success - invalid,
        "return/std": 10 * math.sqrt(success * (1 - success)),
        "success/all": success,
        **{f"success/{kind}": value for kind, value in kinds.items()},
        "episode/turns": 32 - 18 * success + rng.normal(0, 0.5),
        "response/tokens": 30 + 10 * eruption + rng.normal(0, 0.6),
        "response/think_tokens": 18 + 9 * eruption + rng.normal(0, 0.5),
        "response/action_tokens": 6 + rng.normal(0, 0.1),
        "valid_ratio": 1 - invalid,
        "verdict/inadmissible": invalid * 0.7,
        "verdict/no_action": invalid * 0.2,
        "verdict/too_long": invalid * 0.1,
        "entropy/token": entropy,
        "entropy/think": entropy * 1.3,
        "entropy/action": entropy * 0.5,
        "entropy/first10": entropy * 1.5 + rng.normal(0, 0.02),
        "entropy/last10": entropy * 0.6 + rng.normal(0, 0.02),
        "loss/policy": float(rng.normal(0, 0.01)),
        "loss/kl": 0.0001 * step,
        "loss/total": float(rng.normal(0, 0.01)) + 0.0001 * step,
        "kl/k3": 0.0004 * step + abs(rng.normal(0, 0.001)),
        "kl/old": abs(rng.normal(0, 0.0004)),
        "clip/fraction": clipped,
        "advantage/zero_groups": float(np.clip(success - 0.4 + rng.normal(0, 0.05), 0, 1)),
        "grad_norm": float("nan") if step == 30 else float(rng.lognormal(-1.2, 0.25)),
        "lr": 1e-6 * min(1.0, (step + 1) / (0.1 * steps)) * (0.6 + 0.4 * math.cos(math.pi * step / steps)),
    }


def eval_record(rng: np.random.Generator, step: int, share: float) -> dict[str, Any]:
    metrics: dict[str, float] = {}
    for split, drop in (("seen", 0.0), ("unseen", 0.04)):
        wins = int(rng.binomial(GAMES, max(0.0, min(1.0, share - drop))))
        interval = wilson(wins, GAMES)
        values = {
            "success": wins / GAMES,
            "low": interval.low,
            "high": interval.high,
            "games": float(GAMES),
            "turns": 14.0,
        }
        metrics |= {f"eval/{split}/{key}": value for key, value in values.items()}
    return record_of(step, metrics, "eval")


def make_warmup(path: Path, seed: int = 0) -> Path:
    """A warm-up that rises and then stays on its plateau."""
    rng = np.random.default_rng(seed)
    path.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for step in range(0, 260, 10):
        fit = {"sft/loss": 0.3 + 2.5 * math.exp(-step / 40)}
        records.append(record_of(step, fit | {"sft/epoch": step / 25}, "sft"))
        if step % 50 == 0:
            records.append(eval_record(rng, step, 0.5 * (1 - math.exp(-step / 55))))
    write_lines(path / METRICS, records)
    return path


def make_run(
    path: Path, steps: int = 100, seed: int = 0, text: str = "", model: str = "pocket", warmup: bool = True
) -> Path:
    rng = np.random.default_rng(seed)
    path.mkdir(parents=True, exist_ok=True)
    config = CONFIG.format(seed=seed, steps=steps, model=json.dumps(model + text), methods=json.dumps(["epo", "aem"]))
    (path / "config.toml").write_text(config, encoding="utf-8")
    (path / "tokens.json").write_text(json.dumps([list((token + text).encode()) for token in TOKENS]))
    records: list[dict[str, Any]] = []
    timings: list[dict[str, Any]] = []
    for step in range(steps):
        if step % 10 == 0:
            records.append(eval_record(rng, step, curve(step, steps, 0.45, 0.9)))
        odd = {f"{group}/{key_part(text)}": 0.5 for group in ("success", "verdict")} if text else {}
        records.append(record_of(step, train_metrics(rng, step, steps) | odd, "train"))
        clock = {"rollout": 21, "update": 14, "score": 4, "store": 1}
        timings.append(record_of(step, {f"seconds/{k}": v * rng.uniform(0.9, 1.2) for k, v in clock.items()}, "train"))
    records.append(eval_record(rng, steps, 0.9))
    for step in sorted({0, steps // 2, steps - 1}):
        write_episodes(train_path(path, step), [household_episode(rng, i, i % 3 == 0, text=text) for i in range(6)])
    for step in (0, steps):
        games = [household_episode(rng, i, i % 4 != 0, "unseen", text) for i in range(6)]
        write_episodes(eval_path(path, step, "unseen"), games)
    write_lines(path / METRICS, records)
    write_lines(path / TIMINGS, timings)
    if warmup:
        make_warmup(path / "warmup", seed)
    return path


# Runs of a study


def make_study(folder: Path, cells: Sequence[Cell], plan: Plan | None = None) -> Study:
    study = Study(plan or Plan(name="made"), tuple(cells))
    write_plan(folder, study)
    return study


def cell(name: str, seeds: Sequence[int] = (0, 1), against: str = "", **tags: str) -> Cell:
    return Cell(name, tags or {"method": name}, (f"method.x={name}",), tuple(seeds), None, "", against)


def write_run(
    folder: Path,
    name: str,
    seed: int,
    evals: Mapping[int, float],
    train: Sequence[Mapping[str, Any]] = (),
    steps: int = 10,
    timings: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A run with success on unseen games by step, and training rows numbered from 1."""
    run = study_run_folder(folder, name, seed)
    run.mkdir(parents=True)
    (run / "config.toml").write_text(STUDY_CONFIG.format(seed=seed, steps=steps))
    (run / "run.json").write_text('{"kind": "train"}')
    rows: list[dict[str, Any]] = [{"step": n, "kind": "train", **row} for n, row in enumerate(train, start=1)]
    rows += [
        {"step": step, "kind": "eval", "eval/unseen/success": share, "eval/unseen/games": 100.0}
        for step, share in evals.items()
    ]
    rows.sort(key=lambda row: (row["step"], row["kind"] == "eval"))
    write_lines(run / METRICS, rows)
    lines = [{"step": n, "kind": "train", **row} for n, row in enumerate(timings, start=1)]
    write_lines(run / TIMINGS, lines)
    return run


def whole_run(folder: Path, name: str, seed: int, last: float, steps: int = 10) -> Path:
    """A finished run that starts at 0.2 and ends at `last`."""
    train = [{"entropy/token": 0.5 - 0.01 * n, "episode/tokens": 10.0, "valid_ratio": 0.9} for n in range(steps)]
    seconds = [{"seconds/rollout": 1.0, "seconds/update": 2.0, "seconds/evaluate": 5.0}] * steps
    return write_run(folder, name, seed, {0: 0.2, steps // 2: last / 2, steps: last}, train, steps, seconds)


# Runs of which only the evaluations count


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
    lines = [record_of(step, split_metrics(success, games, split), "eval") for step, success in curve.items()]
    write_lines(path / METRICS, lines)
    return path


def split_metrics(success: float, games: int, split: str) -> dict[str, float]:
    """Half of the games are of each kind; both kinds are solved equally often."""
    base = f"eval/{split}"
    found = {f"{base}/success": success, f"{base}/games": float(games), f"{base}/low": 0.0, f"{base}/high": 1.0}
    for kind in ("pick", "heat"):
        found |= {f"{base}/success/{kind}": success, f"{base}/games/{kind}": games / 2}
    return found | {f"{base}/turns": 4.0, f"{base}/return": 2.0, f"{base}/valid_ratio": 0.5}
