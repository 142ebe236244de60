"""Makes run folders that look like real ones: a learning curve, an entropy that erupts once, readable episodes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.core.stats import wilson
from isentrope.core.types import Episode, Turn
from isentrope.metrics.entropy import key_part
from isentrope.metrics.log import record_of
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import METRICS, TIMINGS, eval_path, train_path

KINDS = ("pick", "look", "clean", "heat", "cool", "pick_two")
GAMES = 128
WORDS = (
    "I should look for the mug . first , then heat it with microwave 1 go to "
    "desk take from cabinet 2 3 and put countertop drawer open clean sinkbasin maybe nothing here next fridge é 🦆 "
)
TOKENS = [*(f"{word} " for word in WORDS.split()), "<think>", "</think>", "<action>", "</action>"]
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


def curve(step: float, steps: int, low: float, high: float) -> float:
    return low + (high - low) / (1 + math.exp(-10 * (step / max(steps, 1) - 0.4)))


def response(rng: np.random.Generator, thought: str, action: str) -> dict[str, Any]:
    """Token ids and numbers for a response; words that are not in the table are left out."""
    number = {text.strip(): i for i, text in enumerate(TOKENS)}
    words = ["<think>", *thought.split(), "</think>", "<action>", *action.split(), "</action>"]
    words = [word for word in words if word in number]
    ids = np.array([number[word] for word in words], dtype=np.int32)
    entropies = np.where(rng.random(len(ids)) < 0.25, rng.exponential(1.0, len(ids)), rng.exponential(0.05, len(ids)))
    start, end = words.index("</think>"), words.index("<action>")
    return {
        "response_ids": ids,
        "entropies": entropies.astype(np.float32),
        "logprobs": (-entropies * rng.random(len(ids))).astype(np.float32),
        "temperatures": np.ones(len(ids), dtype=np.float32),
        "think_span": (1, start),
        "action_span": (end + 1, len(ids) - 1),
    }


def episode(rng: np.random.Generator, index: int, success: bool, split: str = "train", text: str = "") -> Episode:
    """A household game of a few turns; `text` is put wherever text from a task or a model can stand."""
    moves = [
        ("first look for the mug , maybe desk 1", "go to desk 1", "You arrive at desk 1. On it you see a mug 2."),
        ("the mug 2 is here . take it", "take mug 2 from desk 1", "You pick up the mug 2 from the desk 1."),
        ("then heat it with the microwave", "go to microwave 1", "You arrive at microwave 1. It is closed."),
        ("heat it first", "heat mug 2 with microwave 1", "You heat the mug 2 with the microwave 1."),
    ]
    turns: list[Turn] = []
    seen = "You are in the middle of a room. You see a desk 1, a cabinet 2, a fridge 1, a microwave 1."
    for number, (thought, action, after) in enumerate(moves):
        valid = success or number != 2
        turns.append(
            Turn(
                observation=seen + text,
                admissible=("look", action + text),
                anchor=f"{index:04d}{number}",
                context_ids=np.arange(30, dtype=np.int32),
                continues=number > 0,
                action=(action + text) if valid else None,
                verdict="ok" if valid else "inadmissible",
                stop="tag",
                reward=10.0 if success and number == 3 else 0.0 if valid else -0.1,
                **response(rng, thought, action),
            )
        )
        seen = after if valid else "Nothing happens."
    goal = "heat some mug and put it in cabinet" + text
    stop = "terminated" if success else "turn_limit"
    kind = KINDS[index % len(KINDS)] + text
    return Episode(
        "household", split, index, kind, goal, index // 8, index % 8, "think_act", tuple(turns), success, stop
    )


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
    _write_lines(path / METRICS, records)
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
        write_episodes(train_path(path, step), [episode(rng, i, i % 3 == 0, text=text) for i in range(6)])
    for step in (0, steps):
        games = [episode(rng, i, i % 4 != 0, "unseen", text) for i in range(6)]
        write_episodes(eval_path(path, step, "unseen"), games)
    _write_lines(path / METRICS, records)
    _write_lines(path / TIMINGS, timings)
    if warmup:
        make_warmup(path / "warmup", seed)
    return path


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
